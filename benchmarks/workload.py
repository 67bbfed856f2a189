"""What the generated trace is a trace of: a transformer trained data-parallel on 8 GPUs.

The calls of each step follow from its number alone, so that no two steps are held at once.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

LAYERS = 96
PID, MAIN, AUTOGRAD, COMM_STREAM = 6583, 6583, 6702, 20
BEGIN_NS, STEP_NS = 1_365_627_862_814_773, 480_000_000


class Op(NamedTuple):
    """An operator of a layer: what calls it, what it calls, what it launches."""

    module: str
    source: str
    name: str
    inner: str
    kernel: str
    gpu_ns: int
    rows: int
    columns: int


_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_{}_n_tilesize{}x64_warpgroupsize1x1x1_execute_segment"
_POINTWISE = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::{0}, std::array<char*, {1}ul> >"
    "(int, at::native::{0}, std::array<char*, {1}ul>)"
)
_NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_{}<c10::BFloat16, float>(int)"
)
_FLASH = "void pytorch_flash::flash_{}_kernel<Flash_traits<128, 128, 64, 4, false, cutlass::bf16>>"
_ADD = _POINTWISE.format("CUDAFunctor_add<c10::BFloat16>", 3)
_GELU = _POINTWISE.format("GeluCUDAKernelImpl(at::TensorIteratorBase&)::{{lambda(float)#1}}", 2)
FORWARD = (
    Op("LayerNorm", "normalization.py(217)", "aten::layer_norm", "aten::native_layer_norm",
       _NORM.format("kernel"), 14_000, 8192, 4096),
    Op("Linear", "linear.py(125)", "aten::linear", "aten::addmm", _GEMM.format("tn", 128),
       161_000, 4096, 12288),
    Op("Attention", "attention.py(88)", "aten::scaled_dot_product_attention",
       "aten::_flash_attention_forward", _FLASH.format("fwd"), 118_000, 8192, 4096),
    Op("Linear", "linear.py(125)", "aten::linear", "aten::addmm", _GEMM.format("tn", 256),
       57_000, 4096, 4096),
    Op("Residual", "block.py(41)", "aten::add", "aten::empty", _ADD, 9_000, 8192, 4096),
    Op("Linear", "linear.py(125)", "aten::linear", "aten::addmm", _GEMM.format("tn", 192),
       212_000, 4096, 16384),
    Op("GELU", "activation.py(734)", "aten::gelu", "aten::empty", _GELU, 21_000, 8192, 16384),
)  # fmt: skip
BACKWARD = tuple(
    op._replace(name=f"{name}Backward0", inner=inner, kernel=kernel, gpu_ns=2 * op.gpu_ns)
    for op, name, inner, kernel in zip(
        reversed(FORWARD),
        ("Gelu", "Addmm", "Add", "Addmm", "FlashAttention", "Addmm", "NativeLayerNorm"),
        ("aten::gelu_backward", "aten::mm", "aten::sum", "aten::mm",
         "aten::_flash_attention_backward", "aten::mm", "aten::native_layer_norm_backward"),
        (_GELU, _GEMM.format("nt", 128), _ADD, _GEMM.format("nt", 256), _FLASH.format("bwd"),
         _GEMM.format("nn", 192), _NORM.format("grad_input_kernel")),
        strict=True,
    )
)  # fmt: skip
REDUCE = Op("DDP", "distributed.py(1637)", "nccl:all_reduce", "record_param_comms",
            "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)",
            1_400_000, 1, 50_331_648)  # fmt: skip


class Call(NamedTuple):
    """One operator at work: where and when."""

    op: Op
    layer: int
    number: int  # within the file
    back: bool
    cpu_ns: int
    gpu_ns: int
    gpu_dur_ns: int
    noise: int  # 64 random bits


def calls_of(step: int) -> Iterator[Call]:
    """What one step launches: forward, backward with a reduction a layer, each stream in order."""
    rng = random.Random(step)
    begin = BEGIN_NS + step * STEP_NS
    layers: list[tuple[int, bool, tuple[Op, ...]]]
    layers = [(layer, False, FORWARD) for layer in range(LAYERS)]
    layers += [(layer, True, (*BACKWARD, REDUCE)) for layer in reversed(range(LAYERS))]
    number = step * sum(len(ops) for _, _, ops in layers)
    cpu, free = begin + 90_000, {7: begin, COMM_STREAM: begin}
    for layer, back, ops in layers:
        for op in ops:
            noise = rng.getrandbits(64)
            stream = COMM_STREAM if op is REDUCE else 7
            start = max(cpu + 40_000 + noise % 3_001, free[stream] + 800 + noise % 701)
            busy = op.gpu_ns + noise % (op.gpu_ns >> 3)
            yield Call(op, layer, number, back, cpu, start, busy, noise)
            free[stream] = start + busy
            cpu += 42_000 + noise % 6_007
            number += 1
