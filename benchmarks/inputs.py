"""What the contenders read: real traces copied to several ranks, and a generated large one."""

from __future__ import annotations

import gzip
import re
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from generate import write_trace

# The second byte of a gzip header's flags says how hard the compressor tried (RFC 1952, XFL).
_LEVEL = {2: 9, 4: 1}
_LEVEL_WHERE_UNSAID = 6


@dataclass(frozen=True, slots=True)
class Input:
    """A run to read: one gzipped trace a rank."""

    name: str
    files: dict[int, Path]

    @property
    def gz_bytes(self) -> int:
        return sum(path.stat().st_size for path in self.files.values())

    @property
    def json_bytes(self) -> int:
        return sum(_decompressed(path) for path in self.files.values())

    def warm(self) -> None:
        """Read every byte once, so that no contender waits for the disk."""
        for path in self.files.values():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def _decompressed(path: Path) -> int:
    """Bytes of JSON in a gzip file of one member below 4 GiB: its last four bytes say."""
    with path.open("rb") as file:
        file.seek(-4, 2)
        return int.from_bytes(file.read(4), "little")


def copies(source: Path, scratch: Path, name: str, ranks: int) -> Input:
    """A real trace as the trace of every rank of a run, packed as hard as it was."""
    packed = source.read_bytes()
    level = _LEVEL.get(packed[8], _LEVEL_WHERE_UNSAID)
    content = gzip.decompress(packed)
    found = re.search(rb'"distributedInfo"\s*:\s*\{[^{}]*', content)
    if found is None:
        raise SystemExit(f"{source}: no distributedInfo to rewrite")

    def write(rank: int, path: Path) -> None:
        said = re.sub(rb'("rank"\s*:\s*)\d+', rb"\g<1>%d" % rank, found[0])
        said = re.sub(rb'("world_size"\s*:\s*)\d+', rb"\g<1>%d" % ranks, said)
        path.write_bytes(
            gzip.compress(content[: found.start()] + said + content[found.end() :], level, mtime=0)
        )

    return Input(name, _folder(scratch / name, ranks, write))


def generated(scratch: Path, megabytes: int) -> Input:
    """One rank with about so many megabytes of JSON."""
    name = f"generated-{megabytes}"
    return Input(
        name, _folder(scratch / name, 1, lambda rank, path: write_trace(path, megabytes * 10**6))
    )


def _folder(folder: Path, ranks: int, write: Callable[[int, Path], None]) -> dict[int, Path]:
    """The files of a folder, written unless it is there: a folder that is there is whole."""
    if not folder.is_dir():
        unfinished = folder.with_name(folder.name + ".unfinished")
        shutil.rmtree(unfinished, ignore_errors=True)
        unfinished.mkdir(parents=True)
        for rank in range(ranks):
            write(rank, unfinished / f"rank{rank}.json.gz")
        unfinished.rename(folder)
    return {rank: folder / f"rank{rank}.json.gz" for rank in range(ranks)}
