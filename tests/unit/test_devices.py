"""Which GPU a rank runs on, in all the forms that CUDA_VISIBLE_DEVICES takes."""

from __future__ import annotations

import re
import types

import pytest

from tracekit.ingest.devices import Gpu, Place, UnknownError, gpu_of

UUIDS = ("aaaa1111-0000", "aaaa2222-0000", "bbbb3333-0000", "cccc4444-0000")
# Four of a kind, numbered by PCI address.
FOUR = [Gpu(n, f"GPU-{UUIDS[n]}", f"00000000:{n + 1:02X}:00.0", "H200") for n in range(4)]
# The same places, but the second is another kind.
MIXED = [*FOUR[:1], Gpu(1, f"GPU-{UUIDS[1]}", "00000000:02:00.0", "L4"), *FOUR[2:]]
# GPU 0 holds two MIG devices, GPU 1 one, GPU 2 is whole.
MIG = [
    Gpu(0, f"GPU-{UUIDS[0]}", "00000000:01:00.0", "H200", is_divided=True),
    Gpu(1, f"GPU-{UUIDS[1]}", "00000000:02:00.0", "H200", is_divided=True),
    FOUR[2],
    Gpu(3, "MIG-d1-0", "00000000:01:00.0", "1g", False, 0, 7, 0),
    Gpu(4, "MIG-d2-0", "00000000:01:00.0", "1g", False, 0, 9, 0),
    Gpu(5, "MIG-e1-0", "00000000:02:00.0", "1g", False, 1, 7, 0),
]


@pytest.mark.parametrize(
    ("visible", "index", "gpu"),
    [
        (None, 0, 0),
        (None, 3, 3),
        ("0,2", 0, 0),
        ("0,2", 1, 2),
        (" 0 , 1", 1, 1),
        ("3,1", 0, 3),
        ("3,1", 1, 1),
        ("+2", 0, 2),
        ("2,", 0, 2),
        ("2,9,1", 0, 2),  # what follows an entry that is not valid does not count
        ("2,-1,1", 0, 2),
        ("2,x,1", 0, 2),
        ("2,GPU-bbbb,1", 0, 2),  # of another kind: not valid
        ("GPU-bbbb3333-0000", 0, 2),
        ("GPU-bbbb", 0, 2),
        ("gpu-BBBB", 0, 2),
        ("GPU-cccc,GPU-aaaa1", 1, 0),
        ("GPU-cccc,GPU-aaaa,GPU-bbbb", 0, 3),  # the second is of two GPUs: not valid
    ],
)
def test_an_index_counts_among_the_visible(visible: str | None, index: int, gpu: int) -> None:
    assert gpu_of(Place(index, visible=visible), FOUR) == gpu


@pytest.mark.parametrize(
    ("visible", "index", "why"),
    [
        (None, 4, "device 4 of the rank is not among the node's 4 GPUs"),
        (None, None, "the rank does not say which device it uses"),
        ("", 0, "CUDA_VISIBLE_DEVICES='', which shows 0"),
        ("  ", 0, "which shows 0"),
        ("-1", 0, "which shows 0"),
        ("NoDevFiles", 0, "which shows 0"),
        (",0", 0, "which shows 0"),
        ("0,1,0", 0, "which shows 0"),  # a GPU that is named twice: CUDA shows none
        ("GPU-bbbb,GPU-bbbb3", 0, "which shows 0"),
        ("0,2", 2, "which shows 2"),
        ("2,9,1", 1, "which shows 1"),
        ("2,GPU-bbbb", 1, "which shows 1"),
        ("GPU-aaaa", 0, "which shows 0"),
        ("GPU-dddd", 0, "which shows 0"),
        ("٣", 0, "which shows 0"),  # a digit, but none of CUDA's
        ("9" * 5000, 0, "which shows 0"),
    ],
)
def test_what_shows_no_such_device_says_so(visible: str | None, index: int, why: str) -> None:
    with pytest.raises(UnknownError, match=re.escape(why)):
        gpu_of(Place(index, visible=visible), FOUR)


