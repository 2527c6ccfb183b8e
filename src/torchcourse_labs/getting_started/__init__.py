"""Exercises of chapter 00: a first tensor, a first gradient, and an average digit."""

import numpy as np
import torch

from labcheck.inputs import Inputs
from torchcourse_labs._spec import Spec, altered, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ()  # declared below

exercise = chapter("00_getting_started")


def _shapes_and_values(new: Inputs) -> list[tuple]:
    # The integer makes the dtype a question; the digits after the point show what rounds; two signs show `abs`.
    up, down = (round(new.size(2, 8) + 0.1 + 0.8 * new.rand(1).item(), 5) for _ in range(2))
    integer = (tuple(new.sizes(2, 3, 7)), -new.size(2, 9))  # never (2, 3), the example in the text
    return [integer, ((*new.sizes(2, 2, 6), 1), up), ((new.size(2, 6),), -down), ((new.size(2, 6),), 0)]


exercise(
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
    spec=Spec(
        draw=_shapes_and_values,
        solution=lambda shape, value: torch.full(shape, value, dtype=torch.float32),
        rtol=1e-6,
        mistakes="""
            = torch.zeros(shape)
                Every element is 0 instead of {value}.
            = torch.ones(shape)
                Every element is 1 instead of {value}.
            = torch.ones(shape) + value
                Every element is 1 too large.
                look: `torch.ones(shape)`: multiply by the value, or start from zeros
            = torch.full(shape, float(value or 1))
                The value 0 gives other numbers: it is a value like any other.
                look: `value or …`: Python takes 0 for "no value"
            = torch.full(shape, float(abs(value)))
            = torch.full(shape, float(-value))
                The sign is wrong: the value is {value}.
                look: `abs(…)` or a minus: pass `value` to PyTorch unchanged
            = torch.full(shape, float(int(value)))
            = torch.full(shape, float(round(value)))
            = torch.full(shape, float(value // 1))
                The value is {value}, and in your tensor the fraction is lost.
                look: `int(…)`, `round(…)` or an integer dtype on the way: pass `value` to PyTorch unchanged
            = torch.full(shape, value, dtype=torch.float16).float()
            = torch.full(shape, value, dtype=torch.bfloat16).float()
                Your values have lost digits: they went through a dtype with half the precision.
                look: `float16`, `bfloat16` or `.half()`: use float32 from the start
            = torch.full(shape, float(value)).squeeze()
                Axes of size 1 are missing: the shape should be {shape}.
                look: `squeeze` removes them
            = torch.full(shape[::-1], float(value))
                The axes of your tensor are in reverse order for shape={shape}.
            = torch.tensor(shape)
            = torch.Tensor(shape)
                Your tensor contains the numbers of the shape: `torch.tensor` takes values, and it took {shape}.
                look: a function that takes a shape, for example `torch.full`
            = torch.full(value, shape)
            = torch.full(value, shape, dtype=torch.float32)
                `torch.full` takes the shape first, then the value.
            = torch.full((shape[0], shape[1]), float(value))
                Your function is made for shapes of two numbers, and here shape={shape}.
                look: pass `shape` on as it is, whatever its length
                when: says(yours, "out of range", "values to unpack") or yours.shape == shape[:2] != shape
            = torch.full((2, 3), float(value))
                Your tensor has shape (2, 3), which was only the example; here shape={shape}.
                look: what you do with the argument `shape`
                when: yours.shape == (2, 3)
            = torch.tensor(float(value))
                That is a single number without a shape; shape={shape} is not used.
                look: `torch.tensor(value)` does not know the shape: use a function that takes the shape first
                when: isinstance(yours, float | int) or yours.shape == ()
            = np.full(shape, value, dtype=np.float32)
                That is a NumPy array, not a tensor.
                look: `torch.full`
                when: isinstance(yours, np.ndarray)
            = torch.full(shape, bool(value))
                Your tensor holds True and False instead of {value}.
                look: the argument `dtype=torch.float32`
                when: yours.dtype == torch.bool
            = torch.full(shape, value)
                Your tensor holds integers: PyTorch took the dtype from the integer {value}.
                look: the argument `dtype=torch.float32`
                when: isinstance(value, int) and yours.dtype == torch.int64
            = torch.full(shape, value, dtype=torch.float64)
            = torch.full(shape, value, dtype=torch.complex64)
                Your tensor has dtype {yours.dtype}; the exercise asks for float32.
                look: the argument `dtype=torch.float32`
                when: yours.shape == expected.shape and yours.dtype != torch.float32
        """,
        also_right=[
            lambda shape, value: torch.ones(*shape) * value,
            lambda shape, value: torch.tensor(float(value)).expand(shape),
            lambda shape, value: torch.nn.Parameter(torch.nn.init.constant_(torch.empty(shape), value)),
            lambda shape, value: torch.from_numpy(np.full(shape, value, dtype=np.float32)),
        ],
    ),
)


