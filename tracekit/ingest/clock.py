"""Align the clocks of hosts from the ends of collectives that no rank can leave before all came.

The raw times are kept; the offsets are a view on them. Ranks of one host share a clock. A rank
whose host is unknown is its own clock domain.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tracekit.store import Writer

MIN_SAMPLES = 5
_BY_SEQUENCE = "seq:"

# Ends of operations that cannot end anywhere before every rank has arrived: never broadcast,
# reduce or point to point. The same sequence number within a group is the same collective on all
# ranks; where a trace has none, the k-th of an operation is.
_ENDS = """
    SELECT
        CASE WHEN a.seq IS NOT NULL THEN 'seq:' ELSE '' END
            || coalesce(a.group_name || ':' || coalesce(a.group_ranks, ''), '') AS members,
        w.operation,
        coalesce(a.seq, row_number() OVER (
            PARTITION BY w.rank, members, w.operation ORDER BY w.start_ns, w.event_id
        )) AS ordinal,
        w.rank, w.end_ns
    FROM work AS w
    LEFT JOIN comm_args AS a USING (rank, event_id)
    WHERE w.class = 'communication'
        AND w.operation IN
            ('all_reduce', 'all_gather', 'reduce_scatter', 'all_to_all', 'barrier')
"""


@dataclass(frozen=True, slots=True)
class Offset:
    """How far a clock domain is ahead of the reference, and how well that is known."""

    offset_ns: int
    spread_ns: int | None
    samples: int
    aligned: bool
    note: str


def estimate(
    domains: Mapping[int, str], ends: Sequence[tuple[str, str, int, int, int]]
) -> dict[str, Offset]:
    """Offsets of the domains against the one of the lowest rank.

    Args:
        domains: rank -> clock domain.
        ends: (members, operation, ordinal, rank, end_ns) of each collective on each rank; the
            ordinal is the sequence number where members begin with ``seq:``.
    """
    reference = domains[min(domains)]
    # A group that ran an operation more often on one rank than on another cannot be matched.
    counts: dict[tuple[str, str], dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for members, operation, _, rank, _ in ends:
        counts[members, operation][rank] += 1
    matched = {
        key
        for key, per_rank in counts.items()
        if key[0].startswith(_BY_SEQUENCE) or len(set(per_rank.values())) == 1
    }
    by_collective: dict[tuple[str, str, int], dict[str, list[int]]] = defaultdict(
        lambda: defaultdict(list)
    )
    for members, operation, ordinal, rank, end_ns in ends:
        if (members, operation) in matched:
            by_collective[members, operation, ordinal][domains[rank]].append(end_ns)
    samples: dict[str, list[int]] = defaultdict(list)
    for per_domain in by_collective.values():
        if reference in per_domain:
            base = min(per_domain[reference])
            for domain, found in per_domain.items():
                samples[domain].append(min(found) - base)
    return {
        domain: _offset(domain, reference, samples[domain])
        for domain in dict.fromkeys(domains.values())
    }


def _offset(domain: str, reference: str, samples: list[int]) -> Offset:
    if domain == reference:
        return Offset(0, 0, len(samples), True, "reference clock")
    if len(samples) < MIN_SAMPLES:
        return Offset(
            0,
            None,
            len(samples),
            False,
            f"not aligned: {len(samples)} collectives in common with the reference, "
            f"{MIN_SAMPLES} are needed",
        )
    middle = statistics.median_low(samples)
    spread = statistics.median_low([abs(sample - middle) for sample in samples])
    if abs(middle) <= 3 * spread:
        return Offset(0, spread, len(samples), True, "no offset beyond the spread of the samples")
    return Offset(middle, spread, len(samples), True, "from the ends of collectives")


def align(writer: Writer) -> None:
    """Fill in the clock of each rank."""
    hosts = writer.rows("SELECT rank, host FROM rank ORDER BY rank")
    if not hosts:
        return
    domains = {rank: host if host is not None else f"rank {rank}" for rank, host in hosts}
    ends = writer.rows(_ENDS) if len(set(domains.values())) > 1 else []
    offsets = estimate(domains, ends)
    rows = []
    for rank, domain in domains.items():
        found = offsets[domain]
        rows.append(
            (
                rank,
                domain,
                found.offset_ns,
                found.spread_ns,
                found.samples,
                found.aligned,
                found.note,
            )
        )
    writer.execute("CREATE TEMP TABLE _clock AS FROM clock LIMIT 0")
    writer.insert("_clock", rows)
    writer.execute("""
        UPDATE rank SET clock_domain = c.domain, clock_offset_ns = c.offset_ns,
            clock_spread_ns = c.spread_ns, clock_samples = c.samples, clock_aligned = c.aligned,
            clock_note = c.note
        FROM _clock AS c WHERE rank.rank = c.rank
    """)
