"""The fixture of the fault tests: small traces in, a store and what it says of them out."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.builders import TraceBuilder
from tests.faults.store import Loaded, load

Cases = Callable[..., Loaded]


@pytest.fixture
def cases(tmp_path: Path) -> Iterator[Cases]:
    """``cases({name: bytes or trace, ...})``: a store of them all; see ``load``."""
    with contextlib.ExitStack() as stack:
        count = 0

        def loaded(files: Mapping[str, bytes | TraceBuilder], **options: Any) -> Loaded:
            nonlocal count
            count += 1
            return stack.enter_context(load(tmp_path / f"cases{count - 1}", files, **options))

        yield loaded
