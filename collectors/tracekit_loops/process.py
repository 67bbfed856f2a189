"""One rank's place in the run: device, backend, process group, and the loss it reports.

Everything about ranks that is not a paradigm. The loops import it after their options are
parsed, because it imports torch.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh

from tracekit_loops import options


@dataclass(frozen=True, slots=True)
class Process:
    """Who this process is and where it computes."""

    rank: int
    world_size: int
    device: torch.device
    mesh: DeviceMesh

    def share(self, batch: Tensor) -> Tensor:
        """This rank's rows of the global batch, on its device."""
        rows = batch.shape[0] // self.world_size
        return batch[self.rank * rows :][:rows].to(self.device)


@contextmanager
def joined(dimension: str) -> Iterator[Process]:
    """Join the run as one rank of a mesh with one dimension, and leave it again.

    NCCL on GPUs where this host has one for each of its ranks, else gloo on the CPU. A process
    that no launcher started is a run of its own: one rank, no port opened.
    """
    launched = options.launched()
    rank, world_size = options.rank(), options.world_size()
    local_rank = int(os.environ.get("LOCAL_RANK", "0")) if launched else 0
    local_world_size = int(os.environ.get("LOCAL_WORLD_SIZE", world_size)) if launched else 1
    if torch.cuda.is_available() and torch.cuda.device_count() >= local_world_size:
        device = torch.device("cuda", local_rank)
        torch.cuda.set_device(device)
        backend = "nccl"
    else:
        device = torch.device("cpu")
        backend = "gloo"
        if world_size > 1:
            # Ranks that share the cores would otherwise each start a thread a core.
            torch.set_num_threads(1)
    dist.init_process_group(
        backend,
        rank=rank,
        world_size=world_size,
        store=None if launched else dist.HashStore(),  # type: ignore[attr-defined]
        device_id=device if device.type == "cuda" else None,
    )
    mesh = init_device_mesh(device.type, (world_size,), mesh_dim_names=(dimension,))
    yield Process(rank, world_size, device, mesh)
    # Not after an exception: a rank that fails must not wait here for peers that wait for it.
    dist.destroy_process_group()
    # A gloo thread may still hold a Python object of the last collective. Where the interpreter
    # shuts down first, torch 2.13 aborts: asleep, this thread lets the other one have it.
    time.sleep(0.05)


def adamw(parameters: Iterable[nn.Parameter], lr: float) -> torch.optim.AdamW:
    """The optimizer of every loop.

    One parameter at a time, since the grouped kernels refuse a mixture of plain tensors and
    DTensors, and so that all paradigms do the same arithmetic.
    """
    return torch.optim.AdamW(parameters, lr=lr, foreach=False)


class LossCurve:
    """Collects a loss a step; one rank prints `step N loss X` and writes the curve.

    `average` is for ranks that each see a share of the batch: the losses are averaged over the
    ranks, and only on steps that print, so that a larger `--log-every` takes this collective
    out of the steps between.
    """

    def __init__(
        self, args: argparse.Namespace, here: Process, *, speaker: int = 0, average: bool = False
    ) -> None:
        self._steps: int = args.steps
        self._log_every: int = args.log_every
        self._file = args.losses
        self._seed: int = args.seed
        self._here = here
        self._speaks = here.rank == speaker
        self._average = average and here.world_size > 1
        self._pending: list[Tensor] = []
        self._losses: list[float] = []

    def add(self, loss: Tensor | None) -> None:
        """The next step's loss; None on ranks that never see one."""
        if loss is None:
            return
        self._pending.append(loss.detach())
        step = len(self._losses) + len(self._pending)
        if step != 1 and step % self._log_every and step != self._steps:
            return
        # Double, so that the average adds no rounding to the losses it averages.
        losses = torch.stack(self._pending).double()
        self._pending.clear()
        if self._average:
            dist.all_reduce(losses)
            losses /= self._here.world_size
        self._losses += losses.tolist()
        if self._speaks:
            print(f"step {step} loss {self._losses[-1]:.4f}", flush=True)

    def save(self) -> None:
        """Write the curve where `--losses` says."""
        if self._speaks and self._file is not None:
            curve = {
                "world_size": self._here.world_size,
                "seed": self._seed,
                "losses": self._losses,
            }
            self._file.write_text(json.dumps(curve) + "\n", encoding="ascii")
