"""Read a pickle of plain data that anybody may have written: no code in it can ever run.

Protocols 2 to 5, and of those only what makes dicts with text keys, lists, tuples, texts, bytes,
numbers, booleans and None. What would look up a name, call or build anything is refused, and so is
what would take more memory than allowed. The names of the opcodes are those of ``pickletools``.
"""

from __future__ import annotations

import pickletools
import struct
from collections.abc import Callable
from typing import Any

from tracekit.errors import InputError

# A pickler keeps what is open on its stack, and writes items in batches of a thousand.
_MOST_MARKS = 64
_MOST_OPEN = 16384
_LONGEST_NUMBER_BYTES = 16

# What a value takes at most in CPython beside its data, in bytes, with its place in the memo.
_NUMBER_BYTES = 48
_TEXT_BYTES = 80
_LIST_BYTES = 80
_ITEM_BYTES = 12  # of a list that grows
_DICT_BYTES = 200  # once it holds a pair
_PAIR_BYTES = 56  # of a dict that grows

_NAMES = {op.code: op.name for op in pickletools.opcodes}
_REFUSED = (
    *("GLOBAL", "STACK_GLOBAL", "INST", "OBJ", "REDUCE", "BUILD", "NEWOBJ", "NEWOBJ_EX"),
    *("PERSID", "BINPERSID", "EXT1", "EXT2", "EXT4", "NEXT_BUFFER", "READONLY_BUFFER"),
)


class PickleError(InputError):
    """The text says what is wrong, and at which byte of the decompressed pickle."""

    def __init__(self, name: str, at: int, what: str) -> None:
        super().__init__(f"{name}: at byte {at}: {what}")
        self.at = at
        self.what = what


def load(data: bytes, name: str, *, most_bytes: int) -> Any:
    """The value that a pickle holds.

    Args:
        data: The pickle, decompressed.
        name: Its file, for the errors.
        most_bytes: What the value may take in memory.

    Raises:
        PickleError: it is no pickle, is damaged, holds what is no plain data, or is too large.
    """
    if len(data) < 2 or data[0] != 0x80 or not 2 <= data[1] <= 5:
        raise PickleError(name, 0, "not a pickle of protocol 2 to 5")
    return _Machine(data, name, most_bytes).run()


class _RefusedError(Exception):
    """What is wrong with an opcode."""


