"""Small runs for the tests of the TUI, row by row, with answers that can be worked by hand."""

from collections.abc import Callable
from pathlib import Path

from tracekit.store import Writer
from tracekit.store.store import create

BASE = 1_700_000_000_000_000_000
US = 1_000
MS = 1_000_000

# Names that would be markup, if anything took them for it.
GEMM = "gemm [memory] [/]"
REDUCE = "[0] nccl[bold]AllReduce"
COPY = "Memcpy HtoD (Pinned -> Device)"
_NAMES = (GEMM, REDUCE, COPY)


def built(make: Callable[[Path], Path], tmp_path: Path) -> Path:
    """The run of a builder, built once a session: the TUI only reads."""
    path = tmp_path.parent / f"tui-{make.__name__}" / "run.db"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        make(path)
    return path


def empty(path: Path) -> Path:
    """A store without a row."""
    with create(path):
        pass
    return path


def _rank(writer: Writer, rank: int, world: int, evidence: str = "kernel", **more: object) -> None:
    values: dict[str, object] = {
        "rank": rank,
        "world_size": world,
        "host": f"node{rank}",
        "evidence": evidence,
        "backend": "nccl",
        "device_kind": "cuda",
        "device_name": "NVIDIA H100 [SXM]",
    } | more
    marks = ", ".join("?" * len(values))
    writer.execute(
        f"INSERT INTO rank ({', '.join(values)}) VALUES ({marks})", list(values.values())
    )
    writer.insert("track", [(rank, rank, 0, "kernel", None, None, "7")])


def _clock(domain: str, offset_ns: int, aligned: bool, note: str) -> dict[str, object]:
    return {
        "clock_domain": domain,
        "clock_offset_ns": offset_ns,
        "clock_spread_ns": 0,
        "clock_samples": 9,
        "clock_aligned": aligned,
        "clock_note": note,
    }


def _work(
    writer: Writer, rank: int, number: int, kind: str, start: int, end: int, step: int
) -> None:
    comm = kind == "communication"
    name = {"compute": 0, "communication": 1, "memory": 2}[kind]
    writer.execute(
        "INSERT INTO slice (track_id, event_id, name_id, ts_ns, dur_ns) VALUES (?, ?, ?, ?, ?)",
        [rank, number, name, start, end - start],
    )
    writer.execute(
        "INSERT INTO work (rank, event_id, class, start_ns, end_ns, step, stream, dim, operation) "
        "VALUES (?, ?, ?, ?, ?, ?, '7', ?, ?)",
        [
            rank,
            number,
            kind,
            start,
            end,
            step,
            "dp" if comm else None,
            "allreduce" if comm else None,
        ],
    )


def plain(path: Path, ranks: int = 2, world: int = 3) -> Path:
    """Ranks with two steps of 100 us each.

    In each step: compute 0-60, communication 50-90, copies 90-95 (us). So of 100 us: compute
    alone 50, overlapped 10, exposed 90-60 = 30, copies 5, idle 5. Each rank's clock is rank * 1 us
    ahead.
    """
    with create(path) as writer:
        writer.insert("name", list(enumerate(_NAMES)))
        writer.insert(
            "note",
            [
                (None, "command", '["train.py", "--name", "[red]x[/]"]', "run.json"),
                (0, "problem", "allocator history [truncated]", "manifest"),
            ],
        )
        for rank in range(ranks):
            ahead, aligned = rank * US, rank != 1
            note = "ok" if aligned else "not aligned: why"
            _rank(writer, rank, world, **_clock(f"node{rank}", ahead, aligned, note))
            for step in (5, 6):
                at = BASE + (step - 5) * 100 * US + ahead
                writer.execute(
                    "INSERT INTO step VALUES (?, ?, ?, ?, ?, ?)",
                    [rank, step, at, at + 100 * US, at, at + 100 * US],
                )
                number = (step - 5) * 3
                _work(writer, rank, number, "compute", at, at + 60 * US, step)
                _work(writer, rank, number + 1, "communication", at + 50 * US, at + 90 * US, step)
                _work(writer, rank, number + 2, "memory", at + 90 * US, at + 95 * US, step)
    return path


# GPipe, two stages, two micro-batches, 10 ms an action: (stage, kind, micro-batch, start).
# stage 0   F0 F1 .  .  B0 B1
# stage 1   .  F0 F1 B0 B1 .
# Window 60 ms, busy 40, bubble 20 of each stage: 1/3 = (p-1)/(m+p-1).
_GPIPE = (
    (0, "F", 0, 0),
    (0, "F", 1, 10),
    (0, "B", 0, 40),
    (0, "B", 1, 50),
    (1, "F", 0, 10),
    (1, "F", 1, 20),
    (1, "B", 0, 30),
    (1, "B", 1, 40),
)


def pipeline(path: Path) -> Path:
    """Two paced stages on the CPU, one step of GPipe."""
    with create(path) as writer:
        writer.insert("name", list(enumerate(_NAMES)))
        writer.insert("note", [(0, "pace_ms", "10", "manifest"), (1, "pace_ms", "10", "manifest")])
        for rank in (0, 1):
            _rank(
                writer,
                rank,
                2,
                "operator",
                backend="gloo",
                device_kind="cpu",
                device_name=None,
                schedule="ScheduleGPipe",
                stages=2,
                microbatches=2,
                host="here",
                **_clock("here", 0, True, "ok"),
            )
            writer.execute(
                "INSERT INTO step VALUES (?, 1, ?, ?, ?, ?)",
                [rank, BASE, BASE + 60 * MS, BASE, BASE + 60 * MS],
            )
        for stage, kind, microbatch, start in _GPIPE:
            at = BASE + start * MS
            writer.execute(
                "INSERT INTO action VALUES (?, 1, ?, ?, 0, ?, 0, ?, ?, ?, ?)",
                [stage, kind, stage, microbatch, at, at + 10 * MS, at, at + 10 * MS],
            )
            writer.execute(
                "INSERT INTO work (rank, class, start_ns, end_ns, step, in_action) "
                "VALUES (?, 'compute', ?, ?, 1, true)",
                [stage, at, at + 10 * MS],
            )
    return path
