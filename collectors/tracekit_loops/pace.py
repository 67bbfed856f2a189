"""A pipeline stage whose every action lasts a nominal time.

For machines with fewer cores than stages, where real compute says nothing about a schedule: an
action that sleeps up to its nominal time needs no core of its own. The sleep is inside the
action, around its compute and before its result is sent, as slower compute would be.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.distributed.pipelining import PipelineStage


class PacedStage(PipelineStage):
    """Forward, backward, and each half of a split backward take `pace_s` seconds, or longer."""

    def __init__(self, *args: Any, pace_s: float = 0.0, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._pace_s = pace_s

    @contextmanager
    def _paced(self) -> Iterator[None]:
        start = time.perf_counter()
        # A quarter of the sleep comes first: actions of several stages begin at the same moment,
        # and compute that began at once would hold the cores that their transfers still need.
        time.sleep(self._pace_s / 4)
        yield
        if self._pace_s and self.device.type == "cuda":
            torch.cuda.synchronize(self.device)
        remaining = self._pace_s - (time.perf_counter() - start)
        if remaining > 0.0:
            time.sleep(remaining)

    # The schedules receive an action's input before they call it, so these are compute alone.

    def forward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self._paced():
            return super().forward_one_chunk(*args, **kwargs)

    def backward_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self._paced():
            return super().backward_one_chunk(*args, **kwargs)

    def backward_weight_one_chunk(self, *args: Any, **kwargs: Any) -> Any:
        with self._paced():
            return super().backward_weight_one_chunk(*args, **kwargs)
