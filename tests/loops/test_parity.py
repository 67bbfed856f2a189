"""Every paradigm trains the same model: its losses are those of the one-process loop.

Same weights, same text, same optimizer; what remains is the order in which fp32 sums are formed
(over ranks, micro-batches and split matrices). A loss is itself an fp32 number, whose spacing is
1.2e-7 of its value. The largest difference seen in 8 to 12 steps, over several sizes, seeds and
learning rates, is 2.4e-7. TOLERANCE leaves a factor of ten for the kernels of other CPUs; a true
mistake (a row that is trained twice, a micro-batch dropped) shows at 1e-3 and above.

What it cannot see: AdamW divides by the size of the gradient, so a gradient that is wrong by a
constant factor everywhere gives the same losses.
"""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.loops.launch import command, environment, losses

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

TOLERANCE = 2.5e-6
SMALL = (
    *("--steps", "8", "--batch-size", "8", "--lr", "0.01"),
    *("--seq-len", "32", "--layers", "4", "--hidden", "64", "--heads", "4"),
)


@pytest.fixture(scope="module")
def one_process(tmp_path_factory: pytest.TempPathFactory) -> list[float]:
    """The curve that all others have to reproduce."""
    return losses(tmp_path_factory.mktemp("single"), "single", 0, *SMALL)


def test_losses_fall(one_process: list[float]) -> None:
    # 32 characters: a model that knows nothing pays ln(32) = 3.47 nats for each.
    assert one_process[0] == pytest.approx(3.47, abs=0.1)
    assert one_process[-1] < 2.0


def test_another_seed_is_another_curve(tmp_path: Path, one_process: list[float]) -> None:
    other = losses(tmp_path, "single", 0, *SMALL, "--seed", "1")
    assert all(a != pytest.approx(b, rel=1e-4) for a, b in zip(other, one_process, strict=True))
    assert other[-1] < 2.0


@pytest.mark.parametrize(
    ("ranks", "loop", "options"),
    [
        pytest.param(2, "data", [], id="data"),
        # 0.1 MB: several buckets of the 0.8 MB of gradients.
        pytest.param(4, "data", ["--bucket-mb", "0.1"], id="data-4-ranks-small-buckets"),
        pytest.param(2, "tensor", [], id="tensor"),
        pytest.param(2, "tensor", ["--sequence"], id="tensor-sequence"),
        pytest.param(2, "pipeline", ["--schedule", "gpipe"], id="gpipe"),
        pytest.param(2, "pipeline", ["--schedule", "1f1b", "--microbatches", "4"], id="1f1b"),
        pytest.param(2, "pipeline", ["--schedule", "interleaved"], id="interleaved-2x2"),
        pytest.param(2, "pipeline", ["--schedule", "looped-bfs"], id="looped-bfs-2x2"),
        pytest.param(2, "pipeline", ["--schedule", "interleaved-zb"], id="interleaved-zb-2x2"),
        pytest.param(2, "pipeline", ["--schedule", "zb-v"], id="zb-v-2"),
        pytest.param(2, "pipeline", ["--schedule", "dualpipe-v"], id="dualpipe-v-2"),
        pytest.param(2, "zero", [], id="zero-1"),
        pytest.param(2, "fsdp", ["--stage", "2"], id="zero-2"),
        pytest.param(2, "fsdp", ["--stage", "3"], id="zero-3"),
    ],
)
def test_same_losses_as_one_process(
    tmp_path: Path, one_process: list[float], ranks: int, loop: str, options: list[str]
) -> None:
    curve = losses(tmp_path, loop, ranks, *SMALL, *options)
    assert curve == pytest.approx(one_process, rel=TOLERANCE, abs=0.0)


def test_a_paced_action_takes_its_time() -> None:
    options = ("--pace", "20", "--microbatches", "4", "--layers", "1", "--steps", "3")
    with subprocess.Popen(
        command("pipeline", 0, *SMALL, *options),
        env=environment(),
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        printed_at = [time.monotonic() for _ in process.stdout]
    assert process.returncode == 0
    # Two steps, each 4 forward and 4 backward passes of 20 ms; the first step warms up.
    assert printed_at[2] - printed_at[0] >= 2 * (4 + 4) * 0.020