NUMBERS = "float", "int"  # what people pass to f instead of a tensor


class Cubic:
    """A polynomial and 1000·x, where autograd takes that last term for a constant.

    So `.grad` is the slope of the polynomial, and a difference quotient, however it is computed, is off by 1000.
    """

    def __init__(self, a: float, b: float, c: float) -> None:
        self.a, self.b, self.c = a, b, c

    def __call__(self, x):
        constant = x.detach() if isinstance(x, torch.Tensor) else x
        return self.a * x**3 + self.b * x**2 + self.c * x + 1000 * constant


def _slope(f, x):
    return 3 * f.a * x**2 + 2 * f.b * x + f.c


def _cubics(new: Inputs) -> list[tuple]:
    # A float and an integer: people who type `slope(f, 2)` have not thought of dtypes. One goes up, one down. And 0,
    # which `if x` takes for none.
    places = round(0.5 + 1.5 * new.rand(1).item(), 3), new.size(1, 3), 0
    sign = new.pick([-1, 1])
    return [(Cubic(*(s * (1 + new.rand(3))).tolist()), x) for x, s in zip(places, (sign, -sign, sign), strict=True)]


def _by_backward(f, x):
    x = torch.tensor(float(x), requires_grad=True)
    y = f(x)
    y.backward()
    return x.grad.item()


def _by_grad(f, x):
    x = torch.tensor(x, dtype=torch.float64).requires_grad_()
    return torch.autograd.grad(f(x), x, create_graph=True)[0].item()


