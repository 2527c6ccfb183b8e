"""The exercises of chapter 01: a reader of handwritten digits from nothing but tensor operations."""

import random
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from torchcourse.checks.engine import (
    AnswerRaised,
    Incorrect,
    Inputs,
    attempted,
    call,
    chapter,
    is_students,
    mistake,
    same,
)
from torchcourse.checks.show import show

exercise = chapter("01_tensors")


class CountSteps(TorchDispatchMode):
    """Counts the steps (bytecodes) of Python and the operations of PyTorch that run inside `with`.

    One number says little. But with more images or points, the count of vectorized code stays as it was, and that of a
    loop grows, whatever the loop works on: tensors, arrays or lists.
    """

    def __init__(self) -> None:
        super().__init__()
        self.count = 0

    def __enter__(self) -> "CountSteps":
        self.tracer = sys.gettrace()  # of a debugger, say
        # Python 3.12 looks, when tracing begins, whether any frame wants its steps told: so one must ask beforehand.
        sys._getframe().f_trace_opcodes = True
        sys.settrace(self.trace)
        return super().__enter__()

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        sys.settrace(self.tracer)

    def trace(self, frame: Any, event: str, arg: Any) -> Callable | None:
        if not is_students(frame.f_code.co_filename):  # libraries import and cache, which would count once
            return None
        # Not lines: a comprehension is one line, and since Python 3.12 it has no frame of its own either.
        frame.f_trace_lines, frame.f_trace_opcodes = False, True
        self.count += event == "opcode"
        return self.trace

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


def counted(answer: Any, *args: Any) -> tuple[Any, int]:
    """What the answer returns, and the number of steps that it took.

    Called twice: the first time of anything in a process imports and caches, and those steps would hide a loop.
    """
    with CountSteps():
        tensor_from(answer, *args)
    with CountSteps() as steps:
        yours = tensor_from(answer, *args)
    return yours, steps.count


def when_only_values_differ(yours: Any, expected: torch.Tensor, look: str) -> str | None:
    """`look` if type, shape and dtype are right. Where they are not, a word on the values would lead astray."""
    alike = isinstance(yours, torch.Tensor) and (yours.shape, yours.dtype) == (expected.shape, expected.dtype)
    return look if alike else None


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
    dark = (pixels * 0.6).to(torch.uint8) + new.size(5, 20)  # neither black nor white occurs
    yours_dark = tensor_from(answer, dark)
    low, high = dark.amin().float(), dark.amax().float()
    for wrong in (dark / high, (dark - low) / (high - low), dark / dark.amax((1, 2, 3), keepdim=True)):
        mistake(
            yours_dark,
            wrong,
            "You divided by the brightest pixel that occurs here: a dark picture comes out as bright as any other.",
            look="the largest value that a uint8 pixel can have, 255, not the largest that it happens to have",
        )
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
    same(yours_dark, dark / 255)


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
            raise Incorrect(f'The prediction for "{name}" has another form.', wanted, show(yours))
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
    # The second have four channels: the number is to be read from the images.
    for channels, width in ((3, 3), (4, new.size(6, 9))):
        images = new.randn(new.size(10, 14), channels, new.size(5, 6), width)
        spread = torch.tensor([0.5, 1.0, 2.0, 3.0])[:channels]
        images = images * spread[:, None, None] + (new.randn(channels) * 3)[:, None, None]
        yours = tensor_from(answer, images)
        over = (0, 2, 3)
        mean, deviation = images.mean(over, keepdim=True), images.std(over, keepdim=True)
        expected = (images - mean) / deviation
        if channels == 4:
            mistake(
                yours,
                torch.cat([expected[:, :3], images[:, 3:]], dim=1),
                "These images have four channels, and you normalized the first three.",
                look="a 3 in your code: the number of channels is `images.shape[1]`",
            )
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
            ((1,), "each pixel of each image"),
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
            look = "the mean of each channel of your result should be 0, its deviation 1"
            same(yours, expected, look=when_only_values_differ(yours, expected, look))


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
    # All generators are somewhere in the middle: who seeds them anew afterwards does not put them back.
    torch.rand(1), np.random.random(), random.random()
    state = _random_states()
    train, held = _two_tensors(call(answer, n, held_out, seed))
    touched = state != _random_states()
    _right_sizes(train, held, n, held_out)
    strangers = [i for i in torch.cat([train, held]).tolist() if not 0 <= i < n]
    if strangers:
        raise Incorrect(
            f"There is no image number {strangers[0]}: the indices of {n} images go from 0 to {n - 1}.",
            look="is something added to the order, or is it drawn from another range?",
        )
    both = set(train.tolist()) & set(held.tolist())
    if both:
        raise Incorrect(
            f"{len(both)} {'image is' if len(both) == 1 else 'images are'} in both parts, for example number "
            f"{min(both)}: a test on images that the program has seen says nothing.",
            look="draw one order of all indices, and cut it",
        )
    if sorted(torch.cat([train, held]).tolist()) != list(range(n)):
        raise Incorrect(
            "Some indices come more than once, and others never.",
            f"each of 0 to {n - 1} exactly once",
            look="`randint` draws with repetition, `randperm` does not",
        )
    if (held.sort().values.diff() == 1).sum() >= held_out - 2:
        raise Incorrect("The images are not shuffled: the held-out part is simply a piece of the data, cut out whole.")
    if not torch.equal(held, _two_tensors(call(answer, n, held_out, seed))[1]):
        raise Incorrect("Two calls with the same seed gave two different splits.", look="is `seed` used anywhere?")
    if torch.equal(held, _two_tensors(call(answer, n, held_out, seed + 1))[1]):
        raise Incorrect("Another seed gave the same split.", look="a fixed number where `seed` should stand?")
    more = n + new.size(10, 20)  # a fixed share, such as a fifth, may have been right for the first n
    _right_sizes(*_two_tensors(call(answer, more, held_out, seed)), more, held_out)
    if touched:
        raise Incorrect(
            "The split is right, but your function changed the global random state: everyone else's numbers are "
            "different now.",
            "a generator of your own",
            look="`torch.manual_seed(seed)` sets the global generator; `torch.Generator().manual_seed(seed)` makes one",
        )


