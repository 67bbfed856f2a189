"""Process groups that Megatron-core and DeepSpeed keep of their own, by mesh dimension.

Read where the program has loaded them, never imported. Only what returns a group that exists is
called: some getters of DeepSpeed's make one where there is none, which is a collective.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

from tracekit_collectors import log

# What returns the group of this rank along a dimension, in the order of preference. Megatron-core's
# state, DeepSpeed's pipeline grid and what a program hands to DeepSpeed as `mpu` have some of each.
# `model` is the tensor dimension where there is no narrower name (an `mpu` without a pipeline).
_GETTERS = {
    "tp": (
        "get_tensor_model_parallel_group",
        "get_slice_parallel_group",
        "get_model_parallel_group",
    ),
    "cp": ("get_context_parallel_group", "get_sequence_parallel_group"),
    "ep": ("get_expert_model_parallel_group",),
    "pp": ("get_pipeline_model_parallel_group", "get_pipe_parallel_group"),
    "dp": ("get_data_parallel_group",),
}
# Dimensions of the mesh that DeepSpeed makes for Ulysses.
_DEEPSPEED_MESH = {"cp": "sequence_parallel", "dp": "data_parallel"}

_said: set[str] = set()


def groups() -> Iterator[tuple[str, Any]]:
    """Dimension and process group of this rank, as far as a framework has made some.

    A dimension may come twice, then the first counts. What cannot be read is a line of the log.
    """
    megatron = sys.modules.get("megatron.core.parallel_state")
    if megatron is not None:
        yield from _known_to("megatron-core", megatron)
    deepspeed = sys.modules.get("deepspeed.utils.groups")
    if deepspeed is not None:
        yield from _known_to("deepspeed mpu", vars(deepspeed).get("mpu"))
        yield from _known_to("deepspeed", deepspeed)
        yield from _of_deepspeed(vars(deepspeed))


def _known_to(name: str, state: Any) -> Iterator[tuple[str, Any]]:
    for dim, getters in _GETTERS.items():
        getter = next((found for one in getters if (found := _method(state, one))), None)
        try:
            group = None if getter is None else getter()
        except AssertionError:
            continue  # all of them say so that the group has not been made
        except Exception as error:  # noqa: BLE001 - a foreign object, in a training that goes on
            _say(f"{name}: no group of {dim}: {type(error).__name__}: {error}")
            continue
        if group is not None:
            yield dim, group


def _of_deepspeed(state: dict[str, Any]) -> Iterator[tuple[str, Any]]:
    """What it has no getter for that makes no group."""
    mesh = state.get("mesh_device")
    if mesh is not None:
        for dim, name in _DEEPSPEED_MESH.items():
            try:
                yield dim, mesh.get_group(name)
            except Exception as error:  # noqa: BLE001 - as above
                _say(f"deepspeed mesh: no group of {dim}: {type(error).__name__}: {error}")
    experts = list((state.get("_EXPERT_PARALLEL_GROUP") or {}).values())
    if len(experts) == 1:  # layers with several numbers of experts are in several dimensions
        yield "ep", experts[0]


def _method(state: Any, name: str) -> Any:
    try:
        return getattr(state, name, None)
    except Exception:  # noqa: BLE001 - a property that raises
        return None


def _say(text: str) -> None:
    """Once: the manifest is written several times."""
    if text not in _said:
        _said.add(text)
        log.write(text)
