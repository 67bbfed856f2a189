"""A second thread for the statements of the main one.

DuckDB looks for Ctrl-C in the main thread only while it has work for it there, and not at all while
other threads do it. An executor of the standard library would do, but for one interrupt: the one
that falls into the start of its thread leaves a thread that the interpreter waits for at its end,
forever.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

_Result = TypeVar("_Result")
_MOMENT_S = 0.05


class _Job(Generic[_Result]):
    def __init__(self, work: Callable[[], _Result]) -> None:
        self._work = work
        self._outcome: list[_Result] = []
        self._error: BaseException | None = None
        self.has_begun = False
        self.is_called_off = False
        self.is_done = threading.Event()

    def do(self) -> None:
        self.has_begun = True
        try:
            if not self.is_called_off:
                self._outcome.append(self._work())
        except BaseException as error:  # noqa: BLE001 - it is raised where the result is asked for
            self._error = error
        self.is_done.set()

    def result(self) -> _Result:
        if self._error is not None:
            raise self._error
        return self._outcome[0]


_jobs: SimpleQueue[_Job[object]] = SimpleQueue()
_worker: list[threading.Thread] = []


def apart(work: Callable[[], _Result], stop: Callable[[], None]) -> _Result:
    """Do ``work`` in the second thread, or here where this is not the main one.

    Args:
        work: What is to be done.
        stop: Ends it early. Called at Ctrl-C, until ``work`` has ended.

    Raises:
        KeyboardInterrupt: while it ran.
    """
    if threading.current_thread() is not threading.main_thread():
        return work()
    job = _Job(work)
    try:
        if not (_worker and _worker[-1].is_alive()):  # a fork has it, but dead
            thread = threading.Thread(target=_serve, name="tracekit-store", daemon=True)
            thread.start()
            _worker.append(thread)
        _jobs.put(job)  # type: ignore[arg-type]
        job.is_done.wait()
    except KeyboardInterrupt:
        job.is_called_off = True
        # It may not have got that far, and what has not begun now does nothing.
        while job.has_begun and not job.is_done.wait(_MOMENT_S):
            stop()
        raise
    return job.result()


def _serve() -> None:
    while True:
        _jobs.get().do()
