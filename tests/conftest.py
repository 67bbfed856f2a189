"""What the whole suite shares: traces into a reader, and the folder that only our machines have."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.builders import TraceBuilder
from tracekit.ingest.run import ingest
from tracekit.store import Reader, open_run

SHARED = Path(__file__).parent.parent.parent / "shared"

# pytest-xdist gives its workers a width, and with it tables would be fitted to a terminal.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.pop("COLUMNS", None)

Load = Callable[..., Reader]
Golden = Callable[[Path, str], None]


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--update-goldens", action="store_true", help="Write the golden files instead of comparing."
    )


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """``golden(path, text)``: the file must hold exactly this text."""

    def compare(path: Path, text: str) -> None:
        if request.config.getoption("--update-goldens"):
            assert not os.environ.get("CI"), "CI compares, it never writes"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"{path}: missing; run `make goldens` and read the difference"
        assert path.read_text(encoding="utf-8") == text

    return compare


@pytest.fixture
def load(tmp_path: Path) -> Iterator[Load]:
    """``load(trace, ...)``: write the traces as rank0.json, ... and open their store."""
    readers: list[Reader] = []

    def _load(*traces: TraceBuilder, device: str | None = None, layout: str = "kineto") -> Reader:
        folder = tmp_path / f"run{len(readers)}"
        folder.mkdir()
        for number, trace in enumerate(traces):
            trace.write(folder / f"rank{number}.json", layout=layout)  # type: ignore[arg-type]
        return _open([folder], device)

    def _open(paths: list[Path], device: str | None = None) -> Reader:
        database = tmp_path / f"run{len(readers)}.db"
        ingest(paths, database, device=device)
        readers.append(open_run(database))
        return readers[-1]

    _load.paths = _open  # type: ignore[attr-defined]
    yield _load
    for reader in readers:
        reader.close()


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of real traces and oracles. A user has none of it; our CI must have it."""
    if not SHARED.is_dir():
        if os.environ.get("TRACEKIT_REQUIRE_SHARED"):
            pytest.fail(f"{SHARED} is missing, and this environment requires it")
        pytest.skip("needs the shared folder of real traces")
    return SHARED
