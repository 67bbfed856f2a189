"""Record the sample runs again: one small run of each reference loop.

python sample_traces/record.py [NAME...]

Each folder gets the run directory of `tracekit run`, a README with its command, and, from
`pytest tests/golden --update-goldens`, the answer of every analyzer. The name of the machine and
the absolute path in the trace are replaced, and the traces are packed as tightly as gzip can.
"""

from __future__ import annotations

import gzip
import re
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).parent
HOST = "node0"
SMALL = "--layers 4 --hidden 32 --heads 2 --seq-len 16 --batch-size 8 --steps 6"

# name -> (ranks, loop and its options)
SAMPLES = {
    "data_2": (2, f"data --bucket-mb 0.05 {SMALL}"),
    "tensor_2": (2, f"tensor {SMALL}"),
    "pipeline_gpipe_4": (4, f"pipeline --schedule gpipe --microbatches 8 --pace 20 {SMALL}"),
    "pipeline_1f1b_4": (4, f"pipeline --schedule 1f1b --microbatches 8 --pace 20 {SMALL}"),
    "pipeline_interleaved_2": (
        2,
        f"pipeline --schedule interleaved --microbatches 4 --pace 20 {SMALL}",
    ),
    "zero1_2": (2, f"zero {SMALL}"),
    "zero2_2": (2, f"fsdp --stage 2 {SMALL}"),
    "zero3_2": (2, f"fsdp --stage 3 {SMALL}"),
}


def record(name: str) -> None:
    ranks, loop = SAMPLES[name]
    # A 4-rank pipeline writes twice as much: one step of it is enough.
    active = 1 if ranks == 4 else 2
    command = (
        f"tracekit run --active {active} --no-ingest --run-dir {name} -- "
        f"torchrun --nproc-per-node {ranks} -m tracekit_loops.{loop}"
    )
    with tempfile.TemporaryDirectory() as scratch:
        subprocess.run(command.split(), cwd=scratch, check=True)
        target = HERE / name
        for old in [*target.glob("rank-*"), *target.glob("run.json")]:
            old.unlink()
        target.mkdir(exist_ok=True)
        for file in sorted((Path(scratch) / name).iterdir()):
            _copy(file, target)
    text = f"# {name}\n\nMade by `sample_traces/record.py`:\n\n```console\n$ {command}\n```\n"
    (target / "README.md").write_text(text, encoding="utf-8")


def _copy(file: Path, target: Path) -> None:
    # rank-0.HOST.PID.json: the pid goes too, so that a new recording changes no file's name.
    new = re.sub(r"^(rank-\d+)\.[^.]+\.\d+\.", rf"\1.{HOST}.1.", file.name)
    if file.name.endswith(".gz"):
        data = gzip.decompress(file.read_bytes())
        data = re.sub(rb'("traceName": )"[^"]*"', rb'\1"trace.json"', data)
        (target / new).write_bytes(gzip.compress(data, 9, mtime=0))
    elif file.suffix == ".json":
        text = file.read_text(encoding="utf-8")
        text = re.sub(r'"(rank-\d+)\.[^".]+\.\d+\.', rf'"\1.{HOST}.1.', text)
        text = text.replace(f'"{socket.gethostname()}"', f'"{HOST}"')
        (target / new).write_text(text, encoding="utf-8")
    else:
        shutil.copy(file, target / new)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or SAMPLES:
        record(chosen)
