"""The exercises of chapter 01: a reader of handwritten digits from nothing but tensor operations."""

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchcourse.checks.engine import Incorrect, Inputs, attempted, call, chapter, mistake, same

exercise = chapter("01_tensors")


class CountOperations(TorchDispatchMode):
    """Counts the operations of PyTorch that run inside `with`: a Python loop over elements shows as very many."""

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        self.count += 1
        return func(*args, **(kwargs or {}))


def tensor_from(answer: Any, *args: Any) -> Any:
    """What the answer returns. A tensor that cannot be compared number by number is refused with a sentence."""
    yours = call(answer, *args)
    if isinstance(yours, torch.Tensor) and (yours.layout != torch.strided or yours.is_complex() or yours.is_meta):
        kind = "sparse" if yours.layout != torch.strided else "complex" if yours.is_complex() else "without data"
        raise Incorrect("Your result is of an unusual kind.", "an ordinary tensor of real numbers", f"a {kind} tensor")
    return yours


def close(yours: Any, expected: torch.Tensor) -> bool:
    """True if two tensors agree in shape and, up to rounding, in value."""
    return (
        isinstance(yours, torch.Tensor)
        and yours.shape == expected.shape
        and torch.allclose(yours.detach().cpu().double(), expected.double(), rtol=1e-3, atol=1e-4)
    )


