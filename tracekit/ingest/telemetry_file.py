"""The file of telemetry samples: an Arrow IPC stream that the wrapper of a run appends to.

One place knows how it looks, for writing and for reading. pyarrow is loaded when a file is opened:
most runs of `tracekit run` on a machine without a GPU never need it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit_collectors.telemetry import FORMAT_VERSION, PROCESSES, VALUES, Sample, Sink

if TYPE_CHECKING:
    import pyarrow as pa

_HOST = b"tracekit.host"
_FORMAT = b"tracekit.format"
_END = b"\xff\xff\xff\xff\x00\x00\x00\x00"  # of a stream that nobody adds to


class DamagedError(Exception):
    """A file ends within a batch, or holds what is no telemetry; the text says which."""


def schema(host: str) -> pa.Schema:
    """The columns of a stream, and in its metadata the host and the format version."""
    import pyarrow as pa

    process = pa.struct([("pid", pa.int64()), ("used_bytes", pa.int64())])
    columns = [(name, pa.int64()) for name in ("gpu", "ts_ns", *VALUES)]
    metadata = {_HOST: host.encode("utf-8", "replace"), _FORMAT: str(FORMAT_VERSION).encode()}
    return pa.schema([*columns, (PROCESSES, pa.list_(process))], metadata=metadata)


def open_sink(path: Path, host: str) -> Sink:
    """A new file for the samples of a host.

    Raises:
        OSError: it cannot be made.
        ImportError: pyarrow cannot be loaded.
    """
    return _Stream(path, host)


class _Stream:
    """Appends batches. Each is one write, so that a reader meets no half of one."""

    def __init__(self, path: Path, host: str) -> None:
        self._schema = schema(host)
        self._file = path.open("xb", buffering=0)
        self._is_whole = True
        self._append(self._schema.serialize())

    def write(self, samples: Sequence[Sample]) -> None:
        import pyarrow as pa

        batch = pa.RecordBatch.from_pylist(list(samples), schema=self._schema)
        self._append(batch.serialize())

    def close(self) -> None:
        with self._file:
            if self._is_whole:
                self._append(_END)

    def _append(self, data: pa.Buffer | bytes) -> None:
        self._is_whole = False
        left = memoryview(data)
        while left:  # a disk that is full takes a part, and the next write fails
            left = left[self._file.write(left) :]
        self._is_whole = True


class Reader:
    """Reads what a file holds so far, from whoever wrote it.

    Raises:
        DamagedError: it is no stream of telemetry of this format.
    """

    def __init__(self, path: Path) -> None:
        import pyarrow as pa

        try:
            self._file = pa.OSFile(str(path))
            self._stream = pa.ipc.open_stream(self._file)
            found = self._stream.schema
            metadata = found.metadata or {}
            host = metadata.get(_HOST, b"").decode()
        except (pa.ArrowException, ValueError, OSError, MemoryError) as error:
            raise DamagedError(f"no stream of telemetry: {_line(error)}") from error
        if metadata.get(_FORMAT) != str(FORMAT_VERSION).encode() or not found.equals(schema(host)):
            raise DamagedError(f"no telemetry of format {FORMAT_VERSION}")
        self.host = host

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Batch by batch, each of them sound.

        Raises:
            DamagedError: the rest cannot be read; what came before it is good.
        """
        import pyarrow as pa

        while True:
            try:
                batch = self._stream.read_next_batch()
                batch.validate(full=True)
            except StopIteration:
                return
            except (pa.ArrowException, ValueError, OSError, MemoryError) as error:
                raise DamagedError(f"ends early, or is damaged: {_line(error)}") from error
            yield batch

    def close(self) -> None:
        self._file.close()


def _line(error: BaseException) -> str:
    return " ".join(str(error).split())[:200]