class _Machine:
    """Runs the opcodes of one pickle."""

    def __init__(self, data: bytes, name: str, most_bytes: int) -> None:
        self._data = data
        self._at = 0
        self._name = name
        self._most_bytes = most_bytes
        self._left = most_bytes
        self._stack: list[Any] = []  # above the last mark
        self._below: list[list[Any]] = []  # a part for each mark
        self._open = 0  # values in the parts below
        self._memo: list[Any] = []
        self._done = False

    def run(self) -> Any:
        data, calls, start = self._data, self._calls(), 0
        try:
            while not self._done:
                start = self._at
                call = calls[data[start]]
                self._at = start + 1
                call()
        except (IndexError, struct.error):
            what = "ends early" if self._at >= len(data) else "damaged: no value for this opcode"
            raise PickleError(self._name, min(self._at, len(data)), what) from None
        except _RefusedError as error:
            raise PickleError(self._name, start, str(error)) from None
        except UnicodeDecodeError:
            raise PickleError(self._name, start, "damaged: a text that is not UTF-8") from None
        if len(self._stack) != 1 or self._below:
            raise PickleError(self._name, start, "damaged: it ends with more or less than a value")
        return self._stack[0]

    def _calls(self) -> list[Callable[[], None]]:
        calls = [self._unknown] * 256
        for opcode in range(256):
            name = _NAMES.get(chr(opcode), "")
            known = getattr(self, f"_op_{name.lower()}", None) if name else None
            if known is not None:
                calls[opcode] = known
        return calls

    def _unknown(self) -> None:
        opcode = self._data[self._at - 1]
        name = _NAMES.get(chr(opcode))
        if name in _REFUSED:
            raise _RefusedError(f"{name} refused: it would run code or reach outside the file")
        what = f"{name}, which plain data has no use for" if name else f"no opcode: {opcode:#04x}"
        raise _RefusedError(f"{what}; not a snapshot, or damaged")

    # What the operands are.

    def _take(self, size: int) -> bytes:
        at = self._at
        end = at + size
        if end > len(self._data):
            self._at = len(self._data)
            raise IndexError
        self._at = end
        return self._data[at:end]

    def _number(self, size: int, *, signed: bool = False) -> int:
        return int.from_bytes(self._take(size), "little", signed=signed)

    def _charge(self, size: int) -> None:
        self._left -= size
        if self._left < 0:
            most = self._most_bytes >> 20
            raise _RefusedError(f"takes more than {most} MiB of memory: raise --memory-limit")

    def _push(self, value: Any, size: int) -> None:
        self._left -= size
        if self._left < 0:
            self._charge(0)
        self._stack.append(value)
        if len(self._stack) + self._open > _MOST_OPEN:
            raise _RefusedError("nested too deeply, or damaged")

    def _to_mark(self) -> list[Any]:
        """The values above the last mark, which goes."""
        if not self._below:
            raise _RefusedError("damaged: no mark where one is needed")
        items = self._stack
        self._stack = self._below.pop()
        self._open -= len(self._stack)
        return items

    # Frame and stack.

    def _op_proto(self) -> None:
        version = self._number(1)
        if not 2 <= version <= 5:
            raise _RefusedError(f"protocol {version}: not 2 to 5")

    def _op_frame(self) -> None:
        self._take(8)

    def _op_stop(self) -> None:
        self._done = True

    def _op_mark(self) -> None:
        if len(self._below) >= _MOST_MARKS:
            raise _RefusedError("nested too deeply, or damaged")
        self._open += len(self._stack)
        self._below.append(self._stack)
        self._stack = []

    def _op_memoize(self) -> None:
        self._memo.append(self._stack[-1])
        self._charge(_ITEM_BYTES)

    def _put(self, number: int) -> None:
        if number < len(self._memo):
            self._memo[number] = self._stack[-1]
        elif number == len(self._memo):
            self._op_memoize()
        else:
            raise _RefusedError(f"damaged: memo {number} before memo {len(self._memo)}")

    def _op_binput(self) -> None:
        self._put(self._number(1))

    def _op_long_binput(self) -> None:
        self._put(self._number(4))

    def _get(self, number: int) -> None:
        if number >= len(self._memo):
            raise _RefusedError(f"damaged: memo {number} is empty")
        self._push(self._memo[number], 0)

    def _op_binget(self) -> None:
        self._get(self._number(1))

    def _op_long_binget(self) -> None:
        self._get(self._number(4))

    # Values.

    def _op_none(self) -> None:
        self._push(None, 0)

    def _op_newtrue(self) -> None:
        self._push(True, 0)

    def _op_newfalse(self) -> None:
        self._push(False, 0)

    def _op_binint(self) -> None:
        self._push(self._number(4, signed=True), _NUMBER_BYTES)

    def _op_binint1(self) -> None:
        self._push(self._number(1), _NUMBER_BYTES)

    def _op_binint2(self) -> None:
        self._push(self._number(2), _NUMBER_BYTES)

    def _long(self, size: int) -> None:
        if size > _LONGEST_NUMBER_BYTES:
            raise _RefusedError(f"a number of {size} bytes: not a snapshot, or damaged")
        self._push(self._number(size, signed=True), _NUMBER_BYTES)

    def _op_long1(self) -> None:
        self._long(self._number(1))

    def _op_long4(self) -> None:
        self._long(self._number(4))

    def _op_binfloat(self) -> None:
        self._push(struct.unpack(">d", self._take(8))[0], _NUMBER_BYTES)

    def _text(self, size: int) -> None:
        # A character may take four bytes of memory where the others of its text take one of file.
        self._charge(4 * min(size, len(self._data)))
        self._push(self._take(size).decode("utf-8", "surrogatepass"), _TEXT_BYTES)

    def _op_short_binunicode(self) -> None:
        self._text(self._number(1))

    def _op_binunicode(self) -> None:
        self._text(self._number(4))

    def _op_binunicode8(self) -> None:
        self._text(self._number(8))

    def _bytes(self, size: int) -> None:
        self._push(self._take(size), _TEXT_BYTES + size)

    def _op_short_binbytes(self) -> None:
        self._bytes(self._number(1))

    def _op_binbytes(self) -> None:
        self._bytes(self._number(4))

    def _op_binbytes8(self) -> None:
        self._bytes(self._number(8))

    # Containers.

    def _tuple(self, items: list[Any]) -> None:
        self._push(tuple(items), _LIST_BYTES + 8 * len(items))

    def _op_empty_tuple(self) -> None:
        self._push((), 0)

    def _op_tuple(self) -> None:
        self._tuple(self._to_mark())

    def _last(self, count: int) -> list[Any]:
        items = self._stack[-count:]
        if len(items) < count:
            raise _RefusedError("damaged: no value for this opcode")
        del self._stack[-count:]
        return items

    def _op_tuple1(self) -> None:
        self._tuple(self._last(1))

    def _op_tuple2(self) -> None:
        self._tuple(self._last(2))

    def _op_tuple3(self) -> None:
        self._tuple(self._last(3))

    def _op_empty_list(self) -> None:
        self._push([], _LIST_BYTES)

    def _extend(self, items: list[Any]) -> None:
        target = self._stack[-1]
        if type(target) is not list:
            raise _RefusedError("damaged: items of what is no list")
        self._charge(_ITEM_BYTES * len(items))
        target += items

    def _op_append(self) -> None:
        self._extend(self._last(1))

    def _op_appends(self) -> None:
        self._extend(self._to_mark())

    def _op_empty_dict(self) -> None:
        self._push({}, _DICT_BYTES)

    def _update(self, items: list[Any]) -> None:
        target, keys = self._stack[-1], items[::2]
        if type(target) is not dict or len(items) % 2:
            raise _RefusedError("damaged: items of what is no dict")
        # Other keys can be made to collide, and hashing a tuple to run without end.
        for key in keys:
            if type(key) is not str:
                raise _RefusedError("a key that is no text: not a snapshot, or damaged")
        self._charge(_PAIR_BYTES * len(keys))
        target.update(zip(keys, items[1::2], strict=True))

    def _op_setitem(self) -> None:
        self._update(self._last(2))

    def _op_setitems(self) -> None:
        self._update(self._to_mark())
