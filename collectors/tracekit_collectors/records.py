"""The run directory: file names, record types and format version. Standard library only.

    DIR/run.json                            how the command was run and how it ended; where several
                                            nodes share DIR, run.HOST.PID.json of each
    DIR/rank-RANK.HOST.PID.json             manifest of one rank
    DIR/rank-RANK.HOST.PID.trace.json.gz    its torch.profiler trace; of further windows
                                            rank-RANK.HOST.PID.trace-N.json.gz
    DIR/rank-RANK.HOST.PID.memory.pickle.gz its CUDA memory snapshot; of further windows
                                            rank-RANK.HOST.PID.memory-N.pickle.gz
    DIR/nvml.HOST.PID.arrows                telemetry of one node: see telemetry.py
    DIR/nvml.HOST.PID.json                  the GPUs of that node
    DIR/tracekit.log                        what the collectors had to say
    DIR/rank-RANK.HOST.PID.progress         how far it is, while it runs
    DIR/trigger, DIR/asked-N.json           a window that somebody asks for, and what came of it

Every file is written by one process, under a name that no other process uses, and appears under
that name only when it is whole; only telemetry grows, so that a run in progress can be followed.
Times are integer ns since the Unix epoch, sizes are bytes.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import socket
import zlib
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

FORMAT_VERSION = 2
RUN_FILE = "run.json"
LOG_FILE = "tracekit.log"
TRIGGER_FILE = "trigger"

_BOOT = Path("/proc/sys/kernel/random/boot_id")
_PROCESSES = Path("/proc/self/ns/pid")

ACTION_PREFIX = "tracekit.action"


def action_name(
    kind: str, stage: int, chunk: int, virtual_stage: int | None, microbatch: int
) -> str:
    """The annotation that marks one pipeline action in a trace.

    The data stand in the name, since the second argument of ``record_function`` is lost.
    """
    virtual = "" if virtual_stage is None else f" vstage={virtual_stage}"
    return f"{ACTION_PREFIX} {kind} stage={stage} chunk={chunk}{virtual} mb={microbatch}"


@dataclass(slots=True)
class StateBytes:
    """Model state of one category and dtype, local to the rank."""

    moment: str  # start, end (of the captured window)
    category: str  # params, grads, optimizer, padding
    dtype: str
    elements: int
    bytes: int


@dataclass(slots=True)
class MeshDim:
    """Where a rank stands along one named dimension of the device mesh."""

    dim: str
    coord: int
    size: int
    ranks: list[int]


@dataclass(slots=True)
class WindowRecord:
    """One window of a rank."""

    steps: list[int] = field(default_factory=list)  # recorded, by number
    # File name in the run directory. A process that was killed may have left it without the .gz.
    trace: str | None = None
    # What the window took of the training's time: start, stop, which holds export, free and
    # snapshot. pack is beside it.
    cost_ns: dict[str, int] = field(default_factory=dict)
    # On CUDA the snapshot of the memory history: file (name in the run directory), bytes,
    # max_entries; or missing: why there is none.
    memory: dict[str, Any] | None = None
    # On CUDA, step -> allocated and reserved, bytes at most; or missing: why.
    peaks: dict[str, dict[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class RankManifest:
    """What one rank says of its capture."""

    rank: int
    world_size: int
    local_rank: int
    host: str
    pid: int
    device_kind: str
    device_name: str | None = None
    device_bytes: int | None = None
    # Which GPU of the node it is: as torch numbers it, its UUID and PCI address as far as torch
    # tells them, and the environment that decides what torch sees.
    device_index: int | None = None
    device_uuid: str | None = None
    device_pci: str | None = None
    visible_devices: str | None = None  # CUDA_VISIBLE_DEVICES
    device_order: str | None = None  # CUDA_DEVICE_ORDER
    state: str = "started"  # started, finished, or "incomplete: WHY"
    torch_version: str = ""
    step_source: str = ""  # what the steps were counted by
    steps_seen: int = 0
    schedule: dict[str, Any] = field(default_factory=dict)  # as asked for: see options.Options
    windows: list[WindowRecord] = field(default_factory=list)
    cut_step: int | None = None  # a step that the last window holds a part of: it counts as none
    notes: dict[str, Any] = field(default_factory=dict)
    mesh: list[MeshDim] = field(default_factory=list)
    pipeline: dict[str, Any] = field(default_factory=dict)  # schedule, stages, microbatches
    # At the start and the end of the first window.
    model_state: list[StateBytes] = field(default_factory=list)
    # Gradient storage at each step's end, step -> [[address, bytes], ...].
    grads: dict[str, list[list[int]]] = field(default_factory=dict)
    # Bytes of gathered (unsharded) parameters as they came and went: [[time_ns, bytes], ...].
    gathered: list[list[int]] = field(default_factory=list)
    # Where the program itself exported traces to, whether they are still there or not.
    own_traces: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    format: int = FORMAT_VERSION


def stem(rank: int) -> str:
    """Start of the names of this process's files: no other process can use it."""
    return f"rank-{rank}.{host_name()}.{os.getpid()}"


