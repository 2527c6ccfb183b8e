"""Train a small language model in a minute on two cores; chapter 14 writes out what is here.

from torchcourse.recipes import language
model, tokenizer = language.pretrained()        the same network, trained longer
print(language.write(model, tokenizer, "The gradient"))
"""

import json
import math
from pathlib import Path

import torch
import torch.nn.functional as F
from safetensors import safe_open
from torch import Tensor
from torch.optim.lr_scheduler import LambdaLR

from torchcourse.data import Tokenizer
from torchcourse.models.gpt import GPT, Cache
from torchcourse.training import device_of

FILE = Path(__file__).with_name("language.safetensors")  # written by tools/corpus.py: weights in bfloat16, and merges
LENGTH = 128  # tokens in a window


def windows(tokens: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Random pieces of a text, int64 [tokens]. Returns inputs and targets, int64 [size, LENGTH] each, one apart."""
    starts = torch.randint(len(tokens) - LENGTH, (size, 1))
    rows = tokens[starts + torch.arange(LENGTH + 1)]
    return rows[:, :-1], rows[:, 1:]


def optimizer_for(
    model: GPT, steps: int, lr: float = 5e-3, decay: float = 0.5
) -> tuple[torch.optim.Optimizer, LambdaLR]:
    """AdamW, and the schedule of its learning rate: up for a tenth of the steps, then down like a cosine."""
    groups = [
        {"params": [p for p in model.parameters() if p.ndim == 2], "weight_decay": decay},
        {"params": [p for p in model.parameters() if p.ndim < 2], "weight_decay": 0.0},  # norms
    ]
    optimizer, warmup = torch.optim.AdamW(groups, lr=lr, betas=(0.9, 0.99)), steps // 10
    return optimizer, LambdaLR(
        optimizer, lambda step: min((step + 1) / warmup, (1 + math.cos(math.pi * step / steps)) / 2)
    )


def train(model: GPT, tokens: Tensor, steps: int, size: int = 8, **recipe: float) -> list[float]:
    """Train on random windows of a text, int64 [tokens]. Returns the loss of each step, in nats per token.

    size: windows in a batch; recipe: lr and decay, see `optimizer_for`.
    """
    here = device_of(model)
    losses = torch.empty(steps, device=here)  # on the device: reading a number there makes the CPU wait for it
    optimizer, schedule = optimizer_for(model, steps, **recipe)
    model.train()
    for step in range(steps):
        inputs, targets = (part.to(here) for part in windows(tokens, size))
        loss = F.cross_entropy(model(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses[step] = loss.detach()
    return losses.tolist()


@torch.no_grad()
def bits_per_byte(model: GPT, tokenizer: Tokenizer, text: str) -> float:
    """How many bits the model needs for a byte of the text, on average, in windows that follow one another."""
    tokens, here = tokenizer.encode(text), device_of(model)
    tokens = tokens[: (len(tokens) - 1) // LENGTH * LENGTH + 1]
    inputs, targets = tokens[:-1].view(-1, LENGTH), tokens[1:].view(-1, LENGTH)
    model.eval()
    nats = sum(
        F.cross_entropy(model(x.to(here)).flatten(0, 1), y.to(here).flatten(), reduction="sum").item()
        for x, y in zip(inputs.split(16), targets.split(16), strict=True)
    )
    return nats / math.log(2) / sum(len(tokenizer.bytes[token]) for token in tokens[1:])


@torch.no_grad()
def write(
    model: GPT, tokenizer: Tokenizer, start: str, count: int = 100, temperature: float = 0.7, seed: int = 0
) -> str:
    """The text `start`, continued by `count` tokens. temperature: 0 takes the most likely token each time."""
    here, generator = device_of(model), torch.Generator().manual_seed(seed)
    caches = [Cache() for _ in model.blocks]
    tokens = tokenizer.encode(start)[None]
    new = tokens
    model.eval()
    for _ in range(count):
        logits = model(new.to(here), caches)[:, -1].float().cpu()
        if temperature:
            new = torch.multinomial((logits / temperature).softmax(-1), 1, generator=generator)
        else:
            new = logits.argmax(-1, keepdim=True)
        tokens = torch.cat([tokens, new], 1)
    return tokenizer.decode(tokens[0].tolist())


def pretrained() -> tuple[GPT, Tokenizer]:
    """The model that comes with the course, on the CPU, and its tokenizer. It learned from `data.text().train`."""
    with safe_open(FILE, "pt") as file:
        about = file.metadata()
        model = GPT(int(about["vocabulary"]))
        model.load_state_dict({name: file.get_tensor(name) for name in file.keys()}, strict=False)  # noqa: SIM118
    return model, Tokenizer(json.loads(about["merges"]))
