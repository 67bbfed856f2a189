"""Telemetry of one node as it lies in the run directory: names, columns, facts of each GPU.

    DIR/nvml.HOST.PID.arrows    samples: an Arrow IPC stream that only grows, a batch a second
    DIR/nvml.HOST.PID.json      the GPUs, and why a column of theirs is null: :class:`NodeFacts`

The stream's schema carries the host and the format version as metadata, and has these columns, all
of them whole numbers: ``gpu``, ``ts_ns``, then :data:`VALUES`, then ``processes``, a list of pid
and used_bytes. Standard library only: what writes Arrow is handed in as a :class:`Sink`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tracekit_collectors import records

FORMAT_VERSION = 1

# What a sample holds beside its GPU and its time, null where there is no value. PCIe throughput is
# measured once a second, and null between; so is the column `processes`.
VALUES = (
    "utilization",  # percent of the time in which a kernel ran
    "memory_utilization",  # percent of the time in which memory was read or written
    "memory_used_bytes",
    "power_mw",
    "power_limit_mw",
    "energy_mj",  # since the driver was loaded
    "sm_clock_mhz",
    "memory_clock_mhz",
    "temperature_c",
    "throttle_reasons",  # bits of NVML's nvmlClocksEventReason*
    "pcie_tx_bytes_s",
    "pcie_rx_bytes_s",
    "nvlink_tx_bytes",  # all links together, since the driver was loaded
    "nvlink_rx_bytes",
)
PROCESSES = "processes"

# A sample by its columns; processes is None or a list of {"pid": ..., "used_bytes": ...}.
Sample = Mapping[str, Any]


class Sink(Protocol):
    """Where samples go."""

    def write(self, samples: Sequence[Sample]) -> None:
        """Append samples: readers see all of them or, for now, none."""

    def close(self) -> None:
        """No sample comes after these."""


# Opens the sink at a path, for the GPUs of a host.
OpenSink = Callable[[Path, str], Sink]


@dataclass(slots=True)
class GpuFacts:
    """What does not change of a GPU, or changes once. None: not known."""

    # NVML's index. The MIG devices of the node are numbered on from the last of its GPUs.
    gpu: int
    uuid: str | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    memory_bytes: int | None = None
    sm_clock_max_mhz: int | None = None
    is_divided: bool | None = None  # into MIG devices
    parent: int | None = None  # of a MIG device: the GPU that it is a part of
    mig: int | None = None  # of a MIG device: NVML's index within that GPU
    gpu_instance: int | None = None
    compute_instance: int | None = None
    lost_ns: int | None = None  # when it was found to be lost: no sample comes after
    lost_reason: str | None = None
    # Columns that are null in all samples or in some, and why.
    unsupported: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class NodeFacts:
    """The GPUs of a node, as one wrapper process found them."""

    host: str
    start_ns: int  # when sampling began
    interval_ns: int
    driver: str | None = None
    gpus: list[GpuFacts] = field(default_factory=list)
    format: int = FORMAT_VERSION


def _path(directory: Path, suffix: str) -> Path:
    return directory / f"nvml.{records.host_name()}.{os.getpid()}.{suffix}"


def samples_path(directory: Path) -> Path:
    """Where this process writes samples."""
    return _path(directory, "arrows")


def facts_path(directory: Path) -> Path:
    """Where this process writes what it knows of the GPUs."""
    return _path(directory, "json")


def is_samples(name: str) -> bool:
    """Whether a file of this name holds samples."""
    return name.startswith("nvml.") and name.endswith(".arrows")


def is_facts(name: str) -> bool:
    """Whether a file of this name holds facts of GPUs."""
    return name.startswith("nvml.") and name.endswith(".json")
