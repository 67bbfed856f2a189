"""Which GPU of its node a rank runs on: from what torch says of its device to NVML's number.

Pure. The UUID counts before the PCI address, and that before CUDA_VISIBLE_DEVICES, which is read
as CUDA reads it: entries in order, up to the first that is not valid.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NONE = ("", "nodevfiles")  # values of CUDA_VISIBLE_DEVICES that hide every GPU
_OLD_MIG = re.compile(r"mig-(gpu-[0-9a-f-]+)/(\d+)/(\d+)")


class UnknownError(Exception):
    """No GPU can be named; the text says why."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU of a node, or one of its MIG devices, as the table ``gpu`` has it."""

    gpu: int
    uuid: str | None = None
    pci_bus_id: str | None = None
    name: str | None = None
    is_divided: bool = False
    parent: int | None = None
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, slots=True)
class Place:
    """What a rank says of its device: see ``records.RankManifest``."""

    index: int | None = None
    uuid: str | None = None
    pci: str | None = None
    visible: str | None = None
    order: str | None = None


def gpu_of(place: Place, gpus: Sequence[Gpu]) -> int:
    """The number of a rank's GPU, or of its MIG device.

    Args:
        place: What the rank says.
        gpus: All that NVML lists on the rank's host, in the order of its numbers.

    Raises:
        UnknownError: nothing says which, or what does is ambiguous.
    """
    whole = [gpu for gpu in gpus if gpu.parent is None]
    if place.uuid and all(gpu.uuid for gpu in gpus):
        found = [gpu for gpu in gpus if _bare(gpu.uuid) == _bare(place.uuid)]
        what = f"the UUID {place.uuid}"
    elif place.pci and all(gpu.pci_bus_id for gpu in whole):
        found = [gpu for gpu in whole if _address(gpu.pci_bus_id) == _address(place.pci)]
        what = f"the PCI address {place.pci}"
    else:
        return _undivided(_by_index(place, gpus), gpus).gpu
    if len(found) != 1:
        raise UnknownError(f"{len(found) or 'no'} GPUs of the node have {what}")
    if found[0].is_divided:
        return _part_of(found[0], place, gpus).gpu
    return found[0].gpu


def _part_of(parent: Gpu, place: Place, gpus: Sequence[Gpu]) -> Gpu:
    """The MIG device that a rank runs on, where torch names the GPU that it is a part of."""
    if place.visible is not None:
        try:
            named = _by_index(place, gpus)
        except UnknownError:
            named = parent  # the only part, or none that could be told
        if named.parent == parent.gpu:
            return named
    return _undivided(parent, gpus)


def _undivided(gpu: Gpu, gpus: Sequence[Gpu]) -> Gpu:
    """The GPU, or the one MIG device that it is divided into."""
    if not gpu.is_divided:
        return gpu
    parts = [part for part in gpus if part.parent == gpu.gpu]
    if len(parts) != 1:
        raise UnknownError(
            f"GPU {gpu.gpu} is divided into {len(parts)} MIG devices, and nothing says which it is"
        )
    return parts[0]


def _by_index(place: Place, gpus: Sequence[Gpu]) -> Gpu:
    """By torch's number of the device among those that CUDA_VISIBLE_DEVICES leaves visible."""
    if place.index is None:
        raise UnknownError("the rank does not say which device it uses")
    if place.visible is None:
        numbered = [gpu for gpu in gpus if gpu.parent is None]
        _check_order(place, numbered)
        visible: Sequence[Gpu] = numbered
        where = f"the node's {len(visible)} GPUs"
    else:
        visible = _visible(place, gpus)
        where = f"CUDA_VISIBLE_DEVICES={place.visible!r}, which shows {len(visible)}"
    if not 0 <= place.index < len(visible):
        raise UnknownError(f"device {place.index} of the rank is not among {where}")
    return visible[place.index]


def _visible(place: Place, gpus: Sequence[Gpu]) -> list[Gpu]:
    """The devices that CUDA numbers 0, 1, ... under CUDA_VISIBLE_DEVICES."""
    text = (place.visible or "").strip().lower()
    if text in _NONE:
        return []
    shown: list[Gpu] = []
    is_first_number: bool | None = None
    for entry in map(str.strip, text.split(",")):
        is_number = re.fullmatch(r"[+-]?[0-9]+", entry) is not None
        if is_first_number is None:
            is_first_number = is_number
        # A list is of numbers or of UUIDs: an entry of the other kind ends it too.
        gpu = _named(entry, is_number, gpus) if is_number == is_first_number else None
        if gpu is None:
            break
        shown.append(gpu)
    if is_first_number and shown:
        _check_order(place, [gpu for gpu in gpus if gpu.parent is None])
    if len({gpu.gpu for gpu in shown}) < len(shown):
        return []  # CUDA takes a list that names a device twice for none
    return shown


def _named(entry: str, is_number: bool, gpus: Sequence[Gpu]) -> Gpu | None:
    """What an entry of CUDA_VISIBLE_DEVICES names; None where it is not valid."""
    if is_number:
        whole = [gpu for gpu in gpus if gpu.parent is None]
        number = int(entry[:20])
        return whole[number] if 0 <= number < len(whole) else None
    if old := _OLD_MIG.fullmatch(entry):
        parents = [gpu.gpu for gpu in gpus if (gpu.uuid or "").lower() == old[1]]
        instances = int(old[2][:20]), int(old[3][:20])
        found = [
            gpu
            for gpu in gpus
            if gpu.parent in parents and (gpu.gpu_instance, gpu.compute_instance) == instances
        ]
    elif entry.startswith(("gpu-", "mig-")):
        found = [gpu for gpu in gpus if (gpu.uuid or "").lower().startswith(entry)]
    else:
        found = []
    return found[0] if len(found) == 1 else None


def _check_order(place: Place, whole: Sequence[Gpu]) -> None:
    """NVML numbers by PCI address; CUDA does so only if told to, else the fastest comes first."""
    if (place.order or "").strip().upper() == "PCI_BUS_ID" or len(whole) < 2:
        return
    names = {gpu.name for gpu in whole}
    if len(names) > 1 or None in names:
        raise UnknownError(
            "the node's GPUs are not all of one kind, and CUDA numbers the fastest first: "
            "set CUDA_DEVICE_ORDER=PCI_BUS_ID"
        )


def _bare(uuid: str | None) -> str:
    """torch leaves out the ``GPU-`` before a UUID."""
    return re.sub(r"^(gpu|mig)-", "", (uuid or "").strip().lower())


def _address(text: str | None) -> str:
    """A PCI address with its domain in eight digits."""
    domain, _, rest = (text or "").strip().lower().partition(":")
    return f"{domain.zfill(8)}:{rest}" if rest.count(":") else f"{'0' * 8}:{domain}:{rest}"
