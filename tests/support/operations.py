"""Operations on tensors with examples of their inputs: what the practice GPU must compute as the CPU does."""

from collections.abc import Callable

import numpy as np
import torch
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

X = (4, 3, 8, 8)


def images(*shape: int) -> torch.Tensor:
    return torch.randn(shape or X)


# Normalization, nn.Linear and nn.Dropout2d are in the network that test_simgpu.py trains.
# name -> (makes the inputs on the CPU, what to compute). Inputs of floating type get gradients.
OPS: dict[str, tuple[Callable[[], tuple], Callable]] = {
    "add": (lambda: (images(), images()), lambda a, b: a + b),
    "broadcast": (lambda: (images(4, 1), images(3)), lambda a, b: 2 + a * b - 1),
    "divide": (lambda: (images(), images()), lambda a, b: (a / (b + 10), a.detach() // 0.25, a % 0.3, a.remainder(b))),
    "power": (lambda: (images(),), lambda a: a**2 + a.abs() ** 0.5 + (a.exp() + 1).log().sqrt()),
    "compare": (lambda: (images(), images()), lambda a, b: (a > b, a == a, a.le(0), torch.isnan(a))),
    "logic": (lambda: (images(), images()), lambda a, b: (a > 0) & (b > 0) | ~(a < 1) ^ (b > 2)),
    "clamp": (lambda: (images(),), lambda a: a.clamp(-0.5, 0.5) + a.clamp_min(0)),
    "where": (lambda: (images(), images()), lambda a, b: torch.where(a > 0, a, b) + torch.where(b > 0, b, 0.0)),
    "masked_fill": (lambda: (images(),), lambda a: a.masked_fill(a > 0, -1)),
    "casts": (lambda: (images(),), lambda a: (a.half().float(), a.double(), a.to(torch.bfloat16), a.long(), a.bool())),
    "uint8 to float": (lambda: (torch.randint(0, 256, X, dtype=torch.uint8),), lambda a: a.float().div(255).sub(0.5)),
    "mean var std": (lambda: (images(),), lambda a: (a.mean(), a.var((0, 2, 3)), a.std(1, unbiased=False))),
    "sum prod norm": (lambda: (images(),), lambda a: (a.sum(1), a.prod(-1), a.norm(), a.norm(dim=1))),
    "max min": (lambda: (images(4, 9),), lambda a: (a.max(), a.min(1).values, a.max(1).indices, a.amax(0))),
    "argmax sort topk": (lambda: (images(4, 9),), lambda a: (a.argmax(1), a.argsort(), a.sort(1)[0], a.topk(3)[1])),
    "any all": (lambda: (images(),), lambda a: ((a > 0).any(), (a > -9).all(1), (a > 0).any((1, 2)))),
    "cumsum": (lambda: (images(),), lambda a: a.cumsum(1)),
    "histogram": (lambda: (torch.randint(0, 5, (40,)),), lambda a: (torch.bincount(a, minlength=6), a.unique())),
    "matmul": (lambda: (images(5, 3), images(3, 4)), lambda a, b: a @ b),
    "batched matmul": (lambda: (images(2, 5, 3), images(2, 3, 4)), lambda a, b: (a @ b, a @ b[0], torch.bmm(a, b))),
    "matrix vector": (lambda: (images(5, 3), images(3)), lambda a, b: (a @ b, b @ b, torch.outer(b, b))),
    "einsum": (lambda: (images(2, 5, 3), images(2, 3, 4)), lambda a, b: torch.einsum("bij,bjk->bk", a, b)),
    "addmm": (lambda: (images(4), images(5, 3), images(3, 4)), torch.addmm),
    "qr": (lambda: (images(5, 3),), lambda a: torch.linalg.qr(a)),
    "conv2d": (lambda: (images(), images(6, 3, 3, 3), images(6)), lambda x, w, b: F.conv2d(x, w, b, padding=1)),
    "conv2d stride": (lambda: (images(), images(6, 3, 3, 3)), lambda x, w: F.conv2d(x, w, stride=2, dilation=2)),
    "conv2d groups": (lambda: (images(), images(6, 1, 3, 3)), lambda x, w: F.conv2d(x, w, padding="same", groups=3)),
    "conv1d": (lambda: (images(2, 3, 9), images(4, 3, 3)), F.conv1d),
    "conv_transpose2d": (lambda: (images(), images(3, 5, 2, 2)), lambda x, w: F.conv_transpose2d(x, w, stride=2)),
    "pools": (lambda: (images(),), lambda x: (*F.max_pool2d(x, 3, 2, 1, return_indices=True), F.avg_pool2d(x, 2))),
    "adaptive pools": (lambda: (images(),), lambda x: (F.adaptive_avg_pool2d(x, 1), F.adaptive_max_pool2d(x, (2, 3)))),
    "relu family": (lambda: (images(),), lambda x: F.relu(x) + F.leaky_relu(x) + F.elu(x) + F.gelu(x) + F.silu(x)),
    "softmax": (lambda: (images(4, 9),), lambda x: (x.softmax(1), x.log_softmax(1), x.logsumexp(1))),
    "normalize": (lambda: (images(4, 9),), lambda x: F.normalize(x, dim=1) + F.cosine_similarity(x, x, 1)[:, None]),
    "dropout": (lambda: (images(),), lambda x: [F.dropout(x, p) for p in (0, 0.1, 0.3, 0.5, 0.77, 1)]),
    "cross_entropy": (
        lambda: (images(4, 9), torch.randint(0, 9, (4,)), torch.rand(9)),
        lambda x, y, w: (
            F.cross_entropy(x, y, weight=w.detach()),
            F.cross_entropy(x, y, label_smoothing=0.2, reduction="none"),
            F.cross_entropy(x, x.softmax(1).detach()),
            F.nll_loss(x.log_softmax(1), y),
        ),
    ),
    "losses": (
        lambda: (images(), torch.rand(X)),
        lambda x, y: (F.mse_loss(x, y), F.l1_loss(x, y), F.binary_cross_entropy_with_logits(x, y.detach())),
    ),
    "embedding": (lambda: (torch.randint(0, 9, (4, 2)), images(9, 3)), F.embedding),
    "interpolate": (
        lambda: (images(),),
        lambda x: (F.interpolate(x, scale_factor=2), F.interpolate(x, (5, 5), mode="bilinear", antialias=True)),
    ),
    "grid_sample": (
        lambda: (images(), torch.eye(2, 3)[None].repeat(4, 1, 1)),
        lambda x, t: F.grid_sample(x, F.affine_grid(t, list(x.shape), False), align_corners=False),
    ),
    "flip roll": (lambda: (images(),), lambda x: x.flip(-1) + x.roll((1, -2), (2, 3)) + torch.rot90(x, 1, (2, 3))),
    "pad": (lambda: (images(),), lambda x: (F.pad(x, (1, 2, 0, 1)), F.pad(x, (2,) * 4, mode="reflect"))),
    "unfold": (lambda: (images(),), lambda x: (F.unfold(x, 3), x.unfold(2, 3, 1), x.unfold(2, 4, 2).unfold(3, 4, 2))),
    "gather scatter": (
        lambda: (images(4, 9), torch.randint(0, 9, (4, 3))),
        lambda x, i: (x.gather(1, i), torch.zeros_like(x).scatter(1, i, 1.0), x.scatter_add(1, i, x[:, :3])),
    ),
    "take": (lambda: (images(4, 9), torch.tensor([0, 3])), lambda x, i: (x.index_select(0, i), x.take(i), x[i, i])),
    "index_add": (lambda: (images(4, 9), torch.tensor([0, 3])), lambda x, i: x.clone().index_add(0, i, x[:2])),
    "indexing": (lambda: (images(),), lambda x: (x[0], x[:, 1:, ::2], x[..., -1], x[None], x[[0, 2]], x[x > 0])),
    "index with tensor": (lambda: (images(), torch.tensor([3, 1])), lambda x, i: (x[i], x[:, :, i], x[i, 0, i])),
    "joining": (lambda: (images(), images()), lambda a, b: (torch.cat([a, b], 1), torch.stack([a, b]))),
    "splitting": (lambda: (images(),), lambda a: (*a.chunk(2), *a.split(3, dim=2), *a.unbind(1))),
    "shapes": (lambda: (images(),), lambda x: (x.view(4, -1), x.mT, x.permute(0, 2, 3, 1), x[:, 0:1].expand(X))),
    "repeat": (lambda: (images(2, 3),), lambda x: (x.repeat(2, 2), x.repeat_interleave(2, 0), x.T.contiguous())),
    "triangles": (lambda: (images(4, 4),), lambda x: (x.tril(), x.triu(1), x.diagonal(), torch.diag(x), x.trace())),
    "one_hot": (lambda: (images(4),), lambda x: F.one_hot(torch.arange(4, device=x.device) % 3, 3)),
    "nonzero": (lambda: (images(4, 9),), lambda x: (x > 0).nonzero()),
    "complex": (lambda: (images(4, 8),), lambda x: torch.fft.fft(x).abs()),
    "vmap": (lambda: (images(4, 3), images(4, 3)), lambda a, b: torch.vmap(torch.dot)(a, b)),
    "checkpointing": (lambda: (images(),), lambda x: checkpoint(lambda v: v.sin().exp(), x, use_reentrant=False)),
    "random": (
        lambda: (images(4, 3),),
        lambda x: (torch.rand_like(x), torch.bernoulli(x.sigmoid()), torch.multinomial(x.softmax(1), 2)),
    ),
    "random where it is": (
        lambda: (images(4, 3),),
        lambda x: (torch.randn(3, device=x.device), torch.randperm(9, device=x.device), x.detach().clone().normal_()),
    ),
    "factories": (
        lambda: (images(4, 3),),
        lambda x: (torch.full((2,), 7, device=x.device), torch.arange(5, device=x.device), torch.eye(3).to(x)),
    ),
    "made from others": (
        lambda: (images(4, 3),),
        lambda x: (x.new_tensor([1, 2]), torch.as_tensor(np.arange(3), device=x.device), torch.empty_like(x).fill_(3)),
    ),
}
