"""Where a rank stands in the mesh, from frameworks that keep process groups of their own."""

from __future__ import annotations

import sys
import types
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.clients.environment import frameworks
from tests.clients.runs import TORCHRUN, Run, tracekit_run
from tracekit.store import open_run
from tracekit_collectors import log, parallel_state

SCRIPTS = Path(__file__).parent / "scripts"


@pytest.mark.torch
class TestFourRanks:
    """The real packages, on four ranks with gloo: two tensor parts of each of two stages.

    Both number the tensor parts fastest: the stages are ranks 0, 1 and ranks 2, 3.
    """

    def run(self, folder: Path, script: str) -> Run:
        pytest.importorskip("torch")
        python = str(frameworks() / "python")
        command = (python, *TORCHRUN[1:], "4", str(SCRIPTS / script))
        run = tracekit_run(folder, *command, options=("-q", "--wait", "0", "--active", "2"))
        assert run.done.returncode == 0, run.done.stderr[-3000:]
        assert not (run.directory / "tracekit.log").exists()
        with open_run(run.database) as reader:
            found = reader.rows("""
                SELECT dim, rank, coord, size, ranks FROM mesh WHERE dim IN ('tp', 'pp', 'dp')
                ORDER BY ALL
            """)
        stages, tensors = ([0, 1], [2, 3]), ([0, 2], [1, 3])
        assert found == [
            *(("dp", rank, 0, 1, [rank]) for rank in range(4)),
            *(("pp", rank, rank // 2, 2, tensors[rank % 2]) for rank in range(4)),
            *(("tp", rank, rank % 2, 2, stages[rank // 2]) for rank in range(4)),
        ]
        return run

    def test_megatron_core(self, tmp_path: Path) -> None:
        self.run(tmp_path, "megatron_mesh.py")

    def test_deepspeed(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        """Its groups say nothing of themselves: the mesh tells what they are."""
        monkeypatch.setenv("DS_ACCELERATOR", "cpu")
        run = self.run(tmp_path, "deepspeed_pipe.py")
        with open_run(run.database) as reader:
            found = reader.rows("""
                SELECT DISTINCT rank, ranks, dim FROM process_group
                WHERE description IS NULL AND size = 2 AND rank IN (0, 3) ORDER BY ALL
            """)
        assert found == [
            (0, [0, 1], "tp"), (0, [0, 2], "pp"), (3, [1, 3], "pp"), (3, [2, 3], "tp"),
        ]  # fmt: skip


class TestReading:
    """Stand-ins with the names of megatron-core 0.16 and deepspeed 0.19, for what would take a
    training of its own: the groups are strings."""

    @pytest.fixture(autouse=True)
    def nothing_said(self) -> Iterator[None]:
        yield
        parallel_state._said.clear()
        log.write_to(None)

    @pytest.fixture
    def deepspeed(self, monkeypatch: pytest.MonkeyPatch) -> types.ModuleType:
        module = types.ModuleType("deepspeed.utils.groups")
        module.mpu = None  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "deepspeed.utils.groups", module)
        return module

    def test_nothing_is_loaded(self) -> None:
        assert list(parallel_state.groups()) == []
        assert not {name.split(".")[0] for name in sys.modules} & {"megatron", "deepspeed"}

    def test_before_there_are_groups(
        self, deepspeed: types.ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        def none_yet() -> str:
            raise AssertionError("data parallel group is not initialized")

        megatron = types.ModuleType("megatron.core.parallel_state")
        for module in (megatron, deepspeed):
            module.get_data_parallel_group = none_yet  # type: ignore[attr-defined]
        monkeypatch.setitem(sys.modules, "megatron.core.parallel_state", megatron)
        log.write_to(tmp_path)
        assert list(parallel_state.groups()) == []
        assert not list(tmp_path.iterdir())

    def test_what_makes_a_group_is_not_called(self, deepspeed: types.ModuleType) -> None:
        """DeepSpeed's _get_data_parallel_group clones the world where there is no group."""

        def makes_one() -> str:
            pytest.fail("this would be a collective")

        deepspeed._get_data_parallel_group = makes_one  # type: ignore[attr-defined]
        deepspeed._clone_world_group = makes_one  # type: ignore[attr-defined]
        assert list(parallel_state.groups()) == []

    def test_ulysses_and_experts(self, deepspeed: types.ModuleType) -> None:
        class Mesh:
            def get_group(self, mesh_dim: str) -> str:
                return {"data_parallel": "d", "sequence_parallel": "s"}[mesh_dim]

        vars(deepspeed).update(mesh_device=Mesh(), _EXPERT_PARALLEL_GROUP={"ep_size_2": "e"})
        assert dict(parallel_state.groups()) == {"dp": "d", "cp": "s", "ep": "e"}
        vars(deepspeed).update(_EXPERT_PARALLEL_GROUP={"ep_size_2": "e", "ep_size_4": "f"})
        assert "ep" not in dict(parallel_state.groups())

    def test_an_mpu_that_fails(self, deepspeed: types.ModuleType, tmp_path: Path) -> None:
        """One line for each, and only once, and the rest is read."""

        class Mpu:
            @property
            def get_tensor_model_parallel_group(self) -> object:
                raise RuntimeError("no such thing")

            def get_model_parallel_group(self) -> str:
                return "m"

            def get_data_parallel_group(self) -> str:
                raise RuntimeError("gone\nand away")

        deepspeed.mpu = Mpu()  # type: ignore[attr-defined]
        log.write_to(tmp_path)
        for _ in range(2):
            assert list(parallel_state.groups()) == [("tp", "m")]
        lines = (tmp_path / "tracekit.log").read_text().splitlines()
        assert [line.split(": ", 1)[1] for line in lines] == [
            "deepspeed mpu: no group of dp: RuntimeError: gone and away"
        ]
