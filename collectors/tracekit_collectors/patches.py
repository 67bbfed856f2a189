"""Patches of torch classes: they record where a rank stands and which pipeline action runs.

Each function gets a module that has just been imported. What they wrap calls the original with
its own arguments and returns its own result.
"""

from __future__ import annotations

import contextlib
import functools
import time
import weakref
from collections.abc import Callable
from types import ModuleType
from typing import Any

from tracekit_collectors import parallel_state, records
from tracekit_collectors.hooks import quietly


class Observed:
    """What the patches have seen in this process."""

    def __init__(self) -> None:
        self.meshes: list[weakref.ref[Any]] = []
        self.groups: dict[str, Any] = {}  # dimension -> process group, where a class implies it
        self.pipeline: dict[str, Any] = {}
        self.recording = False  # whether a window is open
        self.gathered: list[list[int]] = []
        self._gathered_now: dict[int, int] = {}

    def gathering(self, owner: int, size: int) -> None:
        """The unsharded copy of one parameter came (size > 0) or went (0)."""
        if size:
            self._gathered_now[owner] = size
        else:
            self._gathered_now.pop(owner, None)
        if self.recording and len(self.gathered) < 200_000:
            self.gathered.append([time.time_ns(), sum(self._gathered_now.values())])


observed = Observed()


def _after(cls: type, name: str, watch: Callable[..., None]) -> None:
    """Let ``watch(self, *args)`` see each call of a method after it has returned."""
    original = getattr(cls, name)

    @functools.wraps(original)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        result = original(self, *args, **kwargs)
        quietly(watch, self)
        return result

    setattr(cls, name, method)


def device_mesh(module: ModuleType) -> None:
    """Remember named meshes."""

    def watch(mesh: Any) -> None:
        if getattr(mesh, "mesh_dim_names", None):
            observed.meshes.append(weakref.ref(mesh))

    if hasattr(module, "DeviceMesh"):
        _after(module.DeviceMesh, "__init__", watch)


def data_parallel(module: ModuleType) -> None:
    """DistributedDataParallel: its group is the data-parallel dimension."""

    def watch(model: Any) -> None:
        observed.groups.setdefault("dp", model.process_group)

    _after(module.DistributedDataParallel, "__init__", watch)


def fsdp_param(module: ModuleType) -> None:
    """FSDP2: its shard group, and how many bytes are gathered at each moment."""

    def sharded(param: Any) -> None:
        observed.gathering(id(param), 0)
        group = getattr(param.mesh_info, "shard_process_group", None)
        if group is not None:
            observed.groups.setdefault("dp", group)

    def unsharded(param: Any) -> None:
        size = sum(t.numel() * t.element_size() for t in param.all_gather_outputs)
        observed.gathering(id(param), size)

    _after(module.FSDPParam, "to_sharded", sharded)
    _after(module.FSDPParam, "to_unsharded", unsharded)


def pipeline_schedule(module: ModuleType) -> None:
    """The class of the schedule and its micro-batches."""

    def watch(schedule: Any) -> None:
        observed.pipeline["schedule"] = type(schedule).__name__
        observed.pipeline["microbatches"] = int(schedule._n_microbatches)

    _after(module._PipelineSchedule, "__init__", watch)


def pipeline_stage(module: ModuleType) -> None:
    """Mark each action of a stage. Receives come before the methods: the marks hold none."""

    def watch(stage: Any) -> None:
        observed.pipeline["stages"] = int(stage.num_stages)
        if stage.group is not None:
            observed.groups["pp"] = stage.group
        _mark(stage, "forward_one_chunk", "fwd_chunk_id", lambda args, kwargs: "F")
        _mark(stage, "backward_one_chunk", "bwd_chunk_id", _backward_kind)
        _mark(stage, "backward_weight_one_chunk", "bwd_chunk_id", lambda args, kwargs: "W")

    _after(module._PipelineStageBase, "__init__", watch)


def deepspeed_engine(module: ModuleType) -> None:
    """DeepSpeed steps the wrapped optimizer once a group or sub-group: its engine knows."""
    from tracekit_collectors import capture

    source = "DeepSpeed's engine"

    def made(engine: Any) -> None:
        capture.current().expect(source)
        group = getattr(engine, "data_parallel_group", None)
        if group is not None:
            observed.groups.setdefault("dp", group)

    def stepped(engine: Any) -> None:
        capture.current().step_said(source)

    _after(module.DeepSpeedEngine, "__init__", made)
    _after(module.DeepSpeedEngine, "_take_model_step", stepped)


def _backward_kind(args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
    full = kwargs.get("full_backward", args[2] if len(args) > 2 else True)
    return "B" if full else "I"


def _mark(
    stage: Any,
    name: str,
    microbatch: str,
    kind_of: Callable[[tuple[Any, ...], dict[str, Any]], str],
) -> None:
    """Wrap the method on the instance: overrides of a subclass are inside the mark."""
    from torch.profiler import record_function

    original = getattr(stage, name)
    virtual = int(stage.stage_index)
    position, positions = int(stage.group_rank), int(stage.group_size)

    @functools.wraps(original)
    def method(*args: Any, **kwargs: Any) -> Any:
        if not observed.recording:
            return original(*args, **kwargs)
        number = args[0] if args else kwargs.get(microbatch, -1)
        label = records.action_name(
            kind_of(args, kwargs), position, virtual // positions, virtual, int(number)
        )
        with record_function(label):
            return original(*args, **kwargs)

    setattr(stage, name, method)


def mesh_dims(rank: int) -> list[records.MeshDim]:
    """The mesh coordinates of this rank: from named meshes, else from what a framework says of its
    groups, else from what classes imply."""
    import torch.distributed as dist

    found: dict[str, records.MeshDim] = {}

    def add(dim: str, group: Any) -> None:
        ranks = dist.get_process_group_ranks(group)
        if rank in ranks:
            found.setdefault(dim, records.MeshDim(dim, ranks.index(rank), len(ranks), list(ranks)))

    if not (dist.is_available() and dist.is_initialized()):
        return []
    # A mesh that this rank is not in, or a group that has been destroyed, tells nothing.
    for reference in observed.meshes:
        mesh: Any = reference()
        for name in (mesh.mesh_dim_names or ()) if mesh is not None else ():
            with contextlib.suppress(Exception):
                add(name, mesh.get_group(name))
    for dim, group in (*parallel_state.groups(), *observed.groups.items()):
        with contextlib.suppress(Exception):
            add(dim, group if group is not None else dist.group.WORLD)
    return list(found.values())
