"""DeepSpeed's pipeline engine: two stages, each of two tensor parts."""

import time

import deepspeed
import torch
from deepspeed.pipe import PipelineModule
from deepspeed.runtime.pipe.topology import PipeModelDataParallelTopology

# An extension for inference that would be compiled here first, for minutes.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.set_num_threads(1)
deepspeed.init_distributed()
torch.manual_seed(0)
model = PipelineModule(
    [torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 8), torch.nn.Linear(8, 1)],
    topology=PipeModelDataParallelTopology(num_pp=2, num_mp=2, num_dp=1),
    loss_fn=torch.nn.functional.mse_loss,
)
engine, *_ = deepspeed.initialize(
    model=model,
    config={
        "train_micro_batch_size_per_gpu": 4,
        "gradient_accumulation_steps": 2,
        "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
    },
)
batches = iter([(torch.ones(4, 8), torch.ones(4, 1))] * 100)
for _ in range(7):
    engine.train_batch(batches)
torch.distributed.barrier()
torch.distributed.destroy_process_group()
time.sleep(0.2)
