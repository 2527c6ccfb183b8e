"""Chapter 00: right answers, and the mistakes that people make."""

import functools
import math
import warnings

import numpy as np
import torch

# ---------------------------------------------------------------------------------------------------------------------
# first_tensor


def full_with_dtype(shape, value):
    return torch.full(shape, value, dtype=torch.float32)


def ones_times_value(shape, value):
    return torch.ones(*shape) * value


def empty_then_filled(shape, value):
    return torch.empty(shape).fill_(value)


def expanded(shape, value):
    return torch.tensor(float(value)).expand(shape)


def numbers_of_a_list(shape, value, dtype=torch.float32):
    return torch.tensor([value] * math.prod(shape), dtype=dtype).reshape(shape)


class Filled(torch.nn.Module):
    def forward(self, shape, value):
        return torch.nn.Parameter(torch.nn.init.constant_(torch.empty(shape), value))


def only_the_example(shape, value):
    return torch.full((2, 3), float(value))


def cut_to_integer(shape, value):
    return torch.full(shape, int(value), dtype=torch.float32)


def through_integers(shape, value):
    return torch.full(shape, value, dtype=torch.int64).float()


def two_dimensions(shape, value):
    return torch.full((shape[0], shape[1]), float(value))


def forgot_dtype(shape, value):
    return torch.full(shape, value)


def zeros(shape, value):
    return torch.zeros(shape)


def ones(shape, value):
    return torch.ones(shape)


def scalar(shape, value):
    return torch.tensor(float(value))


def shape_as_values(shape, value):
    return torch.tensor(shape, dtype=torch.float32)


def numpy_array(shape, value):
    return np.full(shape, value, dtype=np.float32)


def double_precision(shape, value):
    return torch.full(shape, value, dtype=torch.float64)


def swapped_axes(shape, value):
    return torch.full(shape[::-1], float(value))


def swapped_arguments(shape, value):
    return torch.full(value, shape)


# ---------------------------------------------------------------------------------------------------------------------
# slope


