"""Work ahead of who asks: a thread makes the next items while the last one is used.

It pays where both let the interpreter lock go, as decompression and the scanner do.
"""

from __future__ import annotations

import queue
import threading
from collections.abc import Generator, Iterable
from typing import TypeVar

_Item = TypeVar("_Item")
_DEPTH = 2  # items that wait: enough to keep both busy


def ahead(items: Iterable[_Item]) -> Generator[_Item, None, None]:
    """The same items in the same order; what making them raises is raised here in its turn.

    The thread ends when the items do, or when the generator is closed.
    """
    made: queue.Queue[tuple[_Item] | BaseException | None] = queue.Queue(_DEPTH)
    stopping = threading.Event()

    def put(item: tuple[_Item] | BaseException | None) -> bool:
        while not stopping.is_set():
            try:
                made.put(item, timeout=0.5)
            except queue.Full:
                continue
            return True
        return False

    def make() -> None:
        try:
            for item in items:
                if not put((item,)):
                    return
        except BaseException as error:  # noqa: BLE001 - it belongs to who asks
            put(error)
        else:
            put(None)

    thread = threading.Thread(target=make, daemon=True)
    thread.start()
    try:
        while (item := made.get()) is not None:
            if isinstance(item, BaseException):
                raise item
            yield item[0]
    finally:
        stopping.set()
        thread.join()
