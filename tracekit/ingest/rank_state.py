"""What the files of one rank have in common while they are loaded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Self

from tracekit.store import Writer


@dataclass(slots=True)
class RankState:
    """What the files of one rank have in common: its threads, and how far its numbers go."""

    rank: int
    events: int = 0
    memory_events: int = 0
    threads: dict[tuple[str, str], int] = field(default_factory=dict)
    thread_names: dict[int, str] = field(default_factory=dict)
    first_thread: int = 0  # threads before it are in the store already

    @classmethod
    def of(cls, writer: Writer, rank: int) -> Self:
        """Where an earlier ingest left off."""
        state = cls(rank)
        sql = "SELECT coalesce(max(event_id) + 1, 0) FROM event WHERE rank = $1"
        state.events = writer.scalar(sql, [rank])
        sql = "SELECT coalesce(max(ordinal) + 1, 0) FROM memory_event WHERE rank = $1"
        state.memory_events = writer.scalar(sql, [rank])
        sql = "SELECT pid, tid FROM thread WHERE rank = $1 ORDER BY thread_id"
        for pid, tid in writer.rows(sql, [rank]):
            state.threads[pid, tid] = len(state.threads)
        state.first_thread = len(state.threads)
        return state
