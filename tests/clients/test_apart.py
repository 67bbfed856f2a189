"""Nobody waits because of us: no barrier, no collective and no network of our own (fault case I5).

What comes after what is arranged by files: one side goes on only when it sees what the other has
done. Were the other one held, the wait would end with a file named "stuck", after a minute.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.clients.runs import TORCHRUN, tracekit_run

pytest.importorskip("torch")
pytestmark = pytest.mark.torch

HEAD = """
import os, pathlib, sys, time, torch, torch.distributed as dist
here = pathlib.Path(__file__).parent
def wait(folder, pattern):
    end = time.monotonic() + 60
    while not list(folder.glob(pattern)):
        if time.monotonic() > end:
            (here / "stuck").write_text(pattern)
            return
        time.sleep(0.02)

dist.init_process_group("gloo")
torch.set_num_threads(1)
rank = dist.get_rank()
model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def steps(first, end):
    for step in range(first, end):
        optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
"""

# Rank 0 exports for as long as rank 1 trains, records, exports, packs and ends. They share steps 0
# to 5; from then on, rank 0 in its export, each trains alone: what they share would wait for it.
SLOW_EXPORT = (
    HEAD
    + """
if rank == 0:
    export = torch.profiler.profile.export_chrome_trace
    def slow(self, path):
        (here / "exports").touch()
        wait(here, "trained-1")
        wait(pathlib.Path(os.environ["TRACEKIT_RUN_DIR"]), "rank-1.*.trace.json.gz")
        export(self, path)
        (here / "exported").touch()
    torch.profiler.profile.export_chrome_trace = slow
steps(0, 6)
with model.no_sync():
    if rank == 1:
        wait(here, "exports")  # it is in its export, and stays there
    steps(6, 12)
assert rank == 0 or not (here / "exported").exists()
(here / f"trained-{rank}").touch()
"""
)

# And its packing, which is beside the training, for as long as it trains itself.
SLOW_PACKING = (
    HEAD
    + """
import zlib
pack = zlib.compressobj
def slow(*args, **kwargs):
    wait(here, f"trained-{rank}")
    return pack(*args, **kwargs)
zlib.compressobj = slow
steps(0, 12)
(here / f"trained-{rank}").touch()
"""
)


@pytest.mark.parametrize("script", [SLOW_EXPORT, SLOW_PACKING], ids=["export", "packing"])
def test_what_one_rank_takes_holds_nobody(tmp_path: Path, script: str) -> None:
    (tmp_path / "train.py").write_text(script)
    run = tracekit_run(tmp_path, *TORCHRUN, "2", str(tmp_path / "train.py"), options=("-q",))
    assert run.done.returncode == 0, run.done.stderr
    assert not (tmp_path / "stuck").exists(), (tmp_path / "stuck").read_text()
    assert len(list(tmp_path.glob("trained-*"))) == 2
    for manifest in run.manifests():
        assert (manifest["state"], manifest["steps_seen"]) == ("finished", 12)
        assert [window["steps"] for window in manifest["windows"]] == [[3, 4, 5]]


# Prints what the ranks have asked of each other. Python tells the hook of every use of a socket;
# who asked is the first on the stack that is not of the standard library. Of what C++ does it tells
# nothing: there the number of collectives is as without us, and so is that of the groups.
WATCHED = (
    """
import os, sys, sysconfig
STANDARD = os.path.realpath(sysconfig.get_path("stdlib"))
ours, seen = [], []
def watch(event, args):
    if not event.startswith("socket.") or event == "socket.gethostname":  # asks the kernel
        return
    seen.append(event)
    frame = sys._getframe(1)
    while frame is not None:
        path = os.path.realpath(frame.f_code.co_filename)
        if not path.startswith(STANDARD) or "site-packages" in path:
            break
        frame = frame.f_back
    if frame is not None and "tracekit_collectors" in frame.f_code.co_filename:
        ours.append((event, frame.f_code.co_filename))
sys.addaudithook(watch)
"""
    + HEAD
    + """
import socket
steps(0, 12)
socket.socket().close()
assert "socket.__new__" in seen, "the watch is asleep"
work = dist.group.WORLD._get_sequence_number_for_group()
print(f"rank {rank}: {work} collectives, {len(dist.distributed_c10d._world.pg_map)} groups, {ours}")
time.sleep(0.2)
"""
)


def test_ranks_are_asked_nothing_over_a_network(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(WATCHED)
    command = (*TORCHRUN, "2", str(tmp_path / "train.py"))
    alone = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    run = tracekit_run(tmp_path, *command, options=("-q", "--repeat", "2"))
    said = [sorted(line for line in out.splitlines()) for out in (alone.stdout, run.done.stdout)]
    assert said[1] == said[0]
    assert [line.split(",")[-1] for line in said[0]] == [" []"] * 2
    assert [len(manifest["windows"]) for manifest in run.manifests()] == [2, 2]


# The sockets of the whole process, whoever has opened them: none comes.
SOCKETS = """
import os
def sockets():
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            target = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if target.startswith("socket:"):
            found.add(target)
    return found
before = sockets()
import torch
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for step in range(12):
    optimizer.zero_grad(); model(torch.ones(4, 8)).sum().backward(); optimizer.step()
    assert sockets() <= before, step
"""


def test_no_socket_is_opened(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SOCKETS)
    command = (sys.executable, str(tmp_path / "train.py"))
    run = tracekit_run(tmp_path, *command, options=("-q", "--no-ingest", "--repeat", "2"))
    assert (run.done.returncode, run.done.stderr) == (0, "")
    assert len(run.manifests()[0]["windows"]) == 2
