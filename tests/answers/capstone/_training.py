"""Right answers to `train`, for three exercises."""

import os

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import BatchSampler, DistributedSampler

from torchcourse import checkpoint

SAVE = "checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)"
RESTORE = "checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)"
SEED = "torch.manual_seed(1000 * seed + epoch)"
AUTOCAST = 'torch.autocast("cpu", dtype, enabled=dtype != torch.float32)'


def train(model, train_set, epochs, batch_size, seed, folder, dtype=torch.float32):
    replica, path = DDP(model), folder / "checkpoint.pt"
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    steps = epochs * (len(train_set) // batch_size)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.01, total_steps=steps)
    done = 0
    if path.exists():
        done = checkpoint.restore(path, model=model, optimizer=optimizer, schedule=schedule)["done"]
    order = DistributedSampler(train_set, seed=seed)
    batches = BatchSampler(order, batch_size // dist.get_world_size(), drop_last=True)
    model.train()
    for epoch in range(done, epochs):
        order.set_epoch(epoch)
        torch.manual_seed(1000 * seed + epoch)
        for rows in batches:
            images, labels = train_set[rows]
            with torch.autocast("cpu", dtype, enabled=dtype != torch.float32):
                loss = F.cross_entropy(replica(images), labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            schedule.step()
        if dist.get_rank() == 0:
            checkpoint.save(path, model=model, optimizer=optimizer, schedule=schedule, done=epoch + 1)
        dist.barrier()
    return model


def with_states(model, train_set, epochs, batch_size, seed, folder, dtype=torch.float32):
    """Without DDP, by batches in between, with all random states in the file."""
    rank, world = dist.get_rank(), dist.get_world_size()
    for tensor in model.state_dict().values():
        dist.broadcast(tensor, 0)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    generator = torch.Generator().manual_seed(seed)
    torch.manual_seed(seed)
    done, path = 0, folder / "last.pt"
    if path.exists():
        state = torch.load(path)
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
        generator.set_state(state["generator"])
        torch.set_rng_state(state["rng"])
        done = state["epoch"]
    for epoch in range(done, epochs):
        for rows in torch.randperm(len(train_set), generator=generator).split(batch_size):
            images, labels = train_set[rows[rank::world]]
            optimizer.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=dtype == torch.bfloat16):
                logits = model(images)
            F.cross_entropy(logits.float(), labels).backward()
            for parameter in model.parameters():
                dist.all_reduce(parameter.grad)
                parameter.grad /= world
            optimizer.step()
        if rank == 0:
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict(), "epoch": epoch + 1}
            state |= {"generator": generator.get_state(), "rng": torch.get_rng_state()}
            torch.save(state, path.with_suffix(".part"))
            os.replace(path.with_suffix(".part"), path)
    return model
