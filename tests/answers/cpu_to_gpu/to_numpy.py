import numpy as np

from torchcourse_labs.cpu_to_gpu.to_numpy import solution

RIGHT = [
    lambda tensor: tensor.detach().cpu().clone().numpy(),
    lambda tensor: tensor.data.to("cpu", copy=True).numpy(),
    lambda tensor: np.array(tensor.detach().cpu()),
]

WRONG = {
    "not_removed": [
        lambda tensor: tensor.numpy(),
        lambda tensor: tensor.cpu().numpy().copy(),
        lambda tensor: tensor.detach().numpy(),
    ],
    "no_array": [lambda tensor: tensor.detach().cpu().clone(), lambda tensor: tensor.tolist()],
    "tensor_changed": [
        lambda tensor: tensor.detach_().cpu().numpy().copy(),
        lambda tensor: setattr(tensor, "data", tensor.data.cpu()) or tensor.detach().numpy().copy(),
    ],
    "shared": [lambda tensor: tensor.detach().cpu().numpy()],
    None: [
        lambda tensor: np.array(tensor.tolist()),
        lambda tensor: tensor.detach().cpu().float().numpy().copy(),
        lambda tensor: solution(tensor).flatten(),
        lambda tensor: np.atleast_1d(solution(tensor)),
    ],
}
