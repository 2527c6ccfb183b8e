import numpy as np
import torch

from torchcourse_labs.tensors.view_or_copy import solution


def truth(name):
    x = torch.arange(24).reshape(4, 6)
    result = eval(name, {"x": x})
    if isinstance(result, tuple):
        return result
    return "view" if result.untyped_storage().data_ptr() == x.data_ptr() else "copy"


def but(name, value):
    return solution | {name: value}


RIGHT = [
    {name: truth(name) for name in solution},
    but("x.T", "View ") | {"x.T.stride()": [1, 6], "note": "all of them"},
    but("x.T.stride()", (np.int64(1), np.int64(6))) | {"x[:, ::2].stride()": torch.Size([6, 2])},
]

WRONG = {
    "view": [but("x[1:3]", "copy"), but("x.T", "copy")],
    "picked": [but("x[[1, 2]]", "view") | {"x[x > 10]": "view"}],
    "reshape": [but("x.reshape(24)", "copy")],
    "reshape_of_transpose": [but("x.T.reshape(24)", "view")],
    "strides": [but("x.T.stride()", (6, 1)), but("x[:, ::2].stride()", (12, 2))],
    None: [
        [*solution.values()],
        {"x.T": "view"},
        but("x.T", "both"),
        but("x.T.stride()", "(1, 6)"),
        but("x[:, ::2].stride()", (6, 2, 1)),
    ],
}
