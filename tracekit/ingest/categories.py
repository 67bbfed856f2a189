"""Categories of events: one for what the writers of traces call by several names."""

from __future__ import annotations

CATEGORIES = {
    "kernel": "kernel",
    "gpu_memcpy": "gpu_memcpy",
    "memcpy": "gpu_memcpy",
    "gpu_memset": "gpu_memset",
    "memset": "gpu_memset",
    "cpu_op": "cpu_op",
    "operator": "cpu_op",
    "user_annotation": "annotation",
    "gpu_user_annotation": "gpu_annotation",
    "cuda_driver": "runtime",
    "runtime": "runtime",
    "cuda_sync": "sync",
    "overhead": "overhead",
    "python_function": "python",
}
GPU_WORK = ("kernel", "gpu_memcpy", "gpu_memset")


def category_of(name: str) -> str:
    """The category of the store for one of a trace: writers differ in names and in case."""
    lower = name.lower()
    return CATEGORIES.get(lower) or ("runtime" if lower.endswith("_runtime") else "other")
