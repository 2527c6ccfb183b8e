"""Muon: momentum whose every step is orthogonal. It learns convolutions in fewer steps than SGD or Adam.

The gradient of a weight matrix is lopsided: a few directions are large, and a step along it changes little else. Muon
(Keller Jordan and others) keeps the directions of the momentum and makes all of them equally long: with the singular
value decomposition U S Vᵀ of the momentum, it steps along U Vᵀ. A convolution's weights count as a matrix with one row
for each output channel.

torch.optim.Muon does the same for parameters of two dimensions only, and multiplies in bfloat16, which processors
without bf16 instructions do many times slower than float32.
"""

from collections.abc import Iterable

import torch
from torch import Tensor


class Muon(torch.optim.Optimizer):
    """Orthogonal momentum for weights, plain momentum for the rest, in one optimizer.

    params: groups, {"params": [...], "lr": ...}; one with "orthogonal": False is trained by SGD with Nesterov momentum
    (biases, batch norm, the last layer).
    lr: how far a step goes. An orthogonal step changes each output channel's weights, which have length 1, by about lr.
    momentum: share of the old direction that is kept in each step, 0 to 1.
    weight_decay: of the parameters that are not orthogonal, as a share per step and learning rate.
    """

    def __init__(self, params: Iterable, lr: float = 0.2, momentum: float = 0.6, weight_decay: float = 0.0):
        super().__init__(params, {"lr": lr, "momentum": momentum, "weight_decay": weight_decay, "orthogonal": True})

    @torch.no_grad()
    def step(self, closure=None) -> None:
        for group in self.param_groups:
            for weight in group["params"]:
                if weight.grad is None:
                    continue
                state = self.state[weight]
                if not state:
                    state["momentum"] = torch.zeros_like(weight)
                average = state["momentum"].mul_(group["momentum"]).add_(weight.grad)
                change = weight.grad.add(average, alpha=group["momentum"])  # Nesterov: look one step ahead
                if group["orthogonal"]:
                    change = orthogonal(change.flatten(1)).view_as(change)
                    # Batch norm follows: it takes out the length of the weights. Kept at 1 per channel, a learning
                    # rate means the same share of the weights in every step.
                    weight.mul_(len(weight) ** 0.5 / weight.norm())
                elif group["weight_decay"]:
                    weight.mul_(1 - group["lr"] * group["weight_decay"])
                weight.add_(change, alpha=-group["lr"])


def orthogonal(matrix: Tensor, rounds: int = 3) -> Tensor:
    """About U Vᵀ, where U S Vᵀ is the singular value decomposition of a matrix [rows, columns].

    Each round sends every singular value s to 3.4445 s - 4.775 s³ + 2.0315 s⁵, which needs only multiplications of
    matrices. The numbers are Keller Jordan's: small values grow as fast as possible, and after a few rounds all lie
    roughly between 0.7 and 1.2, which serves as well as exactly 1.
    """
    wide = matrix.T if matrix.shape[0] > matrix.shape[1] else matrix
    x = wide / (wide.norm() + 1e-7)
    if x.is_cuda:
        x = x.bfloat16()  # products are faster in it there, and the last digits don't matter
    for _ in range(rounds):
        square = x @ x.T
        factor = torch.addmm(square, square, square, beta=-4.775, alpha=2.0315)  # 2.0315 s⁴ - 4.775 s²
        x = torch.addmm(x, factor, x, beta=3.4445)
    return (x if wide is matrix else x.T).to(matrix.dtype)
