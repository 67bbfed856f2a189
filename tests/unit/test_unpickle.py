"""Pickles that nobody would write by hand: none runs code or takes memory; each is one error."""

from __future__ import annotations

import os
import pickle
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.faults.snapshots import a_step
from tracekit.ingest import unpickle
from tracekit.ingest.unpickle import PickleError

MIB = 1 << 20
PLAIN = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(1 << 100), 1 << 100)
    | st.floats(allow_nan=False)
    | st.text()
    | st.binary(),
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(max_size=5), inner)
        | inner.map(lambda shared: [shared, shared])
    ),
    max_leaves=30,
)


def load(data: bytes, most_bytes: int = 64 * MIB) -> Any:
    return unpickle.load(data, "f.pickle", most_bytes=most_bytes)


def refused(data: bytes, most_bytes: int = 64 * MIB) -> PickleError:
    with pytest.raises(PickleError) as caught:
        load(data, most_bytes)
    assert str(caught.value) == f"f.pickle: at byte {caught.value.at}: {caught.value.what}"
    assert "\n" not in str(caught.value)
    return caught.value


def fault_of(data: bytes) -> int:
    """Where it is wrong, 0 where it is not; any other error is one of ours."""
    try:
        load(data, MIB)
    except PickleError as error:
        return error.at
    return 0


def same(one: Any, other: Any) -> bool:
    """Equal, and of the same types: True is not 1."""
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


@settings(deadline=None)
@given(PLAIN, st.integers(3, 5))
def test_plain_data_comes_back_as_it_was(value: Any, protocol: int) -> None:
    assert same(load(pickle.dumps(value, protocol)), value)


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
@pytest.mark.parametrize("pickler", [pickle._Pickler, pickle.Pickler])
def test_long_lists_and_much_that_is_shared(protocol: int, pickler: Any, tmp_path: Path) -> None:
    frames = [{"name": f"f{number}", "line": number} for number in range(3000)]
    value = {"a": frames, "b": [frames, frames], "c": {str(n): n for n in range(5000)}}
    with (tmp_path / "x").open("wb") as file:
        pickler(file, protocol).dump(value)
    found = load((tmp_path / "x").read_bytes())
    assert found == value
    assert found["b"][0] is found["a"]


class _Call:
    """Unpickled by the standard library, it calls."""

    def __init__(self, function: Any, *args: Any) -> None:
        self.call = (function, args)

    def __reduce__(self) -> Any:
        return self.call


@pytest.mark.parametrize("protocol", [2, 3, 4, 5])
def test_no_call_is_made(protocol: int, tmp_path: Path) -> None:
    made = tmp_path / "made"
    hostile = pickle.dumps({"segments": [_Call(os.system, f"touch {made}")]}, protocol)
    error = refused(hostile)
    assert "GLOBAL refused: it would run code" in error.what
    assert hostile[error.at : error.at + 1] in (b"c", b"\x93")
    assert not made.exists()
    pickle.loads(hostile)  # it would have
    assert made.exists()


def test_nothing_is_imported() -> None:
    assert "antigravity" not in sys.modules
    refused(b"\x80\x02cantigravity\nfly\n.")
    refused(b"\x80\x04\x8c\x0bantigravity\x8c\x03fly\x93.")
    assert "antigravity" not in sys.modules


@pytest.mark.parametrize(
    ("opcodes", "name"),
    [
        (b"cos\nsystem\n.", "GLOBAL"),
        (b"\x8c\x02os\x8c\x06system\x93.", "STACK_GLOBAL"),
        (b"(ios\nsystem\n.", "INST"),
        (b"(N)o.", "OBJ"),
        (b"N)R.", "REDUCE"),
        (b"N}b.", "BUILD"),
        (b"N)\x81.", "NEWOBJ"),
        (b"N)}\x92.", "NEWOBJ_EX"),
        (b"P1\n.", "PERSID"),
        (b"NQ.", "BINPERSID"),
        (b"\x82\x01.", "EXT1"),
        (b"\x83\x01\x00.", "EXT2"),
        (b"\x84\x01\x00\x00\x00.", "EXT4"),
        (b"\x97.", "NEXT_BUFFER"),
        (b"N\x98.", "READONLY_BUFFER"),
    ],
)
def test_each_opcode_that_reaches_outside_is_refused(opcodes: bytes, name: str) -> None:
    error = refused(b"\x80\x05" + opcodes)
    assert error.what == f"{name} refused: it would run code or reach outside the file"


@pytest.mark.parametrize(
    "opcodes",
    [
        b"I1\n.",
        b"L1L\n.",
        b"F1.5\n.",
        b"S'a'\n.",
        b"Va\n.",
        b"(l.",
        b"(d.",
        b"N0.",
        b"(1.",
        b"N2.",
        b"Np0\n.",
        b"\x8f.",
        b"(\x91.",
        b"\x96\x01\x00\x00\x00\x00\x00\x00\x00a.",
        b"\xff.",
        b"T\x01\x00\x00\x00a.",
    ],
)
def test_what_no_snapshot_needs_is_refused(opcodes: bytes) -> None:
    error = refused(b"\x80\x05" + opcodes)
    assert "not a snapshot, or damaged" in error.what


