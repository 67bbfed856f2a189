"""Memory snapshots as torch.cuda.memory pickles them, small and by hand."""

from __future__ import annotations

import gzip
import pickle
from pathlib import Path
from typing import Any

BASE_US = 1_700_000_000_000_000
GIB = 1 << 30


def frame(name: str, file: str = "/home/me/train.py", line: int = 7) -> dict[str, Any]:
    return {"name": name, "filename": file, "line": line}


def entry(action: str, address: int, size: int, at: int, *frames: dict[str, Any]) -> dict[str, Any]:
    """``at``: microseconds since the first."""
    return {
        "action": action,
        "addr": address,
        "size": size,
        "stream": 0,
        "time_us": BASE_US + at,
        "frames": list(frames),
    }


def block(
    address: int,
    size: int,
    state: str = "active_allocated",
    *frames: dict[str, Any],
    asked: int = -1,
) -> dict[str, Any]:
    return {
        "address": address,
        "size": size,
        "requested_size": size if asked < 0 else asked,
        "state": state,
        "frames": list(frames),
    }


def segment(address: int, size: int, *blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    return {
        "device": device,
        "address": address,
        "total_size": size,
        "stream": 0,
        "segment_type": "large",
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": list(blocks),
    }


def snapshot(segments: list[dict[str, Any]], *histories: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "segments": segments,
        "device_traces": list(histories),
        "allocator_settings": {"expandable_segments": False, "max_split_size": -1},
    }


def g1() -> dict[str, Any]:
    """2 GiB of segments with 1.5 GiB allocated, and no history."""
    blocks = [block(0, GIB), block(GIB, GIB // 2), block(3 * GIB // 2, GIB // 2, "inactive")]
    return snapshot([segment(0, 2 * GIB, *blocks)], [])


def a_step() -> dict[str, Any]:
    """100 stay, 20 come and go, and 60 were freed that lived before: the peak is 180."""
    model, act = frame("build", line=3), frame("forward", line=9)
    torch_frame = frame("empty", "/lib/python3/site-packages/torch/nn/init.py", 80)
    history = [
        entry("alloc", 0, 100, 0, torch_frame, model),
        entry("alloc", 512, 20, 10, act),
        entry("free_requested", 1024, 60, 20),
        entry("free_completed", 1024, 60, 20),
        entry("free_requested", 512, 20, 30, act),
        entry("free_completed", 512, 20, 30, act),
        entry("snapshot", 0, 512, 40),
    ]
    blocks = [
        block(0, 512, "active_allocated", torch_frame, model, asked=100),
        block(512, 1536, "inactive", asked=0),
    ]
    return snapshot([segment(0, 2048, *blocks)], history)


def write(path: Path, value: Any, protocol: int = 4) -> Path:
    data = pickle.dumps(value, protocol)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(data) if path.name.endswith(".gz") else data)
    return path
