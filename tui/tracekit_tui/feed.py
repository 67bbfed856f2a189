"""Questions to the store from the event loop, answered in a thread: only the newest one counts.

A key press only replaces the question that waits. One thread asks; when it is done it takes what
is newest then, so that holding a key costs one query at a time and shows each answer as it comes.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Generic, TypeVar

import duckdb
from textual.message import Message
from textual.widget import Widget

Q = TypeVar("Q")
A = TypeVar("A")


class Answered(Message):
    """An answer on its way back to the event loop of the widget that asked."""

    def __init__(self, deliver: Callable[[], None]) -> None:
        super().__init__()
        self.deliver = deliver


class Feed(Generic[Q, A]):
    """Asks in a thread and delivers in the event loop of ``owner``.

    The owner handles :class:`Answered` by calling its ``deliver``. An answer to a question that
    is no longer the newest is still delivered, since it is newer than what is shown; ``deliver``
    gets the question, to see whether it still fits.
    """

    def __init__(
        self, owner: Widget, ask: Callable[[Q], A], deliver: Callable[[Q, A], None]
    ) -> None:
        self._owner = owner
        self._ask = ask
        self._deliver = deliver
        self._lock = threading.Lock()
        self._waiting: list[Q] = []
        self._running = False

    def ask(self, question: Q) -> None:
        """Ask soon; a question that still waits is dropped."""
        with self._lock:
            self._waiting = [question]
            if self._running:
                return
            self._running = True
        self._owner.run_worker(self._work, thread=True, group="feed")

    def _work(self) -> None:
        while True:
            with self._lock:
                if not self._waiting:
                    self._running = False
                    return
                question = self._waiting.pop()
            try:
                answer = self._ask(question)
            except duckdb.InterruptException:
                return  # the application is leaving
            except BaseException:
                with self._lock:
                    self._running = False
                raise
            if self._owner.is_running:
                self._owner.post_message(Answered(self._delivery(question, answer)))

    def _delivery(self, question: Q, answer: A) -> Callable[[], None]:
        return lambda: self._deliver(question, answer)
