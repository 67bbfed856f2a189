"""Exact bytes of the model state that a rank holds, counted from its own optimizers."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any

from tracekit_collectors.records import StateBytes


def model_state(optimizers: Iterable[Any], moment: str) -> list[StateBytes]:
    """Parameters, gradients and optimizer state by dtype: local shards, each tensor once."""
    sizes: dict[tuple[str, str], list[int]] = defaultdict(lambda: [0, 0])
    seen: set[int] = set()
    storages: dict[int, int] = {}
    exact = 0
    for category, tensor in _tensors(optimizers):
        if id(tensor) in seen:
            continue
        seen.add(id(tensor))
        size = tensor.numel() * tensor.element_size()
        entry = sizes[category, str(tensor.dtype).removeprefix("torch.")]
        entry[0] += tensor.numel()
        entry[1] += size
        if category == "params":
            storage = tensor.untyped_storage()
            storages[storage.data_ptr()] = storage.nbytes()
            exact += size
    # Shards are padded to equal size: their storage holds more than their elements.
    padding = sum(storages.values()) - exact
    if padding > 0:
        sizes["padding", "bytes"] = [padding, padding]
    return [
        StateBytes(moment, category, dtype, elements, size)
        for (category, dtype), (elements, size) in sizes.items()
    ]


def gradient_storage(optimizers: Iterable[Any]) -> list[list[int]]:
    """[address, bytes] of each storage that gradients live in."""
    found: dict[int, int] = {}
    for param in _params(optimizers):
        for part in _parts(param.grad) if param.grad is not None else ():
            storage = part.untyped_storage()
            if size := storage.nbytes():
                found[storage.data_ptr()] = size
    return [[address, size] for address, size in found.items()]


def device_kind(optimizers: Iterable[Any]) -> str:
    """Type of the device that the parameters are on: cpu, cuda, ...; without parameters that of the
    device in use."""
    import torch

    for param in _params(optimizers):
        for part in _parts(param):
            return str(part.device.type)
    return "cuda" if torch.cuda.is_initialized() else "cpu"  # type: ignore[no-untyped-call]


def _params(optimizers: Iterable[Any]) -> Iterator[Any]:
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            yield from group["params"]


def _tensors(optimizers: Iterable[Any]) -> Iterator[tuple[str, Any]]:
    import torch

    for optimizer in optimizers:
        for param in _params([optimizer]):
            yield from (("params", part) for part in _parts(param))
            if param.grad is not None:
                yield from (("grads", part) for part in _parts(param.grad))
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                if isinstance(value, torch.Tensor):
                    yield from (("optimizer", part) for part in _parts(value))


def _parts(tensor: Any) -> tuple[Any, ...]:
    """The strided tensors that hold a tensor: of a DTensor the shard of this rank, of a sparse
    one its indices and values; of layouts that tell neither, nothing."""
    import torch

    local = getattr(tensor, "_local_tensor", tensor)
    if local.layout is torch.strided:
        return (local,)
    if local.layout is torch.sparse_coo:
        return (local._indices(), local._values())
    return ()