def by_backward(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    f(x).backward()
    return x.grad.item()


def by_grad_function(f, x):
    x = torch.tensor(x, dtype=torch.float64).requires_grad_()
    (gradient,) = torch.autograd.grad(f(x), x)
    return gradient.item()


def by_func(f, x):
    return float(torch.func.grad(f)(torch.tensor(float(x))))


def one_element(f, x):
    x = torch.tensor([float(x)], requires_grad=True)
    f(x).sum().backward()
    return x.grad[0].item()


def by_jacobian(f, x):
    return torch.autograd.functional.jacobian(f, torch.tensor(float(x))).item()


def looked_at_the_value_first(f, x):
    print("value:", f(x))
    return by_backward(f, x)


def without_a_sign(f, x):
    return abs(by_backward(f, x))


def uphill_instead(f, x):
    return -by_backward(f, x)


def rounded(f, x):
    return round(by_backward(f, x), 1)


def backward_twice(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    f(x).backward()
    f(x).backward()
    return x.grad.item()


def not_a_leaf(f, x):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        x = torch.tensor(float(x), requires_grad=True) * 1.0
        f(x).backward()
        return x.grad.item()


def number_that_requires_grad(f, x):
    x.requires_grad_(True)
    f(x).backward()
    return x.grad.item()


def two_near_points(f, x, step=1e-3):  # the stand-in of the lab: right to seven digits, and yet no autograd
    return (f(x + step) - f(x - step)) / (2 * step)


def two_near_points_in_double(f, x, step=1e-6):
    x = torch.tensor(float(x), dtype=torch.float64)
    return ((f(x + step) - f(x)) / step).item()


def integer_tensor(f, x):
    x = torch.tensor(x, requires_grad=True)
    f(x).backward()
    return x.grad.item()


def not_watched(f, x):
    x = torch.tensor(float(x))
    f(x).backward()
    return x.grad.item()


def forgot_backward(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    f(x)
    return x.grad


def forgot_backward_then_item(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    f(x)
    return x.grad.item()


def forgot_return(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    f(x).backward()


def value_instead(f, x):
    return f(torch.tensor(float(x))).item()


def returned_tensor(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    f(x).backward()
    return x.grad


def tensor_of_the_graph(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    (gradient,) = torch.autograd.grad(f(x), x, create_graph=True)
    return gradient


def plain_number(f, x):
    y = f(x)
    y.backward()
    return x.grad


def slope_of_the_square(f, x):
    return 2 * x


def difference_quotient(f, x):
    return (f(x + 1e-2) - f(x)) / 1e-2


def gradient_of_the_result(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    y = f(x)
    y.retain_grad()
    y.backward()
    return y.grad.item()


# ---------------------------------------------------------------------------------------------------------------------
# average_digit


def by_mask(images, labels, digit):
    return images[labels == digit].float().mean(dim=0)


def by_loop(images, labels, digit):
    chosen = [image.double() for image, label in zip(images, labels, strict=True) if label == digit]
    return sum(chosen) / len(chosen)


def by_weights(images, labels, digit):
    weights = (labels == digit).float()
    return torch.einsum("n,nchw->chw", weights, images.float()) / weights.sum()


def by_mean_dtype(images, labels, digit):
    return images[torch.where(labels == digit)[0]].mean(0, dtype=torch.float32)


def by_numpy(images, labels, digit):
    return torch.from_numpy(images.numpy()[labels.numpy() == digit].mean(axis=0)).float()


def always_threes(images, labels, digit):
    return images[labels == 3].float().mean(dim=0)


def first_one(images, labels, digit):
    return images[labels == digit][0].float()


def added_up_in_bytes(images, labels, digit):
    total, count = torch.zeros_like(images[0]), 0
    for image, label in zip(images, labels, strict=True):
        if label == digit:
            total += image
            count += 1
    return total / count


def blackened(images, labels, digit):
    images[labels != digit] = 0
    return images.float().sum(dim=0) / (labels == digit).sum()


def not_selected(images, labels, digit):
    return images.float().mean(dim=0)


def one_number(images, labels, digit):
    return images[labels == digit].float().mean()


def mean_of_bytes(images, labels, digit):
    return images[labels == digit].mean(dim=0)


def indexed_by_digit(images, labels, digit):
    return images[digit].float()


def summed(images, labels, digit):
    return images[labels == digit].float().sum(dim=0)


def divided_by_all(images, labels, digit):
    return images[labels == digit].float().sum(dim=0) / len(images)


def divided_to_integers(images, labels, digit):
    chosen = images[labels == digit]
    return chosen.sum(dim=0) // len(chosen)


def bytes_again(images, labels, digit):
    return images[labels == digit].float().mean(dim=0).to(torch.uint8)


def rounded_down(images, labels, digit):
    return images[labels == digit].float().mean(dim=0).floor()


def kept_dimension(images, labels, digit):
    return images[labels == digit].float().mean(dim=0, keepdim=True)


def scaled(images, labels, digit):
    images = images.float()
    images /= 255
    return images[labels == digit].mean(dim=0)


RIGHT = {
    "first_tensor": [
        full_with_dtype,
        ones_times_value,
        empty_then_filled,
        expanded,
        numbers_of_a_list,
        Filled(),
        functools.partial(torch.full, dtype=torch.float32),
    ],
    "slope": [
        by_backward,
        by_grad_function,
        by_func,
        one_element,
        by_jacobian,
        looked_at_the_value_first,
    ],
    "average_digit": [by_mask, by_loop, by_weights, by_mean_dtype, by_numpy],
}

WRONG = {
    "first_tensor": [
        (forgot_dtype, "took the dtype from the integer"),
        (zeros, "every element is 0"),
        (ones, "every element is 1"),
        (scalar, "without a shape"),
        (shape_as_values, "numbers of the shape"),
        (numpy_array, "NumPy array"),
        (double_precision, "wrong dtype"),
        (swapped_axes, "shape"),
        (only_the_example, "shape"),
        (two_dimensions, "wrong shape"),
        (cut_to_integer, "fraction is lost"),
        (through_integers, "fraction is lost"),
        (swapped_arguments, "TypeError"),
    ],
    "slope": [
        (integer_tensor, "only floating-point"),
        (not_watched, "did not watch x"),
        (forgot_backward, "after `.backward()`"),
        (forgot_backward_then_item, "has `backward()` run before"),
        (not_a_leaf, "not of one computed from it"),
        (number_that_requires_grad, "only tensors have gradients"),
        (without_a_sign, "not the sign"),
        (uphill_instead, "not the sign"),
        (rounded, "rounded the slope"),
        (backward_twice, "gradients add up"),
        (two_near_points, "difference quotient"),
        (two_near_points_in_double, "difference quotient"),
        (forgot_return, "is there a `return`"),
        (value_instead, "value of f"),
        (returned_tensor, "`.item()`"),
        (tensor_of_the_graph, "`.item()`"),
        (plain_number, "plain Python number"),
        (slope_of_the_square, "slope of x²"),
        (difference_quotient, "difference quotient"),
        (gradient_of_the_result, "expected"),
    ],
    "average_digit": [
        (not_selected, "were not told apart"),
        (one_number, "single number"),
        (mean_of_bytes, "refuses to average"),
        (indexed_by_digit, "not in the place"),
        (summed, "sum of the images"),
        (divided_by_all, "number of all images"),
        (divided_to_integers, "fractions are lost"),
        (bytes_again, "holds integers"),
        (rounded_down, "rounded down"),
        (kept_dimension, "wrong shape"),
        (scaled, "from 0 to 1"),
        (always_threes, "differ"),
        (first_one, "only the first image"),
        (added_up_in_bytes, "uint8 cannot hold more"),
        (blackened, "changed its argument"),
    ],
}
