"""The sample runs and their answers: every analyzer on every reference loop, to the last digit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.conftest import Golden, Load
from tracekit.analysis.registry import ANALYZERS
from tracekit.present.structured import as_record

SAMPLES = Path(__file__).parent.parent.parent / "sample_traces"
NAMES = sorted(path.parent.name for path in SAMPLES.glob("*/README.md"))


def test_there_is_a_sample_of_each_loop() -> None:
    assert NAMES == [
        "data_2", "pipeline_1f1b_4", "pipeline_gpipe_4", "pipeline_interleaved_2", "tensor_2",
        "zero1_2", "zero2_2", "zero3_2",
    ]  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_answers(name: str, load: Load, golden: Golden) -> None:
    reader = load.paths([SAMPLES / name])  # type: ignore[attr-defined]
    assert reader.rows("FROM damage") == []
    for analyzer in ANALYZERS:
        record = as_record(analyzer.run(reader))
        golden(
            SAMPLES / name / "expected" / f"{analyzer.name}.json",
            json.dumps(record, indent=1, ensure_ascii=False) + "\n",
        )


@pytest.mark.parametrize("name", NAMES)
def test_samples_are_small_and_name_no_machine(name: str) -> None:
    files = [path for path in (SAMPLES / name).rglob("*") if path.is_file()]
    assert sum(path.stat().st_size for path in files) < 600_000
    for path in files:
        if path.suffix == ".json":
            assert "/tmp/" not in path.read_text()