@exercise(
    "scale_pixels",
    title="Pixels to floats",
    minutes=3,
    difficulty=1,
    points=1,
    takeaway="uint8 until you compute, float32 from 0 to 1 when you do: dividing by 255 already gives float32.",
    hints=(
        "The largest value that a uint8 pixel can have should become 1.",
        "Division with one slash always gives floats. Two slashes round down and keep integers.",
        "`pixels.float() / ...` with the largest pixel value in place of the dots.",
    ),
)
def scale_pixels(answer: Any, new: Inputs) -> None:
    n, height, width = new.sizes(3, 3, 12)
    pixels = new.images(n, new.pick([1, 3]), height, width)
    yours = tensor_from(answer, pixels)
    if isinstance(yours, torch.Tensor) and yours.dtype == torch.uint8 and not close(yours, pixels // 255):
        raise Incorrect(
            "Your result still holds integers, so nothing between 0 and 1 fits in.", "torch.float32", str(yours.dtype)
        )
    mistake(yours, pixels.float(), "The dtype has changed, but your values still go up to 255: divide by 255.")
    mistake(
        yours,
        pixels // 255,
        "Everything but pure white has become 0.",
        look="`//` rounds down, and so does a division that is stored as integers: use `/`, and keep the floats",
    )
    mistake(yours, pixels / 256, "White should be exactly 1: the largest pixel value is 255, not 256.")
    mistake(yours, pixels / 127.5 - 1, "Your values go from -1 to 1; here they should go from 0 to 1.")
    if isinstance(yours, torch.Tensor) and yours.dtype == torch.float64:
        raise Incorrect(
            "Your values are float64: twice the memory, and the layers of a network want float32.",
            "torch.float32",
            "torch.float64",
            look="`.double()`, or a detour over NumPy",
        )
    same(yours, pixels / 255)


# What each prediction is about, for the one who got it wrong.
REASONS = {
    "x[1:3]": "A slice only needs another start: it is a view, and writing into it writes into x.",
    "x[[1, 2]]": "A list of indices may name the rows in any order, which no stride can describe: it copies.",
    "x.T": "Transposing swaps the two strides and moves nothing: it is a view.",
    "x[x > 10]": "A mask may pick any elements, which no stride can describe: it copies.",
    "x.reshape(24)": "x lies in memory in reading order, so reshape needs no copy here: it is a view.",
    "x.T.reshape(24)": "Read row by row, x.T jumps through memory in a way that no single stride describes: it copies.",
    "x.T.stride()": "x has strides (6, 1): a step down skips a row of six. Transposed, the two swap.",
    "x[:, ::2].stride()": "A step down is still a row of six boxes; a step to the right now skips every other box.",
}


@exercise(
    "view_or_copy",
    title="View or copy?",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="What a start, a shape and strides can describe is a view; for everything else PyTorch has to copy.",
    hints=(
        "Ask for each expression: can I say it as a start, and one fixed step for each axis?",
        "Slices and `.T` can be said like that; lists and masks cannot. For `reshape`, think of the order in memory.",
        "`x` has shape (4, 6) and strides (6, 1). `.T` swaps them; `::2` doubles the one of its axis.",
    ),
)
def view_or_copy(answer: Any, new: Inputs) -> None:
    x = torch.arange(24).reshape(4, 6)
    # Not written down here but asked of PyTorch: what the answer is compared with is what really happens.
    results = {
        "x[1:3]": x[1:3],
        "x[[1, 2]]": x[[1, 2]],
        "x.T": x.T,
        "x[x > 10]": x[x > 10],
        "x.reshape(24)": x.reshape(24),
        "x.T.reshape(24)": x.T.reshape(24),
    }
    memory = x.untyped_storage().data_ptr()
    truth: dict[str, Any] = {
        name: "view" if result.untyped_storage().data_ptr() == memory else "copy" for name, result in results.items()
    }
    truth |= {"x.T.stride()": x.T.stride(), "x[:, ::2].stride()": x[:, ::2].stride()}

    if not isinstance(attempted(answer), dict):
        raise Incorrect("Your answer is not a dictionary.", "the dictionary `predictions` with its eight keys", answer)
    missing = [name for name in truth if name not in answer]
    if missing:
        raise Incorrect(f'The prediction for "{missing[0]}" is missing.', look="the keys: leave them as they were")
    for name, expected in truth.items():
        yours = answer[name]
        if isinstance(expected, tuple):
            form = isinstance(yours, (tuple, list)) and [type(stride) for stride in yours] == [int, int]
            right = form and tuple(yours) == expected
            wanted = "a pair of strides, for example (6, 1)"
        else:
            word = yours.strip().lower() if isinstance(yours, str) else None
            right, form, wanted = word == expected, word in ("view", "copy"), 'the word "view" or the word "copy"'
        if not form:
            raise Incorrect(f'The prediction for "{name}" has another form.', wanted, yours)
        if not right:
            raise Incorrect(f'Not so for "{name}". {REASONS[name]}', yours=yours, look="the pictures of memory")


@exercise(
    "normalize",
    title="Normalize each channel",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="Statistics of shape [C] meet images [N, C, H, W] only as [C, 1, 1]: shapes line up from the right.",
    hints=(
        "One mean and one deviation for each channel: over which axes must they be taken, so that only C remains?",
        "`dim=` takes several axes at once. `keepdim=True` leaves a shape that broadcasts back without further work.",
        "`mean = images.mean(dim=(0, 2, 3), keepdim=True)`, the same with `std`, then subtract and divide.",
    ),
)
def normalize(answer: Any, new: Inputs) -> None:
    # The first images are as wide as they have channels: a mean of shape [3] then runs along the width, unnoticed.
    for width in (3, new.size(6, 9)):
        images = new.randn(new.size(10, 14), 3, new.size(4, 5), width)
        images = images * torch.tensor([0.5, 1.0, 2.0])[:, None, None] + (new.randn(3) * 3)[:, None, None]
        yours = tensor_from(answer, images)
        over = (0, 2, 3)
        mean, deviation = images.mean(over, keepdim=True), images.std(over, keepdim=True)
        expected = (images - mean) / deviation
        if width == 3:
            mistake(
                yours,
                (images - mean.flatten()) / deviation.flatten(),
                "Your mean and deviation have shape [3], and broadcasting lined them up with the width, the last axis.",
                look="the shape of the mean: [3, 1, 1] meets the channels; `keepdim=True` or `[:, None, None]`",
            )
        mistake(
            yours,
            (images - images.mean()) / images.std(),
            "You took one mean and one deviation for everything; each channel should have its own.",
            look="`dim=` in `mean` and `std`",
        )
        for axes, what in [
            ((1, 2, 3), "each image"),
            ((2, 3), "each channel of each image"),
            ((0,), "each single pixel"),
        ]:
            mistake(
                yours,
                (images - images.mean(axes, keepdim=True)) / images.std(axes, keepdim=True),
                f"You took mean and deviation for {what}; they should be taken for each channel, over all images.",
                look="`dim=` names the axes that disappear: all but C",
            )
        mistake(yours, images - mean, "The mean is 0 now, but the deviation is as before: divide by it.")
        mistake(yours, images / deviation, "The deviation is 1 now, but the mean is not 0: subtract it first.")
        mistake(yours, images - mean / deviation, "You divided only the mean: `(images - mean) / deviation`.")
        mistake(
            yours,
            (images - mean) / deviation**2,
            "You divided by the variance: the standard deviation is its square root.",
            look="`var` or `std`",
        )
        if not close(yours, (images - mean) / images.std(over, correction=0, keepdim=True)):  # as right as the other
            same(yours, expected, look="the mean of each channel of your result should be 0, its deviation 1")


@exercise(
    "held_out_split",
    title="A split that comes again",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="A generator of your own gives the same numbers for the same seed, and leaves everyone else's alone.",
    hints=(
        "All indices in random order first; then cut once. What is cut from one row cannot overlap.",
        "`torch.randperm` takes `generator=`: a `torch.Generator()` of your own with the given seed.",
        "`order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))`, then two slices of `order`.",
    ),
)
def held_out_split(answer: Any, new: Inputs) -> None:
    n, held_out, seed = new.size(60, 90), new.size(12, 20), new.size(0, 10_000)
    state = _random_states()
    train, held = _two_tensors(call(answer, n, held_out, seed))
    touched = state != _random_states()
    if (len(train), len(held)) == (held_out, n - held_out):
        raise Incorrect(
            "The two parts are swapped: the first is for training.", (n - held_out, held_out), (held_out, n - held_out)
        )
    if (len(train), len(held)) != (n - held_out, held_out):
        raise Incorrect("The parts have the wrong sizes.", (n - held_out, held_out), (len(train), len(held)))
    both = set(train.tolist()) & set(held.tolist())
    if both:
        raise Incorrect(
            f"{len(both)} images are in both parts, for example number {min(both)}: a test on images that the "
            "program has seen says nothing.",
            look="draw one order of all indices, and cut it",
        )
    if sorted(torch.cat([train, held]).tolist()) != list(range(n)):
        raise Incorrect(
            "Some indices come more than once, and others never.",
            f"each of 0 to {n - 1} exactly once",
            look="`randint` draws with repetition, `randperm` does not; the first index is 0",
        )
    if held.sort().values.tolist() in (list(range(held_out)), list(range(n - held_out, n))):
        raise Incorrect("The images are not shuffled: the held-out part is simply one end of the data.")
    if not torch.equal(held, _two_tensors(call(answer, n, held_out, seed))[1]):
        raise Incorrect("Two calls with the same seed gave two different splits.", look="is `seed` used anywhere?")
    if torch.equal(held, _two_tensors(call(answer, n, held_out, seed + 1))[1]):
        raise Incorrect("Another seed gave the same split.", look="a fixed number where `seed` should stand?")
    if touched:
        raise Incorrect(
            "The split is right, but your function changed the global random state: everyone else's numbers are "
            "different now.",
            "a generator of your own",
            look="`torch.manual_seed(seed)` sets the global generator; `torch.Generator().manual_seed(seed)` makes one",
        )


def _two_tensors(result: Any) -> tuple[torch.Tensor, torch.Tensor]:
    if not (isinstance(result, (tuple, list)) and len(result) == 2):
        raise Incorrect("Your function should return two things.", "the pair (train, held_out)", result)
    for part in result:
        if not isinstance(part, torch.Tensor) or part.dim() != 1:
            raise Incorrect("A part is not a tensor of indices.", "an int64 tensor of one dimension", part)
        if part.dtype != torch.int64:
            raise Incorrect("Indices are integers.", "torch.int64", str(part.dtype))
    return result[0].cpu(), result[1].cpu()


def _random_states() -> tuple[Any, ...]:
    """The global random states of PyTorch, NumPy and Python, in a form that can be compared."""
    return torch.get_rng_state().tolist(), str(np.random.get_state(legacy=False)), random.getstate()


@exercise(
    "pairwise_distances",
    title="All distances at once",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="[n, 1, d] against [1, m, d] gives every pair, [n, m, d]: the trap of broadcasting, used on purpose.",
    hints=(
        "Write the shapes down: [n, d] and [m, d] should become [n, m, d], and then [n, m].",
        "`None` in an index adds an axis of size 1. Where does `a` need one, and where does `b`?",
        "`difference = a[:, None] - b[None]`; square it, sum over the last axis, take the root.",
    ),
)
def pairwise_distances(answer: Any, new: Inputs) -> None:
    n, m, d = new.size(40, 44), new.size(30, 36), new.size(3, 9)
    for m_now in (n, m):  # first as many as there are others: then comparing only a[i] with b[i] runs, and is found
        a, b = new.randn(n, d), new.randn(m_now, d)
        with CountOperations() as operations:
            yours = tensor_from(answer, a, b)
        difference = a[:, None] - b[None]
        expected = difference.square().sum(-1).sqrt()
        if m_now == n:
            mistake(
                yours,
                (a - b).norm(dim=1),
                "You compare a[0] with b[0], a[1] with b[1] and so on; every a should meet every b.",
                look="the shapes: which one needs an axis of size 1, and where?",
            )
        mistake(
            yours, expected.T, "Rows and columns are swapped: a goes down, b goes across.", look="`None` in the index"
        )
        mistake(yours, expected.square(), "These are squared distances: take the square root at the end.")
        mistake(yours, difference.abs().sum(-1), "You summed absolute values; the Euclidean distance sums squares.")
        mistake(yours, expected / d**0.5, "You took the mean of the squares; the distance is the root of their sum.")
        mistake(yours, difference.sum(-1), "You summed the differences: plus and minus cancel. Square them first.")
        for unfinished in (difference, difference.square(), difference.abs()):
            mistake(
                yours,
                unfinished,
                f"You have one number for each pair and each feature, shape {tuple(unfinished.shape)}: "
                "sum over the last axis.",
            )
        same(yours, expected, rtol=1e-3, atol=1e-3, dtype=False)
        if operations.count > 40:
            raise Incorrect(
                f"Your distances are right, but took {operations.count} operations for {n} times {m_now} points: there "
                "is a loop.",
                "a handful of operations, however many points there are",
                look="`for`: let broadcasting form the pairs",
            )


@exercise(
    "confusion_matrix",
    title="Who is taken for whom?",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="With repeated indices `m[i, j] += 1` counts once: accumulate with index_put_ or bincount.",
    hints=(
        "Two index tensors address one cell for each image. The difficulty is that the same cell comes up many times.",
        "Either use `index_put_(..., accumulate=True)`, or give each pair (label, predicted) a number and count.",
        "`torch.bincount(labels * classes + predicted, minlength=...)`, then bring the counts into shape.",
    ),
)
def confusion_matrix(answer: Any, new: Inputs) -> None:
    classes, n = new.size(4, 7), new.size(1500, 2000)
    # Nobody belongs to the last class, and nobody is taken for it: the matrix has its row and column all the same.
    labels = new.ints(0, classes - 1, (n,))
    predicted = torch.where(new.rand(n) < 0.6, labels, (labels + new.ints(0, 2, (n,))) % (classes - 1))
    with CountOperations() as operations:
        yours = tensor_from(answer, labels, predicted, classes)
    expected = torch.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)
    mistake(
        yours,
        (expected > 0).long(),
        "Each cell was counted once, however many images fall into it.",
        look="with an index that occurs several times, `matrix[labels, predicted] += 1` adds 1 a single time",
    )
    mistake(yours, expected.T, "Rows and columns are swapped: the true class goes down, the predicted one across.")
    mistake(
        yours,
        expected[:-1, :-1],
        "The last class is missing: no image here belongs to it, and the matrix should have its row all the same.",
        look="`classes`: sizes and `minlength` come from there, not from the largest label that occurs",
    )
    mistake(yours, expected.diag(), "You counted only the correct ones, the diagonal of the matrix.")
    for axis in (0, 1):
        shares = expected / expected.sum(dim=axis, keepdim=True)
        for asked in (shares, shares.nan_to_num()):
            mistake(yours, asked, "These are shares; the task asks for counts.")
    mistake(yours, expected / n, "These are shares; the task asks for counts.")
    same(yours, expected, dtype=False)
    if operations.count > 5 * classes**2 + 50:
        raise Incorrect(
            f"Your counts are right, but took {operations.count} operations for {n} images: there is a loop.",
            "a number of operations that does not depend on the number of images",
            look="`for`: index with all labels at once",
        )