@pytest.mark.parametrize("visible", [None, "0,1", "1"])
def test_a_number_needs_the_order_where_gpus_differ(visible: str | None) -> None:
    with pytest.raises(UnknownError, match="not all of one kind"):
        gpu_of(Place(0, visible=visible), MIXED)
    with pytest.raises(UnknownError, match="not all of one kind"):
        gpu_of(Place(0, visible=visible, order="FASTEST_FIRST"), MIXED)
    told = gpu_of(Place(0, visible=visible, order="PCI_BUS_ID"), MIXED)
    assert told == (1 if visible == "1" else 0)
    assert gpu_of(Place(0, visible="GPU-cccc"), MIXED) == 3  # a UUID has no order


def test_the_uuid_counts_before_the_address_and_that_before_the_index() -> None:
    place = Place(0, f"{UUIDS[3].upper()}", "0000:03:00.0", "1,2")
    assert gpu_of(place, FOUR) == 3
    assert gpu_of(Place(0, None, "0000:03:00.0", "1"), FOUR) == 2
    assert gpu_of(Place(0, f"GPU-{UUIDS[1]}"), MIXED) == 1
    with pytest.raises(UnknownError, match="no GPUs of the node have the UUID"):
        gpu_of(Place(0, "ffff-0000", "0000:03:00.0", "1"), FOUR)
    with pytest.raises(UnknownError, match="no GPUs of the node have the PCI address nonsense"):
        gpu_of(Place(0, None, "nonsense"), FOUR)
    # GPUs whose UUID the driver does not tell are found by their address.
    nameless = [Gpu(gpu.gpu, None, gpu.pci_bus_id, gpu.name) for gpu in FOUR]
    assert gpu_of(Place(0, UUIDS[3], "00000000:03:00.0"), nameless) == 2


@pytest.mark.parametrize(
    ("place", "gpu"),
    [
        (Place(0, visible="MIG-d2-0"), 4),
        (Place(0, visible="mig-D2"), 4),
        (Place(0, visible=f"MIG-GPU-{UUIDS[0]}/9/0"), 4),
        (Place(0, uuid="d2-0"), 4),
        (Place(0, UUIDS[0], visible="MIG-d2-0"), 4),  # where torch gives that of the whole GPU
        (Place(0, UUIDS[1]), 5),  # the only part of it
        (Place(0, None, "00000000:01:00.0", "MIG-d1-0"), 3),
        (Place(0, visible="1"), 5),
        (Place(0, visible=f"GPU-{UUIDS[1]}"), 5),
        (Place(2), 2),
    ],
)
def test_mig_devices(place: Place, gpu: int) -> None:
    assert gpu_of(place, MIG) == gpu


@pytest.mark.parametrize(
    "place",
    [Place(0, UUIDS[0]), Place(0), Place(0, visible="0"), Place(0, UUIDS[0], visible="MIG-e1-0")],
)
def test_one_of_several_mig_devices_needs_a_name(place: Place) -> None:
    with pytest.raises(UnknownError, match="divided into 2 MIG devices, and nothing says which"):
        gpu_of(place, MIG)
    with pytest.raises(UnknownError, match="which shows 0"):
        gpu_of(Place(0, visible=f"MIG-GPU-{UUIDS[0]}/8/0"), MIG)


def test_no_gpu_is_known() -> None:
    for place in (Place(0), Place(0, "aaaa"), Place(0, None, "0000:01:00.0"), Place(0, None, "0")):
        with pytest.raises(UnknownError):
            gpu_of(place, [])


def test_a_manifest_says_what_torch_says(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    from tracekit_collectors import memory
    from tracekit_collectors.options import Options
    from tracekit_collectors.rank import manifest_of

    old = types.SimpleNamespace(name="H200", total_memory=141)
    new = types.SimpleNamespace(
        **vars(old), uuid=UUIDS[2], pci_domain_id=0, pci_bus_id=3, pci_device_id=0
    )
    monkeypatch.setattr(memory, "device_kind", lambda optimizers: "cuda")
    monkeypatch.setattr(torch.cuda, "current_device", lambda: 1)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,2")
    monkeypatch.delenv("CUDA_DEVICE_ORDER", raising=False)
    for device, said in (
        (old, (1, None, None, "3,2", None)),
        (new, (1, UUIDS[2], "00000000:03:00.0", "3,2", None)),
    ):
        monkeypatch.setattr(torch.cuda, "get_device_properties", lambda index, it=device: it)
        found = manifest_of([], Options())
        place = (found.device_index, found.device_uuid, found.device_pci, found.visible_devices)
        assert (*place, found.device_order) == said
        assert gpu_of(Place(*said), FOUR) == 2
