"""Training a small language model: the course's network beside nanoGPT's, run as it is.

    {"tokens": 716800, "parameters": {"ours": 1049728, "nanoGPT": 1066112},
     "tokens_per_s": {"ours": {"median", "low", "high"}, "nanoGPT": ...},
     "bits_per_byte": {"ours": 2.21, "nanoGPT": 2.25}}      on the held-out chapters, after the same windows

Both learn from the same windows with the same optimizer and schedule, a few steps at a time in turns, so that what
disturbs the machine disturbs both.

    gpt_parts: {"everything": 2.2, "no attention": 2.6, ...}    the same training, without one part
"""

import hashlib
import importlib.util
import statistics
import urllib.request
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tools.bench.record import clock, say, short, spread
from tools.course import ROOT
from torchcourse import data, device, models
from torchcourse.errors import CourseError
from torchcourse.models.gpt import rotate
from torchcourse.recipes import language

FILE = ROOT / "build" / "nanogpt" / "model.py"
ADDRESS = "https://raw.githubusercontent.com/karpathy/nanoGPT/3adf61e154c3fe3fca428ad6bc3818b27a3b8291/model.py"
SHA256 = "7c01703240dbec5d554527dc666e35b3df8391d0b117fddc07afcf325a21d11c"
VOCABULARY, TURN = 2048, 10  # steps in a turn


class NanoGPT(nn.Module):
    """nanoGPT's model in the shape of ours: with targets it gives logits for all places, without them for the last."""

    def __init__(self):
        super().__init__()
        spec = importlib.util.spec_from_file_location("nanogpt", model_file())
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        shape = {"n_layer": 4, "n_head": 4, "n_embd": 128, "block_size": language.LENGTH, "vocab_size": VOCABULARY}
        self.inner = module.GPT(module.GPTConfig(**shape, dropout=0.0, bias=False))

    def forward(self, tokens: Tensor) -> Tensor:
        return self.inner(tokens, tokens.contiguous())[0]


def model_file() -> str:
    """nanoGPT's model.py of one commit, downloaded once. Raises CourseError without a network."""
    if not FILE.exists():
        FILE.parent.mkdir(parents=True, exist_ok=True)
        try:
            urllib.request.urlretrieve(ADDRESS, FILE)
        except OSError as error:
            raise CourseError(f"{ADDRESS} could not be downloaded ({error}). Put the file at {FILE}.") from None
    if hashlib.sha256(FILE.read_bytes()).hexdigest() != SHA256:
        raise CourseError(f"{FILE} is not the one at {ADDRESS}. Delete it.")
    return str(FILE)


def measure(quick: bool) -> dict[str, Any]:
    """Train both, in turns."""
    here, steps, text = device.best(), 20 if quick else 700, data.text()
    tokenizer = data.Tokenizer.train(text.train[:20_000] if quick else text.train, VOCABULARY)
    tokens, networks, speeds = tokenizer.encode(text.train), {}, {}
    for name, make in [("ours", lambda: models.GPT(VOCABULARY)), ("nanoGPT", NanoGPT)][: 1 if quick else 2]:
        torch.manual_seed(0)
        networks[name], speeds[name] = make().to(here), []
    recipes = {name: language.optimizer_for(network, steps) for name, network in networks.items()}
    for _ in range(steps // TURN):
        batches = [[part.contiguous().to(here) for part in language.windows(tokens, 8)] for _ in range(TURN)]
        for name in networks if len(speeds["ours"]) % 2 else reversed(networks):
            seconds, _ = clock(partial(turn, networks[name], *recipes[name], batches))
            speeds[name].append(TURN * batches[0][0].numel() / seconds)
    for name in networks:
        say(f"gpt: {name}: {statistics.median(speeds[name]):,.0f} tokens per second")
    return {
        "tokens": steps * 8 * language.LENGTH,
        "parameters": {name: sum(p.numel() for p in network.parameters()) for name, network in networks.items()},
        "tokens_per_s": {name: spread(values[1:]) for name, values in speeds.items()},
        "bits_per_byte": {n: short(language.bits_per_byte(net, tokenizer, text.test)) for n, net in networks.items()},
    }


class Nothing(nn.Module):
    """In place of a part: adds nothing."""

    def forward(self, x: Tensor, *others: Any) -> Tensor:
        return x.new_zeros(*x.shape[:-1], 128)


def parts(quick: bool) -> dict[str, float]:
    """Bits per byte on the held-out chapters after the same training, with one part of the network left out."""
    text, steps, found = data.text(), 10 if quick else 700, {}
    tokenizer = data.Tokenizer.train(text.train[:20_000] if quick else text.train, VOCABULARY)
    tokens = tokenizer.encode(text.train)
    for name in ("everything", "no attention", "no MLP", "no positions", "one head", "one block"):
        torch.manual_seed(0)
        shape = {"one head": {"heads": 1}, "one block": {"depth": 1}}.get(name, {})
        model = models.GPT(VOCABULARY, **shape)
        for block in model.blocks:
            if name == "no attention":
                block.attention = Nothing()
            if name == "no MLP":
                block.down = Nothing()
        with mock.patch("torchcourse.models.gpt.rotate", rotate if name != "no positions" else lambda x, start=0: x):
            language.train(model.to(device.best()), tokens, steps)
            found[name] = short(language.bits_per_byte(model, tokenizer, text.test))
        say(f"gpt_parts: {name}: {found[name]}")
    return found


def turn(network: nn.Module, optimizer: torch.optim.Optimizer, schedule: Any, batches: list) -> None:
    for inputs, targets in batches:
        if isinstance(network, NanoGPT):
            _, loss = network.inner(inputs, targets)
        else:
            loss = F.cross_entropy(network(inputs).flatten(0, 1), targets.flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(network.parameters(), 1.0)
        optimizer.step()
        schedule.step()
