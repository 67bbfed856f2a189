"""One golden file per format of the report."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import Golden
from tests.synthetic import pipeline_run
from tracekit.ingest.run import ingest

HERE = Path(__file__).parent


@pytest.mark.parametrize(
    ("form", "suffix"),
    [("table", "txt"), ("json", "json"), ("csv", "csv"), ("markdown", "md")],
)
def test_report(tmp_path: Path, golden: Golden, form: str, suffix: str) -> None:
    pipeline_run(tmp_path / "traces", schedule="1f1b", p=2, m=4)
    ingest([tmp_path / "traces"], tmp_path / "run.db")
    done = subprocess.run(
        [sys.executable, "-m", "tracekit", "report", "run.db", "--format", form],
        cwd=tmp_path, capture_output=True, text=True, check=True,
        env={name: value for name, value in os.environ.items() if name != "COLUMNS"},
    )  # fmt: skip
    golden(HERE / f"report.{suffix}", done.stdout)
