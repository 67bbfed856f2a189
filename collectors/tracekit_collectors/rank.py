"""What a process that has turned out to be a rank says of itself."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable
from dataclasses import asdict
from typing import Any

from tracekit_collectors import memory, records
from tracekit_collectors.options import Options


def manifest_of(optimizers: Iterable[Any], options: Options) -> records.RankManifest:
    """The manifest of this process as far as it is known when its first step ends."""
    import torch

    rank, world, local = where()
    kind = memory.device_kind(optimizers)
    manifest = records.RankManifest(
        rank=rank,
        world_size=world,
        local_rank=local,
        host=socket.gethostname(),
        pid=os.getpid(),
        device_kind=kind,
        torch_version=torch.__version__,
        schedule={name: value for name, value in asdict(options).items() if value},
    )
    if kind == "cuda":
        manifest.device_index = torch.cuda.current_device()
        device = torch.cuda.get_device_properties(manifest.device_index)
        manifest.device_name = device.name
        manifest.device_bytes = device.total_memory
        manifest.device_uuid = str(device.uuid) if hasattr(device, "uuid") else None
        manifest.device_pci = _pci_address(device)
        manifest.visible_devices = os.environ.get("CUDA_VISIBLE_DEVICES")
        manifest.device_order = os.environ.get("CUDA_DEVICE_ORDER")
    return manifest


def _pci_address(device: Any) -> str | None:
    """As NVML writes it; None where this torch does not tell."""
    if not all(hasattr(device, f"pci_{part}_id") for part in ("domain", "bus", "device")):
        return None
    return f"{device.pci_domain_id:08X}:{device.pci_bus_id:02X}:{device.pci_device_id:02X}.0"


def where() -> tuple[int, int, int]:
    """Rank, world size and local rank: from torch.distributed, else from the launcher."""
    import torch.distributed as dist

    environment = os.environ
    local = int(environment.get("LOCAL_RANK", environment.get("SLURM_LOCALID", "0")))
    if dist.is_available() and dist.is_initialized():
        return dist.get_rank(), dist.get_world_size(), local
    rank = int(environment.get("RANK", environment.get("SLURM_PROCID", "0")))
    world = int(environment.get("WORLD_SIZE", environment.get("SLURM_NTASKS", "1")))
    return rank, world, local