@exercise(
    "patches",
    title="Stretch: cut images into patches",
    minutes=9,
    difficulty=4,
    points=3,
    takeaway="reshape only splits and joins neighboring axes; to change their order you need permute, in between.",
    hints=(
        "Split first: an axis of length H becomes two, (H / size) rows of patches and `size` rows within a patch.",
        "After the split there are six axes: n, c, row, y, column, x. Which order do you need, so that row and column "
        "become neighbors, and then c, y, x?",
        "`images.reshape(n, c, h // size, size, w // size, size).permute(0, 2, 4, 1, 3, 5)`, then join row and column.",
    ),
)
def patches(answer: Any, new: Inputs) -> None:
    n, (rows, columns), size = new.size(2, 3), new.sizes(2, 2, 5), new.pick([2, 4])  # never 3, as the channels
    images = new.rand(n, 3, rows * size, columns * size)
    yours = tensor_from(answer, images, size)
    six = images.reshape(n, 3, rows, size, columns, size)  # n, c, row, y, column, x
    shape = (n, rows * columns, 3, size, size)
    expected = six.permute(0, 2, 4, 1, 3, 5).reshape(shape)
    mistake(
        yours,
        images.reshape(shape),
        "The shape is right, but the pixels are cut as they lie in memory: a patch of yours is made of whole rows.",
        look="`reshape` alone cannot reorder: split the axes, `permute`, then join",
    )
    mistake(
        yours,
        six.permute(0, 4, 2, 1, 3, 5).reshape(shape),
        "Your patches run down the columns; they should come in reading order, row by row.",
        look="the order of `row` and `column` in `permute`",
    )
    mistake(
        yours,
        six.permute(0, 2, 4, 1, 5, 3).reshape(shape),
        "Each patch is transposed: its rows and columns are swapped.",
        look="the last two numbers of `permute`",
    )
    mistake(
        yours,
        six.permute(0, 2, 4, 3, 5, 1).reshape(n, rows * columns, size, size, 3),
        "The channels stand last; they should stand before the rows and columns of a patch.",
    )
    mistake(
        yours,
        six.permute(0, 2, 4, 1, 3, 5),
        "All pixels stand right, but rows and columns of patches are still two axes: join them.",
        look="a `reshape` or `flatten` after the `permute`",
    )
    mistake(
        yours,
        six.permute(0, 2, 4, 3, 5, 1).reshape(shape),
        "The colors are mixed up: a reshape has taken what were channels for rows.",
        look="where `c` stands in `permute`",
    )
    mistake(
        yours,
        expected.flatten(2),
        "The pixels are right, but each patch is flat: give it back its shape (C, size, size).",
    )
    same(
        yours, expected, look="the first patch of an image is `image[:, :size, :size]`, the next one lies to its right"
    )
