"""The strings, threads and tracks of one file by the numbers that the whole run uses.

A reader numbers them as they come, and begins anew where they are too many: the number of an entry
is its place in the lists here.
"""

from __future__ import annotations

import struct

import pyarrow as pa

from tracekit.ingest import batch, text
from tracekit.ingest.categories import GPU_WORK, category_of
from tracekit.ingest.rank_state import RankState
from tracekit.ingest.strings import Numbered
from tracekit.store import Writer

_NO_DEVICE = -(1 << 31)


class Numbers:
    """The numbers that all files of a run share: of names, signatures and tracks."""

    def __init__(self, writer: Writer) -> None:
        text_of, number = pa.string(), pa.int32()
        self.names = Numbered(writer, "name", "name_id", {"name": text_of})
        columns = dict.fromkeys(("input_dims", "input_types", "concrete"), text_of)
        self.signatures = Numbered(writer, "signature", "signature_id", columns)
        columns = {"rank": number, "file_id": number, "cat": text_of, "thread_id": number}
        columns |= {"device": number, "stream": text_of}
        self.tracks = Numbered(writer, "track", "track_id", columns)


class Pools:
    """What the batches of one file number.

    Attributes:
        texts: Streams, parts of collective metadata, and names of threads.
        categories: As the file calls them.
        threads: The number of each thread within the rank.
    """

    def __init__(self, numbers: Numbers, state: RankState, file_id: int) -> None:
        self._numbers = numbers
        self._state = state
        self._file_id = file_id
        self._names: list[int] = []
        self._signatures: list[int] = []
        self._tracks: list[int] = []
        self._track_threads: list[int] = []
        self._processes: list[str] = []
        self._thread_keys: list[tuple[str, str]] = []
        self.texts: list[str] = []
        self.categories: list[str] = []
        self.threads: list[int] = []

    def take(
        self, pool: str, first: int, starts: text.Buffer, data: text.Buffer, flags: text.Buffer
    ) -> None:
        """New entries of a pool, the first of them with the number ``first``."""
        if pool == "name":
            del self._names[first:]
            new = text.decoded(starts, data, flags)
            self._names += self._numbers.names.of([(name,) for name in new])
        elif pool == "signature":
            del self._signatures[first:]
            signatures = [batch.signature(raw) for raw in text.pieces(starts, data)]
            self._signatures += self._numbers.signatures.of(signatures)
        elif pool == "text":
            del self.texts[first:]
            self.texts += text.decoded(starts, data, flags)
        elif pool == "track":
            del self._tracks[first:], self._track_threads[first:]
            tracks = [self._track(*key) for key in struct.iter_unpack("<4i", data)]
            self._tracks += self._numbers.tracks.of(tracks)
            self._track_threads += [track[3] for track in tracks]
        elif pool == "category":
            self.categories += text.decoded(starts, data, flags)
        elif pool == "process":
            self._processes += text.decoded(starts, data, flags)
        elif pool == "thread":
            for raw, flag in zip(text.pieces(starts, data), bytes(flags), strict=True):
                (process,) = struct.unpack_from("<i", raw)
                key = (self._processes[process], text.string(raw[4:], flag))
                known = self._state.threads
                self._thread_keys.append(key)
                self.threads.append(known.setdefault(key, len(known)))

    def _track(
        self, category: int, thread: int, stream: int, device: int
    ) -> tuple[int, int, str, int, int | None, str | None]:
        """A track as its table has it. Only work on the device has a device and a stream; without
        one of its own it is placed by its process and thread."""
        kind = category_of(self.categories[category])
        place: tuple[int | None, str | None] = (None, None)
        if kind in GPU_WORK:
            pid, tid = self._thread_keys[thread]
            place = (
                device if device != _NO_DEVICE else _whole(pid),
                self.texts[stream] if stream >= 0 else tid,
            )
        return (self._state.rank, self._file_id, kind, self.threads[thread], *place)

    def names_of(self, numbers: pa.Array) -> pa.Array:
        """The ids of names."""
        return pa.array(self._names, pa.int32()).take(numbers)

    def signatures_of(self, numbers: pa.Array) -> pa.Array:
        """The ids of signatures."""
        return pa.array(self._signatures, pa.int32()).take(numbers)

    def tracks_of(self, numbers: pa.Array) -> tuple[pa.Array, pa.Array]:
        """The ids of tracks, and of the threads that they are of."""
        tracks = pa.array(self._tracks, pa.int32()).take(numbers)
        return tracks, pa.array(self._track_threads, pa.int32()).take(numbers)

    def threads_of(self, numbers: pa.Array) -> pa.Array:
        """The ids of threads."""
        return pa.array(self.threads, pa.int32()).take(numbers)

    def texts_of(self, numbers: pa.Array) -> pa.Array:
        """Texts."""
        return pa.array(self.texts, pa.string()).take(numbers)

    def categories_of(self, numbers: pa.Array) -> pa.Array:
        """Categories as the file calls them."""
        return pa.array(self.categories, pa.string()).take(numbers)


def _whole(value: str) -> int | None:
    number = int(value) if value.isascii() and value.lstrip("-").isdigit() else None
    return number if number is not None and abs(number) < 1 << 31 else None
