"""What an analyzer is: a typed row, one SQL query, and the reasons for what it cannot say.

Every face derives from the row: names, units, polarity and docs of the table, the JSON, the TUI
and the reference docs. This module knows no analyzer and makes no text of numbers.
"""

from __future__ import annotations

import dataclasses
import enum
from collections.abc import Callable, Iterable, Sequence
from typing import Annotated, Any, Literal, get_args, get_origin, get_type_hints

from tracekit.analysis.presence import presence
from tracekit.errors import UsageError
from tracekit.store import Reader
from tracekit.store.store import sql_file

Better = Literal["lower", "higher"]
Row = Any  # an instance of the analyzer's own row class

# Version of the JSON that `report` prints, not of the database.
RESULT_VERSION = 1


class Unit(enum.StrEnum):
    """What a value is counted in; presentation turns it into ms, GiB or percent."""

    NS = "ns"
    BYTES = "bytes"
    RATIO = "ratio"
    COUNT = "count"
    TEXT = "text"


@dataclasses.dataclass(frozen=True, slots=True)
class Dim:
    """Marks a column that says which part of the run a row is about."""

    doc: str


@dataclasses.dataclass(frozen=True, slots=True)
class Value:
    """Marks a column that holds a figure; one of detail is left out of the overall report."""

    doc: str
    unit: Unit
    better: Better | None = None
    detail: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Column:
    """One column of an analyzer, as every face sees it."""

    name: str
    doc: str
    unit: Unit | None
    better: Better | None
    is_dim: bool
    detail: bool = False


@dataclasses.dataclass(frozen=True, slots=True)
class Missing:
    """A figure that the run cannot give, or gives only in part, and why.

    ``where`` names the rows it touches, for example ``{"rank": 3}``; empty: the whole run.
    """

    reason: str
    where: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True, slots=True)
class Result:
    """What an analyzer says of one run: raw integers and ratios, and what is missing."""

    analyzer: Analyzer
    by: tuple[str, ...]
    rows: list[Row]
    missing: list[Missing]

    @property
    def available(self) -> bool:
        """Whether at least one row holds the headline figure."""
        return any(getattr(row, self.analyzer.headline) is not None for row in self.rows)


@dataclasses.dataclass(frozen=True, slots=True)
class Analyzer:
    """A named definition.

    Attributes:
        name: Name on the command line; ``NAME.sql`` beside the module holds the query.
        title: A few words for a heading.
        row: Dataclass whose fields are ``Annotated`` with :class:`Dim` or :class:`Value`. The
            query returns exactly these columns and ``missing``: a reason, or null.
        by: Dimensions that rows can be grouped by.
        default_by: Grouping when nothing is asked for.
        headline: The column that decides whether the run can answer at all.
        finish: Python after the query, only for what is a true state machine.
    """

    name: str
    title: str
    row: type
    by: tuple[str, ...]
    default_by: tuple[str, ...]
    headline: str
    finish: Callable[[Reader, list[dict[str, Any]], tuple[str, ...]], list[Missing]] | None = None

    @property
    def doc(self) -> str:
        """The first line of the row's docstring."""
        return (self.row.__doc__ or "").strip().splitlines()[0]

    @property
    def sql(self) -> str:
        return sql_file("tracekit.analysis", f"{self.name}.sql")

    @property
    def columns(self) -> tuple[Column, ...]:
        return columns_of(self.row)

    def run(self, reader: Reader, by: Sequence[str] | None = None) -> Result:
        """Compute the rows, grouped by the dimensions in ``by``.

        Raises:
            UsageError: a dimension that this analyzer cannot group by.
        """
        groups = self.default_by if by is None else tuple(by)
        for dim in groups:
            if dim not in self.by:
                raise UsageError(
                    f"{self.name} cannot be grouped by {dim!r}; it has: {', '.join(self.by)}"
                )
        names, rows = reader.table(self.sql, {"by": list(groups)})
        records = [dict(zip(names, values, strict=True)) for values in rows]
        missing = _collect_missing(records, [c.name for c in self.columns if c.is_dim])
        if self.finish is not None:
            missing += self.finish(reader, records, groups)
        if records and "rank" not in groups:
            missing += _absent_ranks(reader)
        return Result(self, groups, [self.row(**record) for record in records], missing)


def columns_of(row: type) -> tuple[Column, ...]:
    """The columns that a row class declares, in order.

    Raises:
        TypeError: a field without a Dim or Value.
    """
    hints = get_type_hints(row, include_extras=True)
    found = []
    for field in dataclasses.fields(row):
        hint = hints[field.name]
        marks = get_args(hint)[1:] if get_origin(hint) is Annotated else ()
        match marks:
            case (Dim(doc=doc),):
                found.append(Column(field.name, doc, None, None, is_dim=True))
            case (Value(doc=doc, unit=unit, better=better, detail=detail),):
                found.append(Column(field.name, doc, unit, better, False, detail))
            case _:
                raise TypeError(f"{row.__name__}.{field.name} needs one Dim or Value")
    return tuple(found)


def _collect_missing(records: Iterable[dict[str, Any]], dims: Sequence[str]) -> list[Missing]:
    """Take the reasons out of the records; the same reason for many rows is said once."""
    by_reason: dict[str, list[dict[str, Any]]] = {}
    total = 0
    for record in records:
        total += 1
        reason = record.pop("missing")
        if reason is not None:
            where = {dim: record[dim] for dim in dims if record.get(dim) is not None}
            by_reason.setdefault(reason, []).append(where)
    found = []
    for reason, places in by_reason.items():
        if len(places) == total:
            found.append(Missing(reason))
        else:
            found.append(Missing(reason, _merge(places)))
    return found


def _absent_ranks(reader: Reader) -> list[Missing]:
    """Rows that are not of one rank speak of the whole job: say how much of it is here."""
    here = presence(reader)
    if here.whole:
        return []
    return [Missing(f"over {len(here.covered)}/{here.world} ranks only: see coverage")]


def _merge(places: list[dict[str, Any]]) -> dict[str, Any]:
    """{"rank": 0}, {"rank": 1} -> {"rank": [0, 1]}."""
    merged: dict[str, Any] = {}
    for dim in dict.fromkeys(name for place in places for name in place):
        values = list(dict.fromkeys(place[dim] for place in places if dim in place))
        merged[dim] = values[0] if len(values) == 1 else values
    return merged
