"""The wheel that comes of the sdist, installed clean: everything imports, the scanner of traces
loads, and analysis and TUI work without torch."""

from __future__ import annotations

import json
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
SAMPLE = ROOT / "sample_traces" / "pipeline_1f1b_4"
SCANNER = "tracekit/ingest/scan/_scan.so"

IMPORT_ALL = """
import importlib, pkgutil, sys
names = []
for top in ("tracekit", "tracekit_collectors", "tracekit_loops", "tracekit_tui"):
    package = importlib.import_module(top)
    names.append(top)
    for found in pkgutil.walk_packages(package.__path__, top + "."):
        # _scan is the C library: a file for ctypes that pkgutil takes for a module.
        if found.name.rpartition(".")[2] in ("__main__", "sitecustomize", "_scan"):
            continue
        try:
            importlib.import_module(found.name)
        except ModuleNotFoundError as error:
            # The parts of the reference loops that are torch itself.
            assert error.name == "torch" and top == "tracekit_loops", (found.name, error)
        names.append(found.name)
assert "torch" not in sys.modules
print(len(names))
"""

LOAD_SCANNER = """
import ctypes, importlib.resources, sys
from pathlib import Path
library = Path(str(importlib.resources.files("tracekit") / "ingest" / "scan" / "_scan.so"))
assert library.is_relative_to(sys.prefix), library
ctypes.CDLL(str(library))
print("ok")
"""

TUI = """
import asyncio, sys
from pathlib import Path
from tracekit.store import open_run
from tracekit_tui.app import TracekitApp

async def main():
    with open_run(Path(sys.argv[1])) as reader:
        app = TracekitApp(reader)
        async with app.run_test(size=(100, 30)) as pilot:
            for key in "1234567":
                await pilot.press(key)
                await pilot.pause()
asyncio.run(main())
assert "torch" not in sys.modules
print("ok")
"""


@pytest.fixture(scope="module")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What a release would be: the sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(out), str(ROOT)],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    return out


@pytest.fixture(scope="module")
def wheel(dist: Path) -> Path:
    (built,) = dist.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Python that has the wheel and its requirements, and no torch."""
    home = tmp_path_factory.mktemp("clean") / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(home)], check=True)
    python = home / "bin" / "python"
    subprocess.run(
        [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
         "--constraint", str(ROOT / "constraints.txt"), str(wheel)],
        check=True,
    )  # fmt: skip
    return python


def run(python: Path, *arguments: str, cwd: Path) -> str:
    done = subprocess.run(
        [str(python), *arguments], cwd=cwd, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_wheel_holds_what_is_read_at_run_time(wheel: Path) -> None:
    names = set(zipfile.ZipFile(wheel).namelist())
    sources = {
        str(path.relative_to(base))
        for base, package in (
            (ROOT, "tracekit"),
            (ROOT / "collectors", "tracekit_collectors"),
            (ROOT / "collectors", "tracekit_loops"),
            (ROOT / "tui", "tracekit_tui"),
        )
        for path in (base / package).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    compiled = {name for name in sources if name.endswith((".c", ".h"))}
    assert compiled
    assert sources - compiled <= names
    assert SCANNER in names
    assert not compiled & names
    assert not any(name.startswith(("tests/", "sample_traces/")) for name in names)


def test_the_wheel_is_of_one_platform_and_of_every_python(wheel: Path) -> None:
    machine = sysconfig.get_platform().replace("-", "_").replace(".", "_")
    if machine.startswith("linux"):
        assert wheel.name.endswith(f"-py3-none-{machine}.whl")
    assert not wheel.name.endswith("-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        (member,) = (name for name in archive.namelist() if name.endswith(".dist-info/WHEEL"))
        facts = archive.read(member).decode().splitlines()
    assert "Root-Is-Purelib: false" in facts
    assert [fact for fact in facts if fact.startswith("Tag: ")] == [
        f"Tag: {wheel.stem.split('-', 2)[2]}"
    ]


def test_the_sdist_holds_the_scanners_sources_and_nothing_compiled(dist: Path) -> None:
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        names = {name.partition("/")[2] for name in tar.getnames()}
    sources = {
        str(path.relative_to(ROOT))
        for path in (ROOT / SCANNER).parent.iterdir()
        if path.suffix in (".c", ".h")
    }
    assert sources | {"hatch_build.py"} <= names
    assert not any(name.endswith(".so") for name in names)


def test_the_scanner_loads(python: Path, tmp_path: Path) -> None:
    assert run(python, "-c", LOAD_SCANNER, cwd=tmp_path) == "ok\n"


def test_every_module_imports(python: Path, tmp_path: Path) -> None:
    assert int(run(python, "-c", IMPORT_ALL, cwd=tmp_path)) > 50


def test_analysis_without_torch(python: Path, tmp_path: Path) -> None:
    binary = python.parent / "tracekit"
    subprocess.run(
        [str(binary), "ingest", str(SAMPLE), "-o", "run.db"],
        cwd=tmp_path, check=True, capture_output=True,
    )  # fmt: skip
    for expected in sorted((SAMPLE / "expected").glob("*.json")):
        done = subprocess.run(
            [str(binary), "report", "run.db", "-a", expected.stem, "--format", "json"],
            cwd=tmp_path, capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert json.loads(done.stdout) == json.loads(expected.read_text())
    assert run(python, "-c", TUI, "run.db", cwd=tmp_path) == "ok\n"


@pytest.mark.parametrize("loop", ["single", "data", "tensor", "pipeline", "zero", "fsdp"])
def test_the_loops_explain_themselves_without_torch(
    python: Path, tmp_path: Path, loop: str
) -> None:
    out = run(python, "-m", f"tracekit_loops.{loop}", "--help", cwd=tmp_path)
    assert "--seed" in out
