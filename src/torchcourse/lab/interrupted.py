"""A small training run with everything that a large one has to remember: the lab of chapter 09 interrupts it."""

import random

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn


class Run:
    """A training run. Made again in another process, it begins at its first step."""

    def __init__(self, seed: int = 0) -> None:
        torch.manual_seed(seed)  # dropout draws from PyTorch's generator,
        random.seed(seed)  # mirroring from Python's,
        self.rng = np.random.default_rng(seed)  # and noise from one of NumPy's
        self.x, self.y = torch.randn(40, 6), torch.randint(0, 3, (40,))
        self.model = nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 3))
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, T_max=60)
        self.scaler = torch.amp.GradScaler("cpu", init_scale=2.0**16, growth_interval=4)
        self.average = AveragedModel(self.model, multi_avg_fn=get_ema_multi_avg_fn(0.9))
        self.epoch = self.batch = 0  # what comes next: this batch of this epoch

    def step(self) -> float:
        """Train on the next of the five batches of an epoch. Returns the loss."""
        order = torch.randperm(40, generator=torch.Generator().manual_seed(self.epoch))
        rows = order.split(8)[self.batch]
        x = self.x[rows] + torch.from_numpy(self.rng.normal(0, 0.1, (8, 6))).float()
        if random.random() < 0.5:
            x = x.flip(1)
        loss = F.cross_entropy(self.model(x), self.y[rows])
        self.optimizer.zero_grad()
        self.scaler.scale(loss).backward()
        self.scaler.step(self.optimizer)
        self.scaler.update()
        self.scheduler.step()
        self.average.update_parameters(self.model)
        self.batch += 1
        if self.batch == 5:
            self.epoch, self.batch = self.epoch + 1, 0
        return loss.item()