exercise(
    "slope",
    title="A slope by autograd",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="Three steps, and they work for any function built from tensor operations: a tensor that requires "
    "gradients, `backward()` on the result, `.grad` of the input.",
    hints=(
        "Three steps, as in the lecture: make a tensor that PyTorch watches, compute with it, go backward.",
        "The number must become a float tensor with `requires_grad=True`. After `y.backward()`, the slope is in the "
        "`.grad` of the tensor you started from, and `.item()` turns it into a Python number.",
        "`x = torch.tensor(float(x), requires_grad=True)`, then `f(x).backward()`, then return `x.grad.item()`.",
    ),
    spec=Spec(
        draw=_cubics,
        solution=_slope,
        rtol=2e-6,
        atol=0,
        look="a new tensor in each call, because gradients add up in `.grad`; and `backward()` without an argument",
        mistakes=[
            """
            = f(x)
                That is the value of f at x = {x}, not its slope there.
                look: return `.grad` of x, after `.backward()`
            = 2.0 * x
                That is the slope of x², whatever f is.
                look: call f itself, and let PyTorch find its slope
            = -_slope(f, x)
            = abs(_slope(f, x))
                The size of your slope is right, but its sign is wrong.
            = _slope(f, int(x))
            = _slope(f, round(x))
                That is the slope at a whole number near x = {x}.
                look: `int(x)` or `round(x)`: `float(x)` keeps the fraction
            = float(int(_slope(f, x)))
            *(lambda f, x, digits=digits: round(_slope(f, x), digits) for digits in range(4))
                You rounded the slope.
                look: `int(…)` or `round(…)`: `.item()` is enough
            = (f(x + 1e-3) - f(x)) / 1e-3
            = float(np.gradient(f(x + np.array([-1e-3, 0, 1e-3])), 1e-3)[1])
                You compared values of f at nearby points. This f has a term that autograd takes for a constant, so a
                difference quotient gives another number.
                look: autograd needs one point and no step: `.backward()`, then `.grad`
                when: abs(yours - (expected + 1000)) < 200
            """,
            *altered(
                _by_backward,
                """
                y.backward() → y.backward(retain_graph=True); y.backward()
                    That is twice the slope: gradients add up in `.grad`, and you called `backward()` twice.
                    look: call `backward()` once, on a tensor that each call of `slope` creates
                y.backward() → y.backward(x.detach())
                    That is the slope times {x}: what you pass to `backward(…)` multiplies the gradient.
                    look: `y.backward()`, without an argument; the place is the tensor that you gave to f
                y.backward() → y.retain_grad(); y.backward() && x.grad → y.grad
                    That is the slope of y with respect to itself, which is always 1.
                    look: `.grad` of x, the tensor that you passed to f
                .item() →
                    You returned a tensor; the exercise asks for a Python number.
                    look: `.item()` takes the number out of a tensor of one element
                    when: isinstance(yours, torch.Tensor) and yours.numel() == 1
                return x.grad.item() → pass
                    Your function returned None.
                    look: is there a `return` at its end? `backward()` itself returns None: it writes the gradient into
                        `.grad` of the tensor that you made with `requires_grad=True`, and of no other
                    when: yours is None
                float(x) → x
                    x is the integer {x} here, and only floating-point tensors can have gradients.
                    look: `float(x)` before it becomes a tensor
                    when: says(yours, "Only Tensors of floating point")
                , requires_grad=True →
                f(x) → f(x.detach())
                    There is no graph to go back through: no gradient leads from your result to x.
                    look: what you pass to f: a tensor with `requires_grad=True`, not the number {x} itself. After that,
                        nothing may cut the result off from it: `detach`, `no_grad`, `.data`, `.item()`
                    when: says(yours, "does not require grad")
                x = torch.tensor(float(x), requires_grad=True) → pass
                    You called f with a plain Python number, so its result is a plain number, too.
                    look: make a tensor of x first, then call f with that tensor
                    when: says(yours, *(f"'{t}' object has no attribute 'backward'" for t in NUMBERS))
                torch.tensor(float(x), requires_grad=True) → x.requires_grad_(True)
                    x is the Python number {x}, and only tensors have gradients.
                    look: make a tensor of x first
                    when: says(yours, *(f"'{t}' object has no attribute" for t in NUMBERS))
                y.backward() → pass
                requires_grad=True) → requires_grad=True) * 1.0
                    `.grad` was None when you read it.
                    look: has `backward()` run before? And is it the `.grad` of the tensor that you made with
                        `requires_grad=True`, not of one computed from it?
                    when: says(yours, "'NoneType'")
                """,
            ),
        ],
        also_right=[
            _by_backward,
            _by_grad,
            changed(_by_backward, ("float(x)", "[float(x)]"), ("y.backward()", "y.sum().backward()")),
            lambda f, x: float(torch.func.grad(f)(torch.tensor(float(x)))),
            lambda f, x: [f(x), _by_backward(f, x)][1],  # looks at the value first, with a plain number
        ],
    ),
)


def _labeled_images(new: Inputs) -> list[tuple]:
    cases = []
    # Never 3, the example in the text; once with more than 100 images of the digit, so that all of them count.
    for digit, n in ((0, new.size(22, 30)), (new.pick([1, 2, 4, 5]), new.size(250, 260))):
        height, width = new.sizes(2, 5, 9)
        labels = new.ints(0, 10, (n,))
        labels[:6] = digit + 1  # so that image number `digit` shows another digit
        labels[7:10], labels[-3:], labels[12] = digit, digit, 3  # early and late, not only among the first ten
        labels[100:240] = digit
        cases.append((new.images(n, 1, height, width), labels, digit))
    return cases


def _by_loop(images, labels, digit):
    chosen = [image.double() for image, label in zip(images, labels, strict=True) if label == digit]
    return sum(chosen) / len(chosen)


def _average(images, labels, digit):
    chosen = images[labels == digit].float()
    return chosen.mean(dim=0)


def _first_or_last_ones(yours, expected, images, labels, digit):
    chosen = images[labels == digit].float()
    counts = torch.arange(1, len(chosen)).view(-1, 1, 1, 1)
    means = [part.cumsum(0)[:-1] / counts for part in (chosen, chosen.flip(0))]
    return any((mean - yours).abs().amax((1, 2, 3)).min() < 0.01 for mean in means)


