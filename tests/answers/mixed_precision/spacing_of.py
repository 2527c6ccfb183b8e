import math

import numpy as np
import torch

from torchcourse_labs.mixed_precision.spacing_of import solution, stored


def farther_with_sign(value, dtype):
    x = torch.tensor(value, dtype=dtype)
    return abs(torch.nextafter(x, x * 2) - x).item()


RIGHT = [
    farther_with_sign,
    lambda value, dtype: torch.finfo(dtype).eps * 2.0 ** math.floor(math.log2(stored(value, dtype))),
    lambda value, dtype: np.float64(solution(value, dtype)),
]

WRONG = {
    "other_format": [lambda value, dtype: math.ulp(stored(value, dtype).item())],
    None: [
        lambda value, dtype: torch.finfo(dtype).eps * 2 ** math.floor(math.log2(value)),
        lambda value, dtype: torch.finfo(dtype).eps * 2.0 ** math.frexp(value)[1],
        lambda value, dtype: torch.tensor(solution(value, dtype)),
        lambda value, dtype: solution(value, dtype) + stored(value, dtype).item(),
    ],
}
