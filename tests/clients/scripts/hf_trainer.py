"""Hugging Face's Trainer on a tiny model made from a configuration."""

import tempfile
import time

import torch
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments, set_seed

torch.set_num_threads(1)
set_seed(0)
config = LlamaConfig(
    vocab_size=64, hidden_size=32, intermediate_size=64, num_hidden_layers=2,
    num_attention_heads=4, num_key_value_heads=4, max_position_embeddings=32,
)  # fmt: skip
tokens = torch.randint(0, 64, (64, 16))
data = [{"input_ids": row, "labels": row} for row in tokens]
with tempfile.TemporaryDirectory() as folder:
    arguments = TrainingArguments(
        output_dir=folder, max_steps=10, per_device_train_batch_size=2, use_cpu=True,
        gradient_accumulation_steps=2, report_to=[], save_strategy="no",
        logging_steps=1000, disable_tqdm=True, ddp_backend="gloo",
    )  # fmt: skip
    trainer = Trainer(model=LlamaForCausalLM(config), args=arguments, train_dataset=data)
    loss = trainer.train().training_loss
    if trainer.is_world_process_zero():
        print(f"final {loss:.9f}", flush=True)
torch.distributed.destroy_process_group()
time.sleep(0.2)
