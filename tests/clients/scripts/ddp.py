"""Data parallelism by DistributedDataParallel, in the ways that scripts differ.

plain; accumulate: three micro-batches a step; two: two networks with an optimizer each; scaler: a
GradScaler that skips one step of eleven; nothing: a collective and no training.
"""

import contextlib
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

dist.init_process_group("gloo")
torch.set_num_threads(1)


def network():
    layers = torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 32)
    return DistributedDataParallel(torch.nn.Sequential(*layers))


def train(kind):
    torch.manual_seed(0)
    first, second = network(), network()
    optimizers = [
        torch.optim.AdamW(first.parameters(), lr=1e-3),
        torch.optim.SGD(second.parameters(), lr=1e-3),
    ]
    scaler = torch.amp.GradScaler("cpu", enabled=kind == "scaler", init_scale=2.0)
    micro = 3 if kind == "accumulate" else 1
    x = torch.randn(16, 32)
    for number in range(11 if kind == "scaler" else 10):
        for part in range(micro):
            with first.no_sync() if part < micro - 1 else contextlib.nullcontext():
                loss = (first(x) ** 2).mean()
                skipped = kind == "scaler" and number == 1
                scaler.scale(loss * float("inf") if skipped else loss).backward()
        scaler.step(optimizers[0])
        scaler.update()
        optimizers[0].zero_grad()
        if kind == "two":
            loss = (second(first(x).detach()) ** 2).mean()
            loss.backward()
            optimizers[1].step()
            optimizers[1].zero_grad()
    return loss.item()


for kind in sys.argv[1:]:
    if kind == "nothing":
        nothing = torch.zeros(1)
        dist.all_reduce(nothing)
        loss = nothing.item()
    else:
        loss = train(kind)
    if dist.get_rank() == 0:
        print(f"final {kind} {loss:.9f}", flush=True)
dist.destroy_process_group()
# torch 2.13 on its own aborts now and then when gloo's threads meet the end of a short process.
time.sleep(0.2)
