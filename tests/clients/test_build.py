"""How the scanner is compiled: when, with what, what a failure says. The C is a stand-in."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDER = Path("tracekit") / "ingest" / "scan"

SOURCE = """
#include "seven.h"
__attribute__((visibility("default"))) int answer(void) { return SEVEN * 6; }
int hidden(void) { return 0; }
"""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """A source tree with a scanner of two lines; its library is not made yet."""
    (tmp_path / FOLDER).mkdir(parents=True)
    shutil.copy(ROOT / "hatch_build.py", tmp_path)
    (tmp_path / FOLDER / "answer.c").write_text(SOURCE)
    (tmp_path / FOLDER / "seven.h").write_text("#define SEVEN 7\n")
    return tmp_path


def build(tree: Path, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
    inherited = {key: value for key, value in os.environ.items() if key not in ("CC", "CFLAGS")}
    return subprocess.run(
        [sys.executable, "hatch_build.py", *arguments],
        cwd=tree, env={**inherited, **env}, capture_output=True, text=True, check=False,
    )  # fmt: skip


def library(tree: Path) -> Path:
    return tree / FOLDER / "_scan.so"


def age(path: Path, seconds: int) -> None:
    at = path.stat().st_mtime_ns - seconds * 10**9
    os.utime(path, ns=(at, at))


def test_it_compiles_in_place_and_hides_what_is_not_marked(tree: Path) -> None:
    done = build(tree)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    loaded = ctypes.CDLL(str(library(tree)))
    assert loaded.answer() == 7 * 6
    assert not hasattr(loaded, "hidden")
    assert sorted(path.name for path in (tree / FOLDER).iterdir()) == [
        "_scan.so", "answer.c", "seven.h",
    ]  # fmt: skip


@pytest.mark.parametrize("source", [FOLDER / "answer.c", FOLDER / "seven.h", "hatch_build.py"])
def test_only_a_newer_source_makes_it_stale(tree: Path, source: Path) -> None:
    assert build(tree, "--if-stale").returncode == 0
    for path in (tree / "hatch_build.py", *(tree / FOLDER).iterdir()):
        age(path, 100)
    made = library(tree).stat().st_mtime_ns
    assert build(tree, "--if-stale").returncode == 0
    assert library(tree).stat().st_mtime_ns == made
    age(tree / source, -200)
    assert build(tree, "--if-stale").returncode == 0
    assert library(tree).stat().st_mtime_ns != made


def test_cflags_come_last(tree: Path) -> None:
    (tree / FOLDER / "seven.h").write_text("#ifndef SEVEN\n#define SEVEN 7\n#endif\n")
    assert build(tree, CFLAGS="-DSEVEN=8").returncode == 0
    assert ctypes.CDLL(str(library(tree))).answer() == 8 * 6


def test_what_does_not_compile_is_one_error_with_the_compilers_words(tree: Path) -> None:
    assert build(tree).returncode == 0
    before = library(tree).read_bytes()
    (tree / FOLDER / "answer.c").write_text("int answer(void) { return nothing; }\n")
    done = build(tree)
    assert done.returncode == 1
    assert done.stderr.startswith("error: the scanner does not compile (exit status 1 of `")
    assert "nothing" in done.stderr
    assert "Traceback" not in done.stderr
    assert library(tree).read_bytes() == before


@pytest.mark.parametrize(
    ("env", "said"),
    [
        (
            {"CC": "/no/such/compiler -v"},
            "error: the C compiler '/no/such/compiler' does not start",
        ),
        ({"CC": "cc '"}, "error: $CC is no command line"),
        ({"CFLAGS": "-D'"}, "error: $CFLAGS is no command line"),
    ],
)
def test_an_environment_that_names_no_compiler(tree: Path, env: dict[str, str], said: str) -> None:
    done = build(tree, **env)
    assert done.returncode == 1
    assert done.stderr.startswith(said)
    assert done.stderr.count("\n") == 1


def test_no_source_is_an_error(tree: Path) -> None:
    (tree / FOLDER / "answer.c").unlink()
    done = build(tree)
    assert (done.returncode, done.stderr) == (1, f"error: {FOLDER} holds no .c file\n")


def test_a_compiler_is_asked_of_pypi_only_where_there_is_none(tree: Path) -> None:
    assert build(tree, "--requires", CC="cc").stdout == ""
    assert build(tree, "--requires", PATH=str(tree)).stdout.startswith("ziglang")
