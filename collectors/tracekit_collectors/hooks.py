"""Zero-edit hooks: act when torch is imported, in the processes that step an optimizer.

Every Python child of the wrapped command loads this module: it imports next to nothing, and what
needs torch is loaded after torch. A hook never raises into the program it watches.
"""

from __future__ import annotations

import os
import sys

TYPE_CHECKING = False  # as of typing, which costs a child 1.5 ms, and importlib.abc 9
if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from importlib.machinery import ModuleSpec
    from types import ModuleType
    from typing import Any


class _AfterImport:
    """Calls back once after the import of each module it waits for, then goes away."""

    def __init__(self, callbacks: dict[str, Callable[[ModuleType], None]]) -> None:
        self._callbacks = callbacks

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in self._callbacks:
            return None
        spec = None
        for finder in list(sys.meta_path):
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    break
        if spec is not None and spec.loader is not None:
            self._call_after(spec.loader, fullname)
        return spec

    def _call_after(self, loader: Any, fullname: str) -> None:
        """Call back when the loader has executed the module; the loader's type stays.

        Finding is not importing: transformers and others only look whether torch is there.
        """
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            execute(module)
            callback = self._callbacks.pop(fullname, None)
            if callback is not None:
                quietly(callback, module)
            if not self._callbacks and self in sys.meta_path:
                sys.meta_path.remove(self)

        loader.exec_module = exec_module


def quietly(function: Callable[..., Any], *args: Any) -> None:
    """Call, and turn any error into a line of the log: the program must not notice."""
    try:
        function(*args)
    except Exception as error:  # noqa: BLE001 - whatever it is, training goes on
        from tracekit_collectors import log

        log.write(f"{getattr(function, '__name__', function)}: {type(error).__name__}: {error}")


_armed = False


def arm() -> None:
    """Wait for torch, or take it as it is. A second call or one in a forked child does nothing."""
    global _armed
    if _armed:
        return
    _armed = True
    waiting = {
        "torch": _after_torch,
        "torch.autograd.profiler_legacy": _watch_legacy,
        "torch.distributed.device_mesh": _with("patches", "device_mesh"),
        "torch.distributed.pipelining.stage": _with("patches", "pipeline_stage"),
        "torch.distributed.pipelining.schedules": _with("patches", "pipeline_schedule"),
        "torch.distributed.fsdp._fully_shard._fsdp_param": _with("patches", "fsdp_param"),
        "torch.nn.parallel.distributed": _with("patches", "data_parallel"),
        "deepspeed.runtime.engine": _with("patches", "deepspeed_engine"),
    }
    for name in [name for name in waiting if name in sys.modules]:
        quietly(waiting.pop(name), sys.modules[name])
    finder = _AfterImport(waiting)
    sys.meta_path.insert(0, finder)

    def disarm() -> None:
        # A forked child (data loader, compile worker) has our state but is no rank.
        if finder in sys.meta_path:
            sys.meta_path.remove(finder)
        capture = sys.modules.get("tracekit_collectors.capture")
        if capture is not None:
            capture.forget()

    os.register_at_fork(after_in_child=disarm)


def _with(module: str, function: str) -> Callable[[ModuleType], None]:
    def callback(loaded: ModuleType) -> None:
        import importlib

        patches = importlib.import_module(f"tracekit_collectors.{module}")
        getattr(patches, function)(loaded)

    return callback


def _after_torch(torch: ModuleType) -> None:
    """Count steps by the public hooks that every optimizer calls."""
    from torch.optim.optimizer import (
        register_optimizer_step_post_hook,
        register_optimizer_step_pre_hook,
    )

    # Ids of the optimizers that are stepping, outermost first: one may step others inside
    # (ZeroRedundancyOptimizer). A step that raises runs no post hook and leaves its entry behind,
    # which its next step, or the end of an outer one, clears away.
    stepping: list[int] = []

    def before(optimizer: Any, args: Any, kwargs: Any) -> None:
        if id(optimizer) in stepping:
            del stepping[stepping.index(id(optimizer)) :]
        stepping.append(id(optimizer))

    def after(optimizer: Any, args: Any, kwargs: Any) -> None:
        if id(optimizer) in stepping:
            del stepping[stepping.index(id(optimizer)) :]
        in_backward = torch._C._current_graph_task_id() != -1
        if in_backward:
            quietly(_watch_backward, torch)
        quietly(_stepped, optimizer, not stepping, in_backward)

    for hook in (before, after):
        # What torch.compiler.disable sets, without importing the compiler: a compiled optimizer
        # step must not trace into us.
        hook._torchdynamo_disable = True  # type: ignore[attr-defined]
    register_optimizer_step_pre_hook(before)
    register_optimizer_step_post_hook(after)
    quietly(_watch_profilers, torch)
    quietly(_with("own_traces", "watch"), torch)


def _watch_profilers(torch: ModuleType) -> None:
    """There is one profiler in a process: when the program starts its own, ours ends first."""
    profiler = torch.autograd.profiler
    _aside_before(profiler.profile, "_prepare_trace")
    for name in ("emit_itt", "emit_nvtx"):
        if hasattr(profiler, name):
            _aside_before(getattr(profiler, name), "__enter__")


def _watch_legacy(module: ModuleType) -> None:
    _aside_before(module.profile, "__enter__")


def _aside_before(cls: Any, name: str) -> None:
    original = getattr(cls, name)

    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        quietly(_step_aside)
        return original(self, *args, **kwargs)

    setattr(cls, name, method)


_watched: list[ModuleType] = []


def _watch_backward(torch: ModuleType) -> None:
    """Only once an optimizer has stepped within a backward pass: others are not touched."""
    if _watched:
        return
    import functools

    _watched.append(torch)
    original = torch.autograd.backward

    @functools.wraps(original)
    def backward(*args: Any, **kwargs: Any) -> Any:
        result = original(*args, **kwargs)
        quietly(_backward_ended)
        return result

    torch.autograd.backward = backward


def _step_aside() -> None:
    from tracekit_collectors import capture

    capture.current().step_aside()


def _backward_ended() -> None:
    from tracekit_collectors import capture

    capture.current().backward_ended()


def _stepped(optimizer: Any, outermost: bool, in_backward: bool) -> None:
    from tracekit_collectors import capture

    capture.current().optimizer_stepped(optimizer, outermost=outermost, in_backward=in_backward)
