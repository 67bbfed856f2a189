"""Lightning on two devices with the ddp strategy."""

import lightning
import torch
from torch.utils.data import DataLoader, TensorDataset

torch.set_num_threads(1)


class Regression(lightning.LightningModule):
    def __init__(self):
        super().__init__()
        self.layers = torch.nn.Sequential(
            torch.nn.Linear(32, 64), torch.nn.ReLU(), torch.nn.Linear(64, 1)
        )

    def training_step(self, batch, number):
        x, y = batch
        self.last = torch.nn.functional.mse_loss(self.layers(x), y)
        return self.last

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


lightning.seed_everything(0)
x = torch.randn(128, 32)
model = Regression()
trainer = lightning.Trainer(
    accelerator="cpu", devices=2, strategy="ddp", max_steps=10, logger=False,
    enable_checkpointing=False, enable_progress_bar=False, enable_model_summary=False,
)  # fmt: skip
trainer.fit(model, DataLoader(TensorDataset(x, x.sum(1, keepdim=True)), batch_size=8))
if trainer.is_global_zero:
    print(f"final {model.last.item():.9f}", flush=True)
