import copy

import torch
import torch.nn.functional as F
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.language_model.lora_linear import LoRALinear


class Parameters(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.base = base
        for p in base.parameters():
            p.requires_grad = False
        self.a = nn.Parameter(torch.randn(rank, base.in_features) * 0.02)
        self.b = nn.Parameter(torch.zeros(base.out_features, rank))
        self.factor = alpha / rank

    def forward(self, x):
        return self.base(x) + (x @ self.a.T @ self.b.T) * self.factor

    def merged(self):
        layer = copy.deepcopy(self.base)
        layer.weight.data += self.factor * self.b.data @ self.a.data
        return layer


class OneProduct(nn.Module):
    def __init__(self, base, rank, alpha):
        super().__init__()
        self.weight = nn.Parameter(base.weight.detach().clone(), requires_grad=False)
        self.register_buffer("bias", None if base.bias is None else base.bias.detach())
        self.up = nn.Parameter(torch.zeros(rank, base.out_features))
        self.down = nn.Parameter(torch.rand(base.in_features, rank))
        self.rank, self.alpha = rank, alpha

    def whole(self):
        return self.weight + self.alpha * (self.down @ self.up).T / self.rank

    def forward(self, x):
        return F.linear(x, self.whole(), self.bias)

    def merged(self):
        out, inputs = self.weight.shape
        layer = nn.Linear(inputs, out, bias=self.bias is not None)
        layer.load_state_dict({k: v for k, v in (("weight", self.whole()), ("bias", self.bias)) if v is not None})
        return layer


FROZEN, ZEROS, SUM = "base.requires_grad_(False)", "nn.init.zeros_(self.up.weight)", "return self.base(x) + "
BIAS, SCALE, COPY = "if self.base.bias is not None:", "alpha / rank", "layer = copy.deepcopy(self.base)"

RIGHT = [Parameters, OneProduct]

WRONG = {
    "base_trains": [
        *mutants(LoRALinear, FROZEN, "base"),
        mutant(LoRALinear, (FROZEN, "base"), (ZEROS, f"{ZEROS}; base.weight.requires_grad_(False)")),
    ],
    "down_zero": mutants(LoRALinear, ZEROS, f"{ZEROS}; nn.init.zeros_(self.down.weight)"),
    "scale": mutants(LoRALinear, SCALE, "alpha", "1.0", "rank / alpha", "alpha / rank**0.5"),
    "cut_off": [
        *mutants(LoRALinear, SUM, "with torch.no_grad():\n            y = self.base(x)\n        return y + "),
        *mutants(Parameters, SUM, "return self.base(x).detach() + ", "return self.base(x.detach()) + "),
    ],
    "merged_into_itself": mutants(Parameters, COPY, "layer = self.base"),
    None: [
        *mutants(LoRALinear, ZEROS, "pass", f"{ZEROS}; self.requires_grad_(False)"),
        *mutants(LoRALinear, f"            {BIAS}\n    ", ""),
        *mutants(LoRALinear, "out_features, bias=False", "out_features", "out_features, bias=True"),
        *mutants(LoRALinear, "merged.bias.copy_(self.base.bias)", "pass"),
        *mutants(LoRALinear, SUM, "return "),
        *mutants(Parameters, "self.factor * self.b.data", "self.b.data"),
        *mutants(LoRALinear, "return merged", "return merged.weight", "return self", "return nn.Sequential(merged)"),
    ],
}
