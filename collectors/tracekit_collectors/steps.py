"""Where a training step ends: after the step of an optimizer, or where the program says so."""

from __future__ import annotations

import weakref
from typing import Any

_LONGEST_ROUND = 1000  # steps of other optimizers between two of the boundary


class StepCounter:
    """Watches the optimizers of a rank.

    A step ends with the step of its boundary: of the one optimizer, or of the last of several that
    take turns. Once a better source is heard (the program itself, or its engine), optimizers end no
    step any more.

    Attributes:
        source: What the steps are counted by, in words.
    """

    def __init__(self) -> None:
        # Weak: a capture keeps no model alive.
        self._known: list[weakref.ref[Any]] = []
        self._boundary: weakref.ref[Any] | None = None
        self._is_settled = False
        self._others: list[weakref.ref[Any]] = []  # that stepped since the boundary did
        self._in_backward = False  # an optimizer stepped within the backward pass that runs
        self._said: str | None = None
        self.source = ""

    @property
    def optimizers(self) -> list[Any]:
        """All that have stepped and are still alive."""
        return [found for known in self._known if (found := known()) is not None]

    def optimizer_stepped(self, optimizer: Any, *, outermost: bool, in_backward: bool) -> bool:
        """Whether the step of this optimizer ends a training step.

        Args:
            optimizer: The one that stepped.
            outermost: It was not stepped by another optimizer's step.
            in_backward: It stepped within a backward pass, whose end is the end of the step: a
                profiler that is started in there is lost with the state of the engine's thread.
        """
        if not any(known() is optimizer for known in self._known):
            self._known = [known for known in self._known if known() is not None]
            self._known.append(weakref.ref(optimizer))
        if not outermost or self._said is not None:
            return False
        if in_backward:
            self._in_backward = True
            return False
        return self._is_boundary(optimizer)

    def backward_ended(self) -> bool:
        """Whether the backward pass that has just ended ends a training step."""
        stepped, self._in_backward = self._in_backward, False
        if stepped and self._said is None:
            self.source = "backward passes whose optimizers step within"
            return True
        return False

    def expect(self, source: str) -> None:
        """The steps will be said by this source, and nothing else ends one."""
        self._said = self._said or source

    def said(self, source: str) -> bool:
        """The program, or its engine, says that a step has ended. Of several the first is heard."""
        self.expect(source)
        self.source = self._said or source
        return self._said == source

    def forget(self) -> None:
        """Hold nothing of the program."""
        self._known, self._others, self._boundary = [], [], None

    def _is_boundary(self, optimizer: Any) -> bool:
        boundary = self._boundary() if self._boundary is not None else None
        if boundary is None:
            self._set_boundary(optimizer)
            return True
        if optimizer is not boundary:
            self._others.append(weakref.ref(optimizer))
            if len(self._others) < _LONGEST_ROUND:
                return False
            self._others.clear()  # the boundary is used no more
            self._set_boundary(optimizer)
            return True
        if self._is_settled or not self._others:
            self._is_settled = True
            self._others.clear()
            return True
        # Others take their turn between two steps of the first: the last of them closes the round.
        last = self._others[-1]()
        self._others.clear()
        self._is_settled = True
        if last is None:
            return True
        self._set_boundary(last)
        return False

    def _set_boundary(self, optimizer: Any) -> None:
        self._boundary = weakref.ref(optimizer)
        self.source = f"optimizer {type(optimizer).__name__}"
