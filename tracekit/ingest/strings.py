"""The strings of a run by number: those of a file, as its batches bring them, and the store's own.

Nothing here keeps more than a number for a string that is in the store already, nor too many of
those. The same holds for the other things that repeat, which are numbered in the same way.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence

import pyarrow as pa

from tracekit.store import Writer

# Longer strings are remembered by their hash: an operator's values may differ with every call.
_LONGEST_KEY = 64
# More different strings than that are no names: they are forgotten, and may get a second number.
_MOST_KNOWN = 1 << 19


class Numbered:
    """Numbers for the distinct rows of a table (``name``, ``signature``, ``track``)."""

    def __init__(
        self, writer: Writer, table: str, id_column: str, columns: Mapping[str, pa.DataType]
    ) -> None:
        self._writer = writer
        self._table = table
        self._id = id_column
        self._columns = columns
        listed = ", ".join(self._columns)
        sql = f"SELECT {id_column}, {listed} FROM {table} LIMIT {_MOST_KNOWN}"  # noqa: S608 - ours
        rows = writer.rows(sql)
        self._numbers: dict[object, int] = {_key(tuple(row[1:])): row[0] for row in rows}
        last = f"SELECT coalesce(max({id_column}), -1) FROM {table}"  # noqa: S608 - ours
        self._next = writer.scalar(last) + 1

    def of(self, rows: Sequence[tuple[str | int | None, ...]]) -> list[int]:
        """The number of each row; new rows are appended to the store."""
        if len(self._numbers) > _MOST_KNOWN:
            self._numbers.clear()
        found, new = [], []
        for row in rows:
            key = _key(row)
            number = self._numbers.get(key)
            if number is None:
                number = self._numbers[key] = self._next
                self._next += 1
                new.append(row)
            found.append(number)
        if new:
            first = self._next - len(new)
            columns = {self._id: pa.array(range(first, self._next), pa.int32())}
            for place, (name, kind) in enumerate(self._columns.items()):
                columns[name] = pa.array([row[place] for row in new], kind)
            self._writer.append(self._table, pa.table(columns))
        return found


def _key(row: tuple[str | int | None, ...]) -> object:
    if sum(len(text) for text in row if isinstance(text, str)) <= _LONGEST_KEY:
        return row if len(row) > 1 else row[0]
    return hashlib.blake2b(repr(row).encode("utf-8", "replace"), digest_size=16).digest()
