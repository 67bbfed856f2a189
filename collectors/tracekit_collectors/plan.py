"""Which window comes next: of those planned from the start and those asked for meanwhile."""

from __future__ import annotations

from tracekit_collectors.options import Options, Recording


class Plan:
    """The windows to come, the nearest first; two are never open at once.

    Attributes:
        is_fulfilled: Whether every window that was planned from the start has been open.
    """

    def __init__(self, options: Options) -> None:
        self._planned = options.recordings()
        self._head = next(self._planned, None)
        self._asked: list[Recording] = []
        self._settled = 0  # the first step that no window has had

    @property
    def is_fulfilled(self) -> bool:
        return self._head is None

    @property
    def next(self) -> Recording | None:
        """The window that begins first."""
        coming = [window for window in (self._head, *self._asked) if window is not None]
        return min(coming, default=None)

    def ask(self, window: Recording) -> None:
        """One more. Somebody waits for it: it is late rather than left out."""
        self._asked.append(self._late(window))

    def closed(self, window: Recording, steps: int) -> list[int]:
        """A window has been open, and the step that comes next is number ``steps``.

        Returns the first steps of the planned windows that it left no room for.
        """
        self._settled = steps
        left_out = []
        if window in self._asked:
            self._asked.remove(window)
        elif window == self._head:
            self._head = next(self._planned, None)
        while self._head is not None and self._late(self._head) != self._head:
            left_out.append(self._head.first)
            self._head = next(self._planned, None)
        self._asked = [self._late(window) for window in self._asked]
        return left_out

    def _late(self, window: Recording) -> Recording:
        """The window, moved behind the last one that was open and the step between the two."""
        if not self._settled:
            return window
        late = max(self._settled - window.start, self._settled + 1 - window.first, 0)
        return Recording(*(number + late for number in window))
