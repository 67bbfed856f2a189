"""A process that reads trace files: tasks in on stdin, frames out on stdout.

A task is a line of JSON; the worker answers with a ``begin`` frame that holds the file's hash, and
reads the file when the next line says ``go``. A frame is the length of its JSON head (8 bytes), the
head, and the buffers whose sizes the head lists. It runs beside the process that writes the
database, so that a file that kills its reader costs an error with a name and not the ingest's own
process; and it imports little, so that starting it costs little.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import struct
import sys
from pathlib import Path
from typing import Any, BinaryIO

from tracekit.errors import TracekitError
from tracekit.ingest.reading import Buffer, Reading


def _send(out: BinaryIO, head: dict[str, Any], buffers: list[Buffer]) -> None:
    packed = json.dumps(head | {"sizes": [len(buffer) for buffer in buffers]}).encode()
    out.write(struct.pack("<q", len(packed)) + packed)
    for buffer in buffers:
        out.write(buffer)
    out.flush()


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    """Serve until stdin ends, or nobody reads."""
    # Ctrl-C reaches the whole group; the parent ends its workers itself.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    out = os.fdopen(os.dup(1), "wb", buffering=1 << 16)
    os.dup2(2, 1)  # whatever else prints must not end up among the frames
    try:
        for line in sys.stdin:
            _serve(out, json.loads(line))
    except BrokenPipeError:
        os._exit(1)


def _serve(out: BinaryIO, task: dict[str, Any]) -> None:
    path = Path(os.fsdecode(bytes.fromhex(task["path"])))
    try:
        _send(out, {"frame": "begin", "sha256": _hash(path)}, [])
        if sys.stdin.readline().strip() != "go":
            return
        reading = Reading(
            path,
            lambda head, buffers: _send(out, head, buffers),
            keep_args=task["keep_args"],
            rows=task["rows"],
        )
        reading.run()
    except BrokenPipeError:
        raise
    except TracekitError as error:
        _send(out, {"frame": "error", "text": str(error), "debug": ""}, [])
    except OSError as error:
        text = f"{path}: cannot be read: {error.strerror or error}"
        _send(out, {"frame": "error", "text": text, "debug": ""}, [])
    except MemoryError:
        text = f"{path}: the process that read it had no more memory"
        _send(out, {"frame": "error", "text": text, "debug": ""}, [])
    except Exception as error:  # noqa: BLE001 - a fault of ours, to be told with the file's name
        import traceback

        text = f"{path}: cannot be read: {type(error).__name__}: {error}"
        _send(out, {"frame": "error", "text": text, "debug": traceback.format_exc()}, [])


if __name__ == "__main__":
    main()
