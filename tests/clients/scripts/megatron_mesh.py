"""A training in Megatron-core's parallel state: two tensor parts of two pipeline stages."""

import time

import torch
import torch.distributed as dist

# Megatron-core compiles its fused functions where it defines them; none of them runs here, and
# loading the compiler would take each rank 2 s.
torch.compile = lambda function: function
from megatron.core import parallel_state  # noqa: E402

torch.set_num_threads(1)
dist.init_process_group("gloo")
parallel_state.initialize_model_parallel(
    tensor_model_parallel_size=2, pipeline_model_parallel_size=2
)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for _ in range(7):
    optimizer.zero_grad()
    model(torch.ones(4, 8)).sum().backward()
    for group in (
        parallel_state.get_tensor_model_parallel_group(),
        parallel_state.get_pipeline_model_parallel_group(),
    ):
        dist.all_reduce(model.weight.grad, group=group)
    optimizer.step()
dist.barrier()
parallel_state.destroy_model_parallel()
dist.destroy_process_group()
time.sleep(0.2)
