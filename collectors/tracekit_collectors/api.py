"""What a training script may say itself: where steps end, where it stands, and what it does.

Nothing here loads torch, and outside a capture nothing here does anything that can be seen.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from tracekit_collectors import records
from tracekit_collectors.options import COLLECT_BY_DEFAULT, Options, from_environment

if TYPE_CHECKING:
    from os import PathLike

    from tracekit_collectors.capture import Capture
    from tracekit_collectors.patches import Observed

_SOURCE = "tracekit.step()"
_declared: dict[str, int] = {}


class Handle:
    """A capture that is on; see :func:`capture`."""

    def __init__(self, running: Capture) -> None:
        self._running = running

    def step(self) -> None:
        """A training step has ended."""
        self._running.step_said(_SOURCE)


@contextmanager
def capture(
    directory: str | PathLike[str],
    *,
    wait: int = 1,
    warmup: int = 1,
    active: int = 3,
    repeat: int = 1,
    every: int | None = None,
    at_steps: tuple[int, ...] = (),
    collect: tuple[str, ...] = COLLECT_BY_DEFAULT,
) -> Iterator[Handle]:
    """Capture this rank without the wrapper: ``with tracekit.capture("runs/x") as cap: ...``.

    Call ``cap.step()`` at the end of each training step, or leave it to the optimizer. Every rank
    writes its own files into ``directory``; ``tracekit ingest`` reads them. Under ``tracekit run``,
    or within another capture, that one goes on, and its directory and windows count.

    Args:
        directory: Made where it is not there.
        wait: See ``tracekit run --help``, as for all that follow.
        warmup: Steps with the profiler on and nothing kept.
        active: Steps to record.
        repeat: Windows of that kind.
        every: Record a window every so many steps instead.
        at_steps: Record a window at each of these steps instead.
        collect: What to record: torch, memory, shapes, stacks, flops.

    Raises:
        ValueError: numbers that make no window.
    """
    from tracekit_collectors import capture as captures
    from tracekit_collectors import hooks

    options = Options(wait, warmup, active, repeat, every, tuple(at_steps), tuple(collect))
    folder = Path(directory).resolve()
    with contextlib.suppress(OSError):  # the training goes on; the log and the manifest say so
        folder.mkdir(parents=True, exist_ok=True)
    hooks.arm()
    running = captures.begin(options, folder)
    try:
        yield Handle(running)
    finally:
        if from_environment() is None:
            running.end()


def step() -> None:
    """A training step has ended: for a loop whose optimizer steps do not show it.

    From the first call on nothing else ends a step. Outside a capture it does nothing.
    """
    if captures := sys.modules.get("tracekit_collectors.capture"):
        captures.current().step_said(_SOURCE)
    elif from_environment() is not None and "torch" in sys.modules:
        from tracekit_collectors import capture as found

        found.current().step_said(_SOURCE)


def annotate(name: str) -> AbstractContextManager[object]:
    """Mark what runs inside under a name, in the trace of a window that is open.

    ``with tracekit.annotate("data"): ...``
    """
    return _marked(name)


def pipeline_action(
    kind: str, *, stage: int, microbatch: int, chunk: int = 0, stages: int | None = None
) -> AbstractContextManager[object]:
    """Mark one action of a pipeline schedule: for schedules that are not torch's own.

    Put it around the computation alone: a receive inside it would count as busy.

    Args:
        kind: F (forward), B (backward), I (the gradient of the input alone) or W (of the weights).
        stage: Position in the pipeline, from 0.
        microbatch: Number of the micro-batch, from 0.
        chunk: Ordinal of the virtual stage on this position.
        stages: Virtual stages in the whole pipeline, where there are several on a position.

    Raises:
        ValueError: a kind that is none, or a number below 0.
    """
    if kind not in ("F", "B", "I", "W"):
        raise ValueError(f"a pipeline action is F, B, I or W, not {kind!r}")
    if min(stage, microbatch, chunk) < 0:
        raise ValueError("stage, chunk and microbatch are 0 or more")
    observed = _observed()
    if observed is not None and stages is not None:
        observed.pipeline["stages"] = stages
    return _marked(records.action_name(kind, stage, chunk, None, microbatch))


def declare_mesh(**sizes: int) -> None:
    """State the mesh of the run, its slowest dimension first: ``declare_mesh(pp=2, dp=4, tp=8)``.

    Neighbouring ranks differ in the last dimension: with sizes p, d, t rank r stands at
    (r // (d t), r // t % d, r % t). For frameworks that record no DeviceMesh of torch's.

    Raises:
        ValueError: a size below 1.
    """
    if bad := [dim for dim, size in sizes.items() if size < 1]:
        raise ValueError(f"dimension {bad[0]}: a size is 1 or more, not {sizes[bad[0]]}")
    _declared.clear()
    _declared.update(sizes)


def declared_mesh(rank: int, world: int) -> list[records.MeshDim]:
    """Where a rank stands in the mesh that was declared.

    Raises:
        ValueError: the sizes do not make up the world.
    """
    total = 1
    for size in _declared.values():
        total *= size
    if not _declared:
        return []
    if total != world:
        stated = " x ".join(f"{dim}={size}" for dim, size in _declared.items())
        raise ValueError(f"declared mesh {stated} has {total} ranks, the run {world}")
    found, stride = [], total
    for dim, size in _declared.items():
        stride //= size
        coord = rank // stride % size
        first = rank - coord * stride
        ranks = list(range(first, first + size * stride, stride))
        found.append(records.MeshDim(dim, coord, size, ranks))
    return found


def _observed() -> Observed | None:
    patches = sys.modules.get("tracekit_collectors.patches")
    found: Observed | None = None if patches is None else patches.observed
    return found


def _marked(name: str) -> AbstractContextManager[object]:
    observed = _observed()
    if observed is None or not observed.recording:
        return contextlib.nullcontext()
    from torch.profiler import record_function

    marked: AbstractContextManager[object] = record_function(name)
    return marked
