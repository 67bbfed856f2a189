"""DeepSpeed's engine with one ZeRO stage after the other, two micro-batches a step."""

import sys
import time

import deepspeed
import torch

# An extension for inference that would be compiled here first, for minutes.
deepspeed.ops.__compatible_ops__["deepspeed_shm_comm"] = False
torch.set_num_threads(1)
for stage in [text for text in sys.argv[1:] if not text.startswith("--")]:
    torch.manual_seed(0)
    layers = [torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)]
    engine, *_ = deepspeed.initialize(
        model=torch.nn.Sequential(*layers),
        config={
            "train_micro_batch_size_per_gpu": 4,
            "gradient_accumulation_steps": 2,
            "optimizer": {"type": "AdamW", "params": {"lr": 1e-3, "torch_adam": True}},
            "zero_optimization": {"stage": int(stage)},
        },
    )
    x = torch.randn(4, 32)
    y = x.sum(1, keepdim=True)
    for _ in range(20):
        loss = torch.nn.functional.mse_loss(engine(x), y)
        engine.backward(loss)
        engine.step()
    if torch.distributed.get_rank() == 0:
        print(f"final {stage} {loss.item():.9f}", flush=True)
torch.distributed.destroy_process_group()
time.sleep(0.2)
