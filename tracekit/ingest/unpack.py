"""The bytes of a trace file, decompressed piece by piece, with what is wrong with the compression.

A gzip may have several members; one that ends early or is damaged gives what stands before the
damage, to the byte, and reading goes on with the next member.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    import zlib  # the same interface, described in full
    from pathlib import Path
else:
    from zlib_ng import zlib_ng as zlib  # twice as fast as zlib itself

PIECE_BYTES = 1 << 20
_READ_BYTES = 256 << 10
_MAGIC = b"\x1f\x8b"
_MEMBER = b"\x1f\x8b\x08"  # deflate, the only method that there is


class Unpacker:
    """Reads one file; ``read`` is the place in it, ``damage`` is complete at the end of pieces.

    ``damage`` holds (decompressed bytes before it, what is wrong).
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.read = 0
        self.produced = 0
        self.damage: list[tuple[int, str]] = []
        self._skipping = False  # after a damage, until the next member begins

    def pieces(self) -> Iterator[bytes]:
        """The decompressed bytes in order, up to a MiB at a time.

        Raises:
            OSError: the file cannot be read.
        """
        with self.path.open("rb") as file:
            packed = file.read(2) == _MAGIC
            file.seek(0)
            for piece in self._inflated(file) if packed else self._plain(file):
                self.produced += len(piece)
                yield piece

    def _plain(self, file: BinaryIO) -> Iterator[bytes]:
        while piece := file.read(PIECE_BYTES):
            self.read += len(piece)
            yield piece

    def _inflated(self, file: BinaryIO) -> Iterator[bytes]:
        inflater = None
        for raw in iter(lambda: file.read(_READ_BYTES), b""):
            self.read += len(raw)
            data = raw
            while data:
                if inflater is None:
                    data = self._member(data, file)
                    if not data:
                        break
                    inflater = zlib.decompressobj(wbits=31)
                before = inflater.copy()
                try:
                    piece = inflater.decompress(data, PIECE_BYTES)
                except zlib.error as error:
                    yield from self._last_bytes(before, data)
                    self.damage.append((self.produced, f"damaged gzip: {_reason(error)}"))
                    at = data.find(_MEMBER, 1)
                    data, inflater = data[at:] if at > 0 else b"", None
                    self._skipping = at < 0
                    continue
                if piece:
                    yield piece
                data = inflater.unconsumed_tail
                if inflater.eof:
                    data, inflater = inflater.unused_data, None
        if inflater is not None:
            self.damage.append((self.produced, "the gzip ends early"))

    def _member(self, data: bytes, file: BinaryIO) -> bytes:
        """From the beginning of the next member on; what stands before it is damage, not zeros."""
        if not self._skipping:
            data = data.lstrip(b"\0")  # tapes and block devices pad with them
            if 0 < len(data) < len(_MEMBER):
                more = file.read(len(_MEMBER))
                self.read += len(more)
                data += more
            if not data or data.startswith(_MEMBER):
                return data
            self.damage.append((self.produced, "other bytes after the end of the gzip"))
        at = data.find(_MEMBER)
        self._skipping = at < 0
        return data[at:] if at >= 0 else b""

    def _last_bytes(self, inflater: zlib._Decompress, data: bytes) -> Iterator[bytes]:
        """What a damaged stream gives before the damage: zlib keeps back the output of a call that
        fails, so the calls get smaller towards the damage."""
        for step in (256, 1):
            for start in range(0, len(data), step):
                before = inflater.copy()
                part = data[start : start + step]
                try:
                    while part:
                        piece = inflater.decompress(part, PIECE_BYTES)
                        if piece:
                            yield piece
                        part = inflater.unconsumed_tail
                except zlib.error:
                    inflater, data = before, data[start : start + step]
                    break


def _reason(error: zlib.error) -> str:
    return str(error).rpartition(": ")[2]
