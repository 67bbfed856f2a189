"""A window that somebody asks for while the run goes on: ``DIR/trigger``. Standard library only.

Ranks do not talk to each other. The first one to see the file takes it away and writes down, as
``DIR/asked-N.json``, which steps that makes: far enough ahead for the others to read it in time.
"""

from __future__ import annotations

import contextlib
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from tracekit_collectors import log, records
from tracekit_collectors.options import Options, Recording

_EVERY_S = 1.0  # between two looks: a file that is not there costs a rank nothing that counts
_FURTHEST = 1000  # steps


@dataclass(frozen=True, slots=True)
class Asked:
    """What a trigger asks for. ``at_step`` None: as soon as all ranks can have heard of it."""

    active: int = 3
    warmup: int = 1
    at_step: int | None = None

    @classmethod
    def of(cls, said: Any, options: Options) -> Self:
        """What a file says; what it leaves open is as the run was started.

        Raises:
            ValueError: it says something else than numbers that make a window.
        """
        known = cls(options.active, options.warmup)
        if not isinstance(said, dict) or not set(said) <= set(cls.__dataclass_fields__):
            raise ValueError(f"not {', '.join(cls.__dataclass_fields__)}")
        values = asdict(known) | {name: value for name, value in said.items() if value is not None}
        least = {"active": 1, "warmup": 0, "at_step": 1}
        for name, value in values.items():
            if value is not None and (type(value) is not int or value < least[name]):
                raise ValueError(f"{name} is {value!r}: a number from {least[name]} on is wanted")
        return cls(**values)


class Trigger:
    """Looks for what is asked for, once a second.

    Args:
        directory: The run directory.
        options: As the run was started.
        now_s: The present time: of a clock that never goes back.
    """

    def __init__(self, directory: Path, options: Options, now_s: float) -> None:
        self._directory = directory
        self._options = options
        self._look_at = now_s
        self._began_s = now_s
        self._number = 0
        # What was asked for before this process began was not asked of it.
        while records.asked_path(directory, self._number + 1).exists():
            self._number += 1

    def look(self, steps: int, now_s: float) -> Recording | None:
        """A window that is asked for, when ``steps`` have ended."""
        if now_s < self._look_at:
            return None
        self._look_at = now_s + _EVERY_S
        window = self._heard(steps)
        if window is None:
            self._take(steps, (now_s - self._began_s) / max(steps, 1))
            window = self._heard(steps)
        return window

    def _take(self, steps: int, seconds_per_step: float) -> None:
        """Take a trigger away, unless another rank does, and write down what it comes to."""
        trigger = self._directory / records.TRIGGER_FILE
        mine = self._directory / f".{records.TRIGGER_FILE}.{os.getpid()}.partial"
        try:
            trigger.rename(mine)
        except OSError:  # none is there, or it is another's
            return
        try:
            text = mine.read_text(encoding="utf-8").strip()
            asked = Asked.of(json.loads(text) if text else {}, self._options)
        except (OSError, ValueError) as error:
            log.write(f"{trigger}: asks for nothing that can be done: {error}")
            return
        finally:
            with contextlib.suppress(OSError):
                mine.unlink()
        looks = math.ceil(2 * _EVERY_S / max(seconds_per_step, 1e-6))
        soonest = steps + asked.warmup + min(looks, _FURTHEST) + 1
        first = soonest if asked.at_step is None else asked.at_step
        window = {"first": first, "last": first + asked.active - 1, "warmup": asked.warmup}
        number = self._number + 1
        while (path := records.asked_path(self._directory, number)).exists():
            number += 1
        records.write_json(path, window)

    def _heard(self, steps: int) -> Recording | None:
        path = records.asked_path(self._directory, self._number + 1)
        try:
            said = json.loads(path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return None
        self._number += 1
        first, last, warmup = (int(said[name]) for name in ("first", "last", "warmup"))
        if steps > last:
            log.write(f"{path}: steps {first} to {last} have passed: the next ones are recorded")
            last += steps + warmup - first
            first = steps + warmup
        # Late, a rank does without the warm-up: the others record these steps.
        first = max(first, steps)
        return Recording(max(first - warmup, steps), first, last)