def _right_sizes(train: torch.Tensor, held: torch.Tensor, n: int, held_out: int) -> None:
    asked, given = (n - held_out, held_out), (len(train), len(held))
    if given == asked:
        return
    if given == asked[::-1]:
        raise Incorrect("The two parts are swapped: the first is for training.", asked, given)
    raise Incorrect(f"The parts have the wrong sizes, for n={n} and held_out={held_out}.", asked, given)


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
    few, steps = new.size(26, 29), []
    # First as many as there are others: then comparing only a[i] with b[i] runs, and is found. Then more of everything.
    for n, m, d in ((few, few, new.size(3, 9)), (new.size(55, 60), new.size(40, 46), new.size(15, 19))):
        a, b = new.randn(n, d), new.randn(m, d)
        if n != m:
            b[:20] = a[:20]  # the same points in both: distance 0
        yours, count = counted(answer, a, b)
        steps.append(count)
        difference = a[:, None] - b[None]
        expected = difference.square().sum(-1).sqrt()
        _one_number_for_each_pair(yours, expected, d)
        if n == m:
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
        mistake(yours, a @ b.T, "These are dot products: large where two points are alike. A distance is small there.")
        for unfinished in (difference, difference.square(), difference.abs()):
            mistake(
                yours,
                unfinished,
                f"You have one number for each pair and each feature, shape {tuple(unfinished.shape)}: "
                "sum over the last axis.",
            )
        # Near 0 the way over dot products, which torch.cdist takes too, loses half of the digits.
        same(yours, expected, rtol=1e-3, atol=6e-3, dtype=False)
    if steps[1] > steps[0] + 10:
        raise Incorrect(
            "Your distances are right, but your code takes more steps the more points there are: there is a loop.",
            "a handful of operations, however many points there are",
            look="`for`: let broadcasting form the pairs",
        )


