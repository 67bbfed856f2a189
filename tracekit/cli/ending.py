"""End by a signal as one should: clean up first."""

from __future__ import annotations

import _thread
import contextlib
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


@contextlib.contextmanager
def cleaned_up() -> Iterator[None]:
    """What a scheduler or a closed terminal sends interrupts the work within, which removes what
    it had begun; then the process ends by that signal. A signal that is ignored (nohup) stays so.
    """
    received: list[int] = []

    def stop(number: int, _: FrameType | None) -> None:
        received.append(number)
        raise KeyboardInterrupt

    in_main = threading.current_thread() is threading.main_thread()
    ours = [n for n in _SIGNALS if in_main and signal.getsignal(n) is signal.SIG_DFL]
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number in ours:
            signal.signal(number, signal.SIG_DFL)
        if received:
            os.kill(os.getpid(), received[0])


_MOMENT_S = 0.01


@contextlib.contextmanager
def interrupts_kept() -> Iterator[None]:
    """A Ctrl-C that falls into a place which lets no exception out (a weak reference's callback,
    `__del__`) would be printed as "ignored" and be lost: it comes again a moment later."""
    previous = sys.unraisablehook

    def later() -> None:
        time.sleep(_MOMENT_S)
        if (main := threading.main_thread().ident) is not None:
            signal.pthread_kill(main, signal.SIGINT)  # which wakes it, whatever it waits for

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        if unraisable.exc_type is KeyboardInterrupt:
            # Not from here: an exception within this hook is ignored as well.
            _thread.start_new_thread(later, ())
        else:
            previous(unraisable)

    sys.unraisablehook = hook
    try:
        yield
    finally:
        sys.unraisablehook = previous
