"""While a window is open: what ends the process without Python's own end must not lose it."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import Any

from tracekit_collectors.hooks import quietly

# A main thread that waits in a collective does not come to Python's handlers.
_PATIENCE_S = 2.0


class Guard:
    """Calls ``end(why)`` before a SIGTERM or ``os._exit`` ends the process, as each would have.

    The signal is taken only where the program leaves it to its default, and given back with
    :meth:`remove`. A main thread that does not come to the handler dies of the signal all the same,
    two seconds later.
    """

    def __init__(self, end: Callable[[str], None]) -> None:
        self._end = end
        self._pid = os.getpid()
        self._exit: Callable[[int], Any] | None = None
        self._pipe: tuple[int, int] | None = None
        self._identity = (0, 0)  # of the pipe, whichever number it has
        self._is_handled = threading.Event()
        self._minds_forks = False
        self._mask: set[Any] | None = None

    def install(self) -> None:
        if self._exit is None:
            self._exit, os._exit = os._exit, self._on_exit  # type: ignore[assignment]
        is_free = signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
        if is_free and threading.current_thread() is threading.main_thread():
            self._take_signal()

    def remove(self) -> None:
        if self._exit is not None and os._exit == self._on_exit:
            os._exit, self._exit = self._exit, None  # type: ignore[assignment]
        if self._pipe is None or threading.current_thread() is not threading.main_thread():
            return
        if signal.getsignal(signal.SIGTERM) == self._on_term:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
        self._give_back_pipe()

    def _take_signal(self) -> None:
        pipe = os.pipe()
        for end in pipe:
            os.set_blocking(end, end == pipe[0])
        before = signal.set_wakeup_fd(pipe[1], warn_on_full_buffer=False)
        if before != -1:  # an event loop of the program listens there
            signal.set_wakeup_fd(before)
            for end in pipe:
                os.close(end)
            return
        self._pipe, self._identity = pipe, _identity(pipe[1])
        if not self._minds_forks:
            os.register_at_fork(
                before=self._before_fork,
                after_in_parent=self._after_fork,
                after_in_child=self._in_child,
            )
            self._minds_forks = True
        signal.signal(signal.SIGTERM, self._on_term)
        threading.Thread(
            target=self._watch, args=(pipe[0], self._identity), name="tracekit-guard", daemon=True
        ).start()

    def _give_back_pipe(self) -> None:
        assert self._pipe is not None
        _leave_wakeup_fd(self._pipe[1])
        _close_ours(self._pipe[1], self._identity)  # the watcher reads its end, and closes its own
        self._pipe = None

    def _before_fork(self) -> None:
        """What a fork is sent before it has left the handler and the pipe waits until it has: it
        would be lost there, or look as if the rank had been sent it."""
        if self._pipe is not None and os.getpid() == self._pid:
            self._mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})

    def _after_fork(self) -> None:
        if self._mask is not None:
            mask, self._mask = self._mask, None
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)

    def _in_child(self) -> None:
        if self._pipe is not None:
            _leave_wakeup_fd(self._pipe[1])
            for end in self._pipe:
                _close_ours(end, self._identity)
            self._pipe = None
            quietly(signal.signal, signal.SIGTERM, signal.SIG_DFL)
        self._after_fork()

    def _on_term(self, number: int, frame: FrameType | None) -> None:
        self._is_handled.set()
        if os.getpid() == self._pid:
            quietly(self._end, "SIGTERM came in the window")
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGTERM)

    def _watch(self, pipe: int, identity: tuple[int, int]) -> None:
        with contextlib.suppress(OSError):
            while received := os.read(pipe, 1):
                if received[0] == signal.SIGTERM and not self._is_handled.wait(_PATIENCE_S):
                    ctypes.CDLL(None).signal(int(signal.SIGTERM), None)  # SIG_DFL
                    os.kill(self._pid, signal.SIGTERM)
        _close_ours(pipe, identity)

    def _on_exit(self, status: int) -> None:
        # The end of the window gives it back; who took ours in the window may call it later.
        leave = self._exit or os._exit
        if os.getpid() == self._pid:
            quietly(self._end, "os._exit came in the window")
        leave(status)


def _identity(file: int) -> tuple[int, int]:
    found = os.fstat(file)
    return found.st_dev, found.st_ino


def _close_ours(file: int, identity: tuple[int, int]) -> None:
    """Unless the program has closed it already, and may have another one by the same number."""
    with contextlib.suppress(OSError):
        if _identity(file) == identity:
            os.close(file)


def _leave_wakeup_fd(ours: int) -> None:
    """A loop of the program's that has taken the place since keeps it."""
    current = signal.set_wakeup_fd(-1)
    if current not in (-1, ours):
        signal.set_wakeup_fd(current)
