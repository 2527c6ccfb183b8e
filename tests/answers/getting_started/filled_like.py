import torch

from torchcourse_labs.getting_started.filled_like import solution


def in_a_copy(tensor, value):
    copy = tensor.clone()
    copy[...] = value
    return copy


RIGHT = [
    in_a_copy,
    lambda tensor, value: tensor * 0 + torch.tensor(value, dtype=tensor.dtype),
    lambda tensor, value: tensor.new_full(tensor.shape, value),
]

WRONG = {
    None: [
        lambda tensor, value: tensor.fill_(value),  # changes its argument
        lambda tensor, value: solution(tensor, value).tolist(),
        lambda tensor, value: tensor + value,
    ]
}
