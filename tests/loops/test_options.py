"""The loops' command lines: help and refusals, neither of which needs torch."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.loops.launch import LOOPS, environment, run

HELP_WITHOUT_TORCH = """
import runpy, sys
sys.modules["torch"] = None  # an import of it now fails
loop = sys.argv[1]
sys.argv = [loop, "--help"]
runpy.run_module("tracekit_loops." + loop, run_name="__main__")
"""


@pytest.mark.parametrize("loop", LOOPS)
def test_help_names_the_options_and_needs_no_torch(loop: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", HELP_WITHOUT_TORCH, loop],
        env=environment(),
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    for option in ("--steps", "--batch-size", "--seq-len", "--layers", "--hidden", "--heads"):
        assert option in done.stdout
    for option in ("--seed", "--lr", "--log-every", "--losses"):
        assert option in done.stdout
    assert "(default: None)" not in done.stdout


@pytest.mark.parametrize(
    ("loop", "options", "named"),
    [
        ("single", ["--steps", "0"], "--steps"),
        ("single", ["--steps", "many"], "--steps"),
        ("single", ["--lr", "inf"], "--lr"),
        ("single", ["--hidden", "30", "--heads", "4"], "--hidden"),
        ("single", ["--losses", "/no/such/folder/losses.json"], "--losses"),
        ("single", ["--pace", "60"], "--pace"),
        ("data", ["--bucket-mb", "-4"], "--bucket-mb"),
        ("data", ["--bucket-mb", "nan"], "--bucket-mb"),
        ("fsdp", ["--stage", "1"], "--stage"),
        ("pipeline", ["--schedule", "random"], "--schedule"),
        ("pipeline", ["--pace", "0"], "--pace"),
        ("pipeline", ["--batch-size", "8", "--microbatches", "3"], "--batch-size"),
        ("pipeline", ["--schedule", "1f1b", "--virtual-stages", "2"], "--virtual-stages"),
        ("pipeline", ["--schedule", "interleaved", "--layers", "3"], "--layers"),
        ("pipeline", ["--schedule", "zb-v", "--virtual-stages", "4"], "--virtual-stages"),
        ("pipeline", ["--schedule", "dualpipe-v", "--microbatches", "1"], "--microbatches"),
    ],
)
def test_a_bad_option_is_refused_in_one_line(loop: str, options: list[str], named: str) -> None:
    done = run(loop, 0, *options)
    assert done.returncode == 2
    assert done.stdout == ""
    assert len(done.stderr.splitlines()) == 1
    assert named in done.stderr


@pytest.mark.parametrize(
    ("loop", "options", "named"),
    [
        ("single", [], "without torchrun"),
        ("data", ["--batch-size", "6"], "--batch-size"),
        ("zero", ["--batch-size", "6"], "--batch-size"),
        ("fsdp", ["--batch-size", "6"], "--batch-size"),
        ("tensor", ["--heads", "2", "--hidden", "64"], "--heads"),
        ("pipeline", ["--layers", "6"], "--layers"),
        ("pipeline", ["--microbatches", "2"], "--microbatches"),
    ],
)
def test_what_four_ranks_cannot_share_is_refused_in_one_line(
    monkeypatch: pytest.MonkeyPatch, loop: str, options: list[str], named: str
) -> None:
    launched = environment() | {"RANK": "0", "WORLD_SIZE": "4"}
    monkeypatch.setattr("tests.loops.launch.environment", lambda: launched)
    done = run(loop, 0, *options)
    assert done.returncode == 2
    assert len(done.stderr.splitlines()) == 1
    assert named in done.stderr
