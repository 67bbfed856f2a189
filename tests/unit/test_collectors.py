"""The collectors' parts that need no torch: records, notes, log."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tracekit_collectors import log, note, notes, records


def run_python(code: str, **environment: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True,
        env={"PATH": "", **environment},
    )  # fmt: skip
    return done.stdout


def test_importing_the_collectors_loads_nothing() -> None:
    heavy = "('torch', 'duckdb', 'textual', 'pyarrow', 'rich', 'pynvml', 'tracekit')"
    code = f"import sys, tracekit_collectors; print([m for m in {heavy} if m in sys.modules])"
    assert run_python(code) == "[]\n"


def test_a_note_outside_a_capture_is_only_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notes, "_notes", {})
    note("pace_ms", 60)
    assert notes.stated() == {"pace_ms": 60}


def test_a_manifest_comes_back_as_it_was(tmp_path: Path) -> None:
    manifest = records.RankManifest(
        rank=3, world_size=4, local_rank=1, host="a", pid=7, device_kind="cpu",
        notes={"pace_ms": 60}, mesh=[records.MeshDim("pp", 3, 4, [0, 1, 2, 3])],
        model_state=[records.StateBytes("end", "params", "float32", 10, 40)],
        grads={"5": [[2**63 + 8, 40]]}, gathered=[[1, 2]],
    )  # fmt: skip
    records.write_manifest(tmp_path, "rank-3.a.7", manifest)
    assert records.read_manifest(tmp_path / "rank-3.a.7.json") == manifest
    assert [p.name for p in tmp_path.iterdir()] == ["rank-3.a.7.json"]


@pytest.mark.parametrize("text", ["[]", "{}", '{"format": 99, "rank": 0}', "nonsense"])
def test_what_is_no_manifest_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "rank-0.a.1.json").write_text(text)
    with pytest.raises(ValueError, match=r"."):
        records.read_manifest(tmp_path / "rank-0.a.1.json")


def test_a_log_that_cannot_be_written_is_let_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRACEKIT_RUN_DIR", "/nonexistent/folder")
    log.write("nothing happens")
    monkeypatch.delenv("TRACEKIT_RUN_DIR")
    log.write("nothing happens")
    assert not Path("/nonexistent").exists()


class TestNamesOfFiles:
    """Of machines with one name, and of containers that count their processes apart."""

    @pytest.fixture
    def machine(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
        boot, processes = tmp_path / "boot_id", tmp_path / "pid"
        boot.write_text("8f7e\n")
        processes.symlink_to("pid:[4026531836]")
        monkeypatch.setattr(records, "_BOOT", boot)
        monkeypatch.setattr(records, "_PROCESSES", processes)
        return boot, processes

    def test_none_is_used_twice(self, machine: tuple[Path, Path], tmp_path: Path) -> None:
        boot, processes = machine
        names = [records.stem(0), records.stem(0)]
        assert names[0] == names[1]
        processes.unlink()
        processes.symlink_to("pid:[4026532201]")
        names.append(records.stem(0))
        boot.write_text("9a01\n")
        names.append(records.stem(0))
        assert len(set(names)) == 3
        path = records.run_path(tmp_path, shared=True)
        assert records.is_run_file(path.name)
        assert all(records.is_ours(f"{name}.json") for name in names)

    def test_a_system_that_tells_neither(self, machine: tuple[Path, Path]) -> None:
        for path in machine:
            path.unlink()
        assert records.is_ours(f"{records.stem(3)}.trace.json.gz")
