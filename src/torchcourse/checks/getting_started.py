"""Exercises of chapter 00: a first tensor, a first gradient, and an average digit."""

import numpy as np
import torch

from torchcourse.checks.engine import AnswerRaised, Incorrect, Inputs, call, chapter, mistake, same
from torchcourse.checks.show import show

exercise = chapter("00_getting_started")


@exercise(
    "first_tensor",
    title="A first tensor",
    minutes=2,
    difficulty=1,
    points=1,
    takeaway="PyTorch chooses the dtype from the value that you give: an integer makes an integer tensor unless you "
    "say otherwise.",
    hints=(
        "One function makes a tensor of a given shape in which every element has the same value. "
        "Its name is the opposite of `torch.empty`.",
        "`torch.full(shape, value)` is nearly it. Which dtype comes out when the value is the integer 7, "
        "and which when it is 7.0?",
        "Say which dtype you want: `torch.full(…, …, dtype=torch.float32)`.",
    ),
)
def first_tensor(answer, new: Inputs):
    for dimensions in (2, 3):
        shape = tuple(new.sizes(dimensions, 2, 6))
        value = new.pick([-1, 1]) * new.size(2, 9)  # an integer, so that the dtype is a question; never 0 or 1
        value = value if dimensions == 2 else value + 0.5  # then a float, so that its fraction may get lost
        right = torch.full(shape, float(value))
        yours = call(answer, shape, value)
        where = f"for shape={shape} and value={value}"
        if isinstance(yours, np.ndarray):
            raise Incorrect(
                f"That is a NumPy array, not a tensor ({where}).", "a torch.Tensor", show(yours), "`torch.full`"
            )
        same_size = isinstance(yours, torch.Tensor) and yours.shape == right.shape
        if same_size and not yours.dtype.is_floating_point and not yours.dtype.is_complex:
            raise Incorrect(
                f"Your tensor holds integers: PyTorch took the dtype from the integer {value}.",
                "torch.float32",
                str(yours.dtype),
                "the argument `dtype=torch.float32`",
            )
        for other in {0, 1} - {value}:
            mistake(
                yours,
                torch.full(shape, float(other)),
                f"Shape and dtype are right, but every element is {other} instead of {value}.",
                "what you do with the argument `value`",
            )
        if value != int(value):
            for cut in (int(value), round(value)):
                mistake(
                    yours,
                    torch.full(shape, float(cut)),
                    f"The value was {value}, and your elements are {cut}: the fraction is lost.",
                    "`int(…)` or an integer dtype on the way: give `value` to PyTorch as it came",
                )
        if isinstance(yours, torch.Tensor) and tuple(yours.shape) == (2, 3) != shape:
            raise Incorrect(
                "Your tensor has shape (2, 3) whatever is asked for: that was only the example.",
                shape,
                (2, 3),
                "what you do with the argument `shape`",
            )
        mistake(
            yours,
            torch.tensor(float(value)),
            f"That is a single number without a shape: `torch.tensor(value)` never saw shape={shape}.",
            "a function that takes the shape first",
        )
        mistake(
            yours,
            torch.tensor(shape),
            f"Your tensor holds the numbers of the shape: `torch.tensor` takes values, and took {shape} for them.",
            "a function that takes a shape, for example `torch.full`",
        )
        same(yours, right, f"Your tensor {where}")


