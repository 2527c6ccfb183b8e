"""Small training runs with what a large one has to remember: the lab of chapter 09 interrupts them."""

import random
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn
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


BATCHES, DROP = 4, 6  # of an epoch; the learning rate drops after that many steps


def trainer(forgets: str = "") -> Callable[[Path, int], dict[str, Tensor]]:
    """A training function that goes on from a checkpoint, if there is one. It may forget what the text names."""

    def train(path: Path, steps: int) -> dict[str, Tensor]:
        path, data = Path(path), torch.Generator().manual_seed(1)
        x, y = torch.randn(32, 6, generator=data).double(), torch.randint(0, 3, (32,), generator=data)
        model = {"weight": torch.zeros(3, 6, dtype=torch.float64), "bias": torch.zeros(3, dtype=torch.float64)}
        optimizer = torch.optim.SGD([each.requires_grad_() for each in model.values()], lr=0.1, momentum=0.9)
        first = skipped = 0
        if path.exists():
            saved = torch.load(path)
            first = saved["steps"]
            optimizer.load_state_dict(saved["optimizer"])
            for name, value in saved["model"].items():
                model[name].data.copy_(value)
            if forgets != "its random state":
                torch.set_rng_state(saved["random"])
            if forgets == "its learning rate":
                optimizer.param_groups[0]["lr"] = 0.1
            if forgets == "its place in the epoch":
                skipped = first
        else:
            torch.manual_seed(0)
        for step in range(first, steps):
            if step == DROP:
                optimizer.param_groups[0]["lr"] = 0.01
            order = torch.randperm(32, generator=torch.Generator().manual_seed(step // BATCHES))
            rows = order.split(8)[(step - skipped) % BATCHES]
            loss = F.cross_entropy(F.linear(F.dropout(x[rows], 0.2), model["weight"], model["bias"]), y[rows])
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        state = {name: value.detach().clone() for name, value in model.items()}
        kept = {name: value.float() if forgets == "its last bits" else value for name, value in state.items()}
        saved = {"model": kept, "optimizer": optimizer.state_dict(), "random": torch.get_rng_state()}
        torch.save(saved | {"steps": max(first, steps)}, path)
        return state

    train.forgets = forgets
    return train


FORGETFUL = {
    "A": trainer("its learning rate"),
    "B": trainer("its random state"),
    "C": trainer("its place in the epoch"),
}
