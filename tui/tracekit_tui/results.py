"""What the analyzers say of the run, computed one after the other in a thread and kept."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import duckdb
from textual.app import App
from textual.message import Message

from tracekit.analysis.base import Analyzer, Result
from tracekit.errors import TracekitError
from tracekit.store import Reader

Key = tuple[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class Failure:
    """An analyzer that could not run on this store, and why."""

    reason: str


class ResultReady(Message):
    """An answer is there to be taken with :meth:`Results.get`."""

    def __init__(self, key: Key) -> None:
        super().__init__()
        self.key = key


class Results:
    """Asks for what is not known yet; what was asked for last is computed first."""

    def __init__(self, app: App[None], reader: Reader) -> None:
        self._app = app
        self._reader = reader.cursor()
        self._lock = threading.Lock()
        self._known: dict[Key, Result | Failure] = {}
        self._waiting: list[tuple[Analyzer, tuple[str, ...]]] = []
        self._running: tuple[Analyzer, tuple[str, ...]] | None = None

    def get(self, analyzer: Analyzer, by: tuple[str, ...] | None = None) -> Result | Failure | None:
        """The result, or None: then it is on its way."""
        groups = analyzer.default_by if by is None else by
        found = self._known.get((analyzer.name, groups))
        if found is None:
            self._ask((analyzer, groups))
        return found

    def _ask(self, job: tuple[Analyzer, tuple[str, ...]]) -> None:
        with self._lock:
            if job == self._running:
                return
            self._waiting = [other for other in self._waiting if other != job] + [job]
            if self._running is not None:
                return
            self._running = self._waiting.pop()
        self._app.run_worker(self._work, thread=True, group="results")

    def _work(self) -> None:
        while self._running is not None:
            analyzer, by = self._running
            answer: Result | Failure
            try:
                answer = analyzer.run(self._reader, by)
            except duckdb.InterruptException:
                return  # the application is leaving
            except (TracekitError, duckdb.Error) as error:
                answer = Failure(str(error).splitlines()[0])
            with self._lock:
                self._known[analyzer.name, by] = answer
                self._running = self._waiting.pop() if self._waiting else None
            if self._app.is_running:
                self._app.post_message(ResultReady((analyzer.name, by)))

    def interrupt(self) -> None:
        """Stop what runs, so that leaving never waits."""
        with self._lock:
            self._waiting.clear()
        self._reader.interrupt()