@exercise(
    "slope",
    title="A slope by autograd",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="Three steps, and they work for any function built from tensor operations: a tensor that requires "
    "gradients, `backward()` on the result, `.grad` of the input.",
    hints=(
        "Three steps, as in the lecture: make a tensor that PyTorch watches, compute with it, go backward.",
        "The number must become a float tensor with `requires_grad=True`. After `y.backward()` the slope lies in the "
        "`.grad` of the tensor you started from, and `.item()` makes a Python number of it.",
        "`x = torch.tensor(float(x), requires_grad=True)`, then `f(x).backward()`, then return `x.grad.item()`.",
    ),
)
def slope(answer, new: Inputs):
    # A float and an integer: people who type `slope(f, 2)` have not thought of dtypes.
    # And once up, once down: a sign that is lost on the way shows.
    up_first = new.pick([-1, 1])
    for x, sign in ((0.5 + 1.5 * new.rand(1).item(), up_first), (new.size(1, 3), -up_first)):
        a, b, c = (sign * (1 + new.rand(3))).tolist()
        places = []  # where the answer asked for the value of f

        def f(x, a=a, b=b, c=c, places=places):
            places.append(float(torch.as_tensor(x).detach().flatten()[0]))
            return a * x**3 + b * x**2 + c * x

        right = 3 * a * x**2 + 2 * b * x + c
        yours = _call_slope(answer, f, x)
        by_difference = places and max(places) - min(places) > 5e-7  # more than rounding to float32
        if yours is None:
            raise Incorrect(
                "Your function returned None.",
                "a number",
                look="is there a `return` at its end? And is `.grad` read after `.backward()`? Before, it is None",
            )
        if isinstance(yours, torch.Tensor) and yours.numel() == 1:
            raise Incorrect(
                "You returned a tensor, and a Python number was asked for.",
                "a number such as 6.0",
                show(yours),
                "`.item()` takes the number out of a tensor of one element",
            )
        mistake(yours, f(x), "That is the value of f at x, not its slope there.", "`.grad` of x, after `.backward()`")
        mistake(
            yours,
            2 * x,
            "That is the slope of x², whatever f is.",
            "call f itself, and let PyTorch find its slope",
        )
        mistake(yours, -right, "The size is right, but not the sign.", "`abs`, or a minus, on the way to your result")
        mistake(
            yours,
            2 * right,
            "That is twice the slope: gradients add up in `.grad`, and you went back twice.",
            "`backward()` once, on a tensor made anew in each call",
        )
        number = isinstance(yours, (int, float)) and not isinstance(yours, bool)
        if number and by_difference:
            raise Incorrect(
                "You took values of f at more than one place: that is a difference quotient, near the slope, and how "
                "near depends on the step you take.",
                f"{right:.7g}, by autograd",
                f"{yours:.7g}",
                "autograd needs one place and no step: `.backward()`, then `.grad`",
            )
        if number and yours in {int(right), *(round(right, digits) for digits in range(4))}:
            raise Incorrect(
                "You rounded the slope.", f"{right:.7g}", f"{yours:.7g}", "`int(…)` or `round(…)`: `.item()` is enough"
            )
        same(yours, right, f"The slope at x = {x:.4g}")


def _call_slope(answer, f, x):
    """The answer's result; what PyTorch says about the usual mistakes is put into the words of the exercise."""
    try:
        return call(answer, f, x, may_return_none=True)
    except AnswerRaised as raised:
        message = str(raised.error)
        if "Only Tensors of floating point" in message:
            raise Incorrect(
                f"x was the integer {x} here, and only floating-point tensors can have gradients.",
                f"a float tensor: `torch.tensor({float(x)}, requires_grad=True)`",
                f"an integer tensor: `torch.tensor({x}, requires_grad=True)`",
                "`float(x)` before it becomes a tensor",
            ) from None
        if "does not require grad" in message:
            raise Incorrect(
                "PyTorch did not watch x, so there is nothing to go back through.",
                "`torch.tensor(…, requires_grad=True)`",
                look="the line in which x becomes a tensor, before f is called",
            ) from None
        if "has no attribute 'backward'" in message and "'Tensor'" not in message:
            raise Incorrect(
                "f was called with a plain Python number, so its result is a plain number too.",
                "f called with a tensor that requires gradients",
                look="make a tensor of x first, then call f with that tensor",
            ) from None
        if message.startswith(f"'{type(x).__name__}' object has no attribute") and "grad" in message:
            raise Incorrect(
                f"x is the Python number {x} here, and only tensors have gradients.",
                f"`torch.tensor({float(x)}, requires_grad=True)`",
                look="make a tensor of x first",
            ) from None
        if message.startswith("'NoneType' object has no attribute"):
            raise Incorrect(
                "`.grad` was still None when you read it.",
                look="has `backward()` run before? And is it the `.grad` of the tensor that you made with "
                "`requires_grad=True`, not of one computed from it?",
            ) from None
        raise