@pytest.mark.parametrize(
    ("opcodes", "said"),
    [
        (b"\x8e\xff\xff\xff\xff\xff\xff\xff\x7fabc", "ends early"),
        (b"\x8d\xff\xff\xff\xff\xff\xff\xff\x7fabc", "ends early"),
        (b"B\xff\xff\xff\xffabc", "ends early"),
        (b"X\xff\xff\xff\xffabc", "ends early"),
        (b"\x8b\xff\xff\xff\x7f1", "a number of 2147483647 bytes"),
        (b"Nr\xff\xff\xff\xff.", "memo 4294967295 before memo 0"),
        (b"j\xff\xff\xff\xff.", "memo 4294967295 is empty"),
        (b"h\x00.", "memo 0 is empty"),
        (b"(" * 1000, "nested too deeply"),
        (b"]" * 1_000_000, "nested too deeply"),
        (b"](" * 1_000_000, "nested too deeply"),
        (b"}K\x01K\x02s.", "a key that is no text"),
        (b"})Ns.", "a key that is no text"),
        (b"](K\x01u.", "items of what is no dict"),
        (b"}(K\x01e.", "items of what is no list"),
        (b"}(\x8c\x01au.", "items of what is no dict"),
        (b"e.", "no mark"),
        (b"N\x87.", "no value"),
        (b"a.", "no value"),
        (b".", "more or less than a value"),
        (b"NN.", "more or less than a value"),
        (b"N(.", "more or less than a value"),
        (b"\x94.", "no value for this opcode"),
        (b"\x8c\x02\xff\xff.", "not UTF-8"),
        (b"\x80\x06.", "protocol 6"),
        (b"N", "ends early"),
        (b"G\x00", "ends early"),
        (b"\x95\x00", "ends early"),
    ],
)
def test_bombs_and_damage_are_one_error_and_little_memory(opcodes: bytes, said: str) -> None:
    data = b"\x80\x05" + opcodes
    tracemalloc.start()
    try:
        error = refused(data, 16 * MIB)
        assert tracemalloc.get_traced_memory()[1] < 20 * MIB
    finally:
        tracemalloc.stop()
    assert said in error.what
    assert 0 <= error.at <= len(data)


@pytest.mark.parametrize(
    "opcodes",
    [
        b"](" + b"}" * 1000 + b"e",
        b"](" + b"]" * 1000 + b"e",
        b"](" + b"K\x01\x85" * 1000 + b"e",
        b"](" + b"M\x11\x11" * 1000 + b"e",
        b"](" + b"G12345678" * 1000 + b"e",
        b"](" + b"\x8c\x01a\x94" * 1000 + b"e",
        b"](" + b"}\x8c\x01aNs" * 1000 + b"e",
        b"](" + b"}(\x8c\x01aN\x8c\x01bN\x8c\x01cN\x8c\x01dN\x8c\x01eN\x8c\x01fNu" * 1000 + b"e",
        b"](" + b"\x8c\x05\xf0\x9f\x98\x80a" * 1000 + b"e",
        b"](" + b"\x8a\x10" + b"\x11" * 16 + b"e",
        b"](" + b"N\x94" * 1000 + b"e",
    ],
)
def test_what_it_counts_is_at_least_what_it_takes(opcodes: bytes) -> None:
    """A hundred lists of what is small in a file and large in memory."""
    data = b"\x80\x05](" + opcodes * 100 + b"e."
    machine = unpickle._Machine(data, "f", 1 << 40)
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        value = machine.run()
        took = tracemalloc.get_traced_memory()[0] - before
    finally:
        tracemalloc.stop()
    assert len(value) == 100
    assert took <= (1 << 40) - machine._left + 32768
    assert "MiB of memory" in refused(data, took // 2).what


def test_what_is_shared_stays_shared() -> None:
    loop = load(b"\x80\x05]\x94h\x00a.")
    assert loop[0] is loop
    inner, outer = load(b"\x80\x05]\x94](h\x00h\x00e\x86.")
    assert outer == [[], []]
    assert outer[0] is inner
    assert outer[1] is inner


@settings(deadline=None, max_examples=400)
@given(st.data(), st.sampled_from([2, 4, 5]))
def test_a_damaged_snapshot_is_read_or_is_one_error(data: st.DataObject, protocol: int) -> None:
    whole = bytearray(pickle.dumps(a_step(), protocol))
    for _ in range(data.draw(st.integers(0, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(whole)))
    for text in (bytes(whole), bytes(whole[:cut])):
        assert 0 <= fault_of(text) <= len(text)


@settings(deadline=None, max_examples=400)
@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_are_one_error(data: bytes) -> None:
    assert 0 <= fault_of(b"\x80\x04" + data) <= len(data) + 2
