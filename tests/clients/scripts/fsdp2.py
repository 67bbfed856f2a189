"""Fully sharded data parallelism by torch's own fully_shard."""

import time

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

dist.init_process_group("gloo")
torch.set_num_threads(1)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1))
for layer in (model[0], model[2]):
    fully_shard(layer)
fully_shard(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
x = torch.randn(16, 32)
for _ in range(10):
    loss = (model(x) ** 2).mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
if dist.get_rank() == 0:
    print(f"final {loss.item():.9f}", flush=True)
dist.destroy_process_group()
time.sleep(0.2)