@exercise(
    "average_digit",
    title="Stretch: the average digit",
    minutes=5,
    difficulty=3,
    points=2,
    takeaway="A comparison selects, `mean(dim=0)` averages over the images: no loop, and the same line works for ten "
    "images and for sixty thousand.",
    hints=(
        "Two steps: keep only the images whose label is the digit, then average over these images, pixel by pixel.",
        "`labels == digit` is a tensor of True and False, and it may stand in the brackets behind `images`. "
        "Pixels are uint8, and a mean needs floats.",
        "`images[labels == digit].float()`, and then the mean over `dim=0`, the axis that counts the images.",
    ),
)
def average_digit(answer, new: Inputs):
    n, height, width = new.size(20, 30), *new.sizes(2, 5, 9)
    digit = new.pick([0, 1, 2, 4])  # never 3, the example in the text
    labels = new.ints(0, 10, (n,))
    labels[5:9], labels[9] = digit, digit + 1  # at least four of the digit; images 0 to 4 are left to chance
    labels[:5] = digit + 1  # so that image number `digit` shows another one
    images = new.images(n, 1, height, width)
    right = images[labels == digit].float().mean(dim=0)
    try:
        yours = call(answer, images, labels, digit)
    except AnswerRaised as raised:
        if isinstance(raised.error, RuntimeError) and "dtype" in str(raised.error):
            raise Incorrect(
                "PyTorch refuses to average uint8 pixels: the mean of integers is no integer.",
                "float32 pixels when you average",
                look="`.float()` before `.mean(…)`",
            ) from None
        raise
    everything = images.float()
    number = yours.numel() == 1 if isinstance(yours, torch.Tensor) else isinstance(yours, (int, float))
    if number:
        raise Incorrect(
            "That is a single number: `mean()` without `dim` averages over images and pixels alike.",
            f"an image of shape {tuple(right.shape)}",
            show(yours),
            "`dim=0`, the axis that counts the images",
        )
    mistake(
        yours,
        everything.mean(dim=0),
        f"That is the average over all {n} images: the digits were not told apart.",
        "`images[labels == digit]`",
    )
    mistake(
        yours,
        everything[digit],
        f"That is image number {digit}. The digit stands in the labels, not in the place of the image.",
        "`labels == digit`",
    )
    mistake(
        yours,
        right * (labels == digit).sum(),
        "That is the sum of the images, not their average.",
        "`mean(dim=0)`, or divide by how many there are",
    )
    mistake(
        yours,
        right * (labels == digit).sum() / n,
        f"You divided by {n}, the number of all images, instead of by the number of images of this digit.",
        "`mean(dim=0)` of the selected images counts for you",
    )
    chosen = images[labels == digit]
    mistake(yours, chosen[0].float(), f"That is only the first image of digit {digit}.", "`mean(dim=0)`, not `[0]`")
    mistake(yours, right / 255, "Your values go from 0 to 1; here they should stay between 0 and 255.")
    mistake(
        yours,
        chosen.sum(dim=0, dtype=torch.uint8) / len(chosen),
        "Your sum began again at 0 whenever it passed 255: uint8 cannot hold more.",
        "`.float()` before you add, or a float tensor to add to",
    )
    if isinstance(yours, torch.Tensor) and not yours.dtype.is_floating_point:
        raise Incorrect(
            "Your average holds integers: the fractions are lost.",
            "torch.float32",
            str(yours.dtype),
            "`.float()` before you average, and no `//`",
        )
    mistake(yours, right.floor(), "The fractions are lost: your average was rounded down.", "`/` instead of `//`")
    same(yours, right, f"The average of digit {digit}", dtype=False)