exercise(
    "average_digit",
    title="Stretch: the average digit",
    minutes=5,
    difficulty=3,
    points=2,
    takeaway="A comparison selects, `mean(dim=0)` averages over the images: no loop, and the same line works for ten "
    "images and for sixty thousand.",
    hints=(
        "Two steps: keep only the images whose label is the digit, then average over these images, pixel by pixel.",
        "`labels == digit` is a tensor of True and False, and `images[…]` takes it as an index. "
        "Pixels are uint8, and a mean needs floats.",
        "`images[labels == digit].float()`, and then the mean over `dim=0`, the axis that counts the images.",
    ),
    spec=Spec(
        draw=_labeled_images,
        solution=_average,
        dtype=False,
        mistakes="""
            = images.float().mean(dim=0)
                That is the average over all {images.shape[0]} images, whatever digit they show.
                look: `images[labels == digit]`
            = _average(images[:10], labels[:10], digit)
            .mean(dim=0) → [:100].mean(dim=0) || [1:].mean(dim=0)
                You averaged only some of the images of digit {digit}: the label decides, not the position.
                look: a slice of the images, or a loop that ends early
                when: _first_or_last_ones
            = images[digit].float()
                That is image number {digit}. Its position says nothing about its digit: `labels` does.
                look: `labels == digit`
            = images[labels[digit]].float()
                That is a single image, not an average: `labels[{digit}]` is the label of image number {digit}.
                look: `labels == digit`, which is True where an image shows the digit
            = images[labels].float().mean(dim=0)
                You used the labels as positions: `images[labels]` takes the images at positions {labels}.
                look: `labels == digit`, which is True where an image shows the digit
            labels == digit → labels != digit
                That is the average of all images that do not show the digit {digit}.
                look: `==` and `!=`
            mean(dim=0) → sum(dim=0)
                That is the sum of the images, not their average.
                look: `mean(dim=0)`, or divide by the number of selected images
            mean(dim=0) → sum(dim=0) / len(images)
                You divided by {images.shape[0]}, the number of all images, instead of by the number of images of this
                digit.
                look: `mean(dim=0)` of the selected images counts for you
            = images[labels == digit]
                These are all the images of the digit {digit}; now average them.
                look: `mean(dim=0)`
            .mean(dim=0) → [0] || [-1]
                That is only one of the images of digit {digit}.
                look: `mean(dim=0)`, not `[0]`
            mean(dim=0) → median(dim=0).values || amax(dim=0) || amin(dim=0) || std(dim=0)
                That is the median, maximum, minimum or deviation of each pixel; the exercise asks for the mean.
                look: `mean(dim=0)`
            mean(dim=0) → mean(dim=0) / 255
                Your values go from 0 to 1; here they should stay between 0 and 255.
            .float() → && mean(dim=0) → sum(dim=0, dtype=torch.uint8) / len(chosen)
                Your sum started again at 0 whenever it passed 255: uint8 cannot hold more.
                look: a float tensor to add to, or `.float()` before you add
            mean(dim=0) → mean(dim=0).floor() || mean(dim=0).round() || mean(dim=0).to(torch.uint8)
                The fractions are lost: your average holds integers, or was rounded.
                look: `//`, `.floor()`, `.round()` or an integer dtype: divide with `/` and keep the floats
            dim=0 → dim=0, keepdim=True
                Your result has an axis of size 1 in front: a single image has shape {expected.shape}.
                look: `keepdim=True`
            dim=0 → dim=(0, 1)
                The channel axis is lost: an image has shape {expected.shape}.
                look: `squeeze`, `[0]`, or a second number in `dim=`
            mean(dim=0) → mean() || mean(dim=(0, 2, 3))
            labels == digit → images == digit
                That is a single number, not an image of shape {expected.shape}.
                look: `images[labels == digit]`, all images of the digit, then `dim=0`, the axis that counts them
                when: isinstance(yours, float | int) or yours.numel() == 1
            dim=0 → dim=1 || dim=(2, 3)
                You averaged over the wrong axis, and {yours.shape} remains. An average image has the shape
                {expected.shape}.
                look: `dim=0`, the axis that counts the images
                when: len(yours) == (labels == digit).sum()
            .float() →
                PyTorch does not average uint8 pixels: the mean of integers is rarely an integer.
                look: `.float()` before `.mean(…)`
                when: says(yours, "could not infer output dtype")
        """,
        also_right=[
            _by_loop,
            lambda images, labels, digit: images[torch.where(labels == digit)[0]].mean(0, dtype=torch.float32),
            lambda images, labels, digit: torch.from_numpy(
                images.numpy()[labels.numpy() == digit].mean(axis=0)
            ).float(),
        ],
    ),
)