def _one_number_for_each_pair(yours: Any, expected: torch.Tensor, d: int) -> None:
    if not isinstance(yours, torch.Tensor):
        return
    if yours.numel() == 1:
        raise Incorrect(
            "That is a single number: you summed over pairs and features alike.",
            f"one distance for each pair, shape {tuple(expected.shape)}",
            look="`dim=-1`, the axis of the features",
        )
    if yours.dim() == 2 and yours.shape[1] == d:
        raise Incorrect(
            "You summed over points, and kept the features.",
            f"one distance for each pair, shape {tuple(expected.shape)}",
            f"shape {tuple(yours.shape)}, and a point has {d} features",
            look="`dim=-1`, the axis of the features",
        )
    if yours.shape == expected.shape and yours.isnan().any():
        nan = yours.detach().cpu().isnan()
        if (expected[nan] < 1e-3).all():
            raise Incorrect(
                "Where two points are the same, your distance is nan: rounding made its square a little negative.",
                "0, or nearly",
                "nan",
                look="`.clamp(min=0)` before the root; or subtract first, then square",
            )
        raise Incorrect(
            f"{int(nan.sum())} of your distances are nan: the root of a negative number.",
            look="what stands under the root: a sum of squares is never negative",
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
    classes, n, few = new.size(4, 7), new.size(1500, 2000), 100
    # Nobody belongs to the last class, and nobody is taken for it: the matrix has its row and column all the same.
    labels = new.ints(0, classes - 1, (n,))
    labels[::3] = 0  # one cell counts far beyond what uint8 can hold
    predicted = torch.where(new.rand(n) < 0.6, labels, (labels + new.ints(0, 2, (n,))) % (classes - 1))
    expected = torch.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)
    steps = []
    for part in (few, n):
        try:
            yours, count = counted(answer, labels[:part], predicted[:part], classes)
            steps.append(count)
        except AnswerRaised as raised:
            counts = int((labels[:part] * classes + predicted[:part]).max()) + 1
            if f"invalid for input of size {counts}" in str(raised.error):
                raise Incorrect(
                    "`bincount` stopped at the largest number that occurs, and no image here belongs to the last "
                    "class.",
                    f"{classes**2} counts, one for each cell",
                    f"{counts} counts",
                    look="`minlength=`",
                ) from None
            raise
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
    mistake(
        yours,
        torch.zeros_like(expected),
        "Your matrix is still full of zeros: you wrote into a copy.",
        look="`matrix[labels]` copies, and what is written behind it is lost: both indices in one pair of brackets",
    )
    mistake(
        yours,
        expected % 256,
        "Some of your counts began again at 0 after 255: uint8 cannot hold more.",
        look="the dtype of the matrix",
    )
    mistake(yours, expected.flatten(), "The counts are right, but stand in one row: bring them into the shape.")
    if isinstance(yours, torch.Tensor) and tuple(yours.shape) == (10, 10):
        raise Incorrect("Your matrix has 10 rows and columns whatever is asked for.", (classes, classes), (10, 10))
    mistake(yours, expected.diag(), "You counted only the correct ones, the diagonal of the matrix.")
    for axis in (0, 1):
        shares = expected / expected.sum(dim=axis, keepdim=True)
        for asked in (shares, shares.nan_to_num()):
            mistake(yours, asked, "These are shares; the task asks for counts.")
    mistake(yours, expected / n, "These are shares; the task asks for counts.")
    same(yours, expected, dtype=False)
    if steps[1] > steps[0] + n // 2:  # a loop over classes or cells is another matter
        raise Incorrect(
            "Your counts are right, but your code takes more steps the more images there are: there is a loop.",
            "a number of steps that does not depend on the number of images",
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
    steps = []
    # Bytes, as files bring them. The second images are larger, so that a loop shows, and have not three channels.
    for images in (
        new.images(n, 3, rows * size, columns * size),
        new.images(n, 2 if size == 4 else 4, (columns + 8) * size, (rows + 8) * size),
    ):
        try:
            yours, count = counted(answer, images, size)
            steps.append(count)
        except AnswerRaised as raised:
            if "not implemented for 'Byte'" in str(raised.error):
                raise Incorrect(
                    "These images are uint8, and something in your code works with floats only.",
                    "uint8 patches for uint8 images: cutting computes nothing",
                    look="`unfold` of torch.nn.functional wants floats, the method `.unfold` of a tensor any dtype",
                ) from None
            raise
        _right_patches(yours, images, size)
    if steps[1] > steps[0] + 5:
        raise Incorrect(
            "Your patches are right, but your code takes more steps the more patches there are: there is a loop.",
            "a handful of operations, however many patches there are",
            look="`for`: reshape, permute, reshape cut all images at once",
        )


def _right_patches(yours: Any, images: torch.Tensor, size: int) -> None:
    n, c, rows, columns = images.shape[0], images.shape[1], images.shape[2] // size, images.shape[3] // size
    six = images.reshape(n, c, rows, size, columns, size)  # n, c, row, y, column, x
    shape = (n, rows * columns, c, size, size)
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
        six.permute(0, 2, 4, 3, 5, 1).reshape(n, rows * columns, size, size, c),
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
    look = "the first patch of an image is `image[:, :size, :size]`, the next one lies to its right"
    same(yours, expected, look=when_only_values_differ(yours, expected, look))