def host_name() -> str:
    """The name of this machine, as it stands in names of files: beside a process's number it is
    of one process in the world.

    Machines may have one name (images, containers), and containers of a machine count their
    processes apart: what tells them from each other is added, as a checksum.
    """
    name = re.sub(r"[^A-Za-z0-9-]", "-", socket.gethostname()) or "host"
    return f"{name}-{zlib.crc32(_machine().encode()):08x}"


def _machine() -> str:
    """Which boot of which machine this is, and within it which container's count of processes."""
    said = []
    with contextlib.suppress(OSError):
        said.append(_BOOT.read_text(encoding="ascii"))
    with contextlib.suppress(OSError):
        said.append(str(_PROCESSES.readlink()))
    return "".join(said)


def manifest_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.json"


def trace_path(directory: Path, name: str, window: int) -> Path:
    """Where the trace of a window is exported to; packed, its name has ``.gz`` added to it."""
    number = f"-{window}" if window else ""
    return directory / f"{name}.trace{number}.json"


def memory_path(directory: Path, name: str, window: int) -> Path:
    """Where the snapshot of a window's memory history goes."""
    number = f"-{window}" if window else ""
    return directory / f"{name}.memory{number}.pickle.gz"


def is_packed_already(path: Path) -> bool:
    """Whether a trace was packed by a process that was killed before it could remove this one."""
    ours = re.fullmatch(r"rank-\d+\..*\.trace(-\d+)?\.json", path.name)
    return bool(ours) and path.with_name(f"{path.name}.gz").exists()


def is_snapshot_of_ours(name: str) -> bool:
    """Whether a file of this name is a rank's memory snapshot."""
    return bool(re.fullmatch(r"rank-\d+\..*\.memory(-\d+)?\.pickle(\.gz)?", name))


def run_path(directory: Path, *, shared: bool) -> Path:
    """Where a wrapper says what it runs; ``shared``: other nodes do so in the same directory."""
    return directory / (f"run.{host_name()}.{os.getpid()}.json" if shared else RUN_FILE)


def is_run_file(name: str) -> bool:
    return bool(re.fullmatch(r"run(\..+\.\d+)?\.json", name))


def progress_path(directory: Path, name: str) -> Path:
    return directory / f"{name}.progress"


def asked_path(directory: Path, number: int) -> Path:
    return directory / f"asked-{number}.json"


def is_asked_file(name: str) -> bool:
    return bool(re.fullmatch(r"asked-\d+\.json", name))


def is_ours(name: str) -> bool:
    """Whether a file of this name is one that a run directory consists of."""
    return name in (RUN_FILE, LOG_FILE, TRIGGER_FILE) or bool(
        re.fullmatch(
            r"\.?(rank-\d+|nvml|run|trigger|asked-\d+)\.(.*\.)?(json|gz|arrows|partial|progress)",
            name,
        )
    )


def write_json(path: Path, record: Any) -> None:
    """Write a record so that readers see the old file or the whole new one."""
    text = json.dumps(record, indent=1)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    partial.write_text(text, encoding="utf-8")
    partial.replace(path)


def manifests_in(directory: Path) -> list[Path]:
    """The manifests of a run directory."""
    return sorted(path for path in directory.glob("rank-*.json") if ".trace" not in path.name)


def write_manifest(directory: Path, name: str, manifest: RankManifest) -> None:
    write_json(manifest_path(directory, name), asdict(manifest))


def read_manifest(path: Path) -> RankManifest:
    """Read a rank's manifest; fields of a newer writer are ignored.

    Raises:
        ValueError: not a manifest of this format.
    """
    data = json.loads(path.read_text(encoding="utf-8"))
    if not isinstance(data, dict) or data.get("format") != FORMAT_VERSION or "rank" not in data:
        raise ValueError(f"not a rank manifest of format {FORMAT_VERSION}")
    known = _known(RankManifest, data)
    known["mesh"] = [MeshDim(**_known(MeshDim, item)) for item in known.get("mesh", [])]
    states = known.get("model_state", [])
    known["model_state"] = [StateBytes(**_known(StateBytes, item)) for item in states]
    windows = known.get("windows", [])
    known["windows"] = [WindowRecord(**_known(WindowRecord, item)) for item in windows]
    return RankManifest(**known)


def _known(cls: Any, data: Any) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise ValueError(f"{cls.__name__}: not an object")
    return {name: data[name] for name in cls.__dataclass_fields__ if name in data}
