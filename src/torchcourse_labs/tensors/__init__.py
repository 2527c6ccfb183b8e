"""The exercises of chapter 01: a reader of handwritten digits from nothing but tensor operations."""

import operator
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from labcheck import probes
from labcheck.inputs import Inputs
from torchcourse_labs import _splits as splits
from torchcourse_labs._spec import Habit, Mistake, Spec, chapter, says

CHAPTER = "01_tensors"
EXERCISES = ("pairwise_distances",)

exercise = chapter("01_tensors")

# ---------------------------------------------------------------------------------------------------------------------


def _bright_and_dark_images(new: Inputs) -> list[tuple]:
    n, height, width = new.sizes(3, 3, 12)
    dark = new.ints(7, 150, (n, 3, height, width), torch.uint8)  # neither black nor white occurs
    return [(new.images(n, 1, height, width),), (dark,)]


exercise(
    "scale_pixels",
    title="Pixels to floats",
    minutes=3,
    difficulty=1,
    points=1,
    takeaway="uint8 until you compute, float32 from 0 to 1 when you do: dividing by 255 already gives float32.",
    hints=(
        "The largest value that a uint8 pixel can have should become 1.",
        "Division with one slash always gives floats. Two slashes round down and keep integers.",
        "`pixels.float() / ...` with the largest possible pixel value instead of the dots.",
    ),
    spec=Spec(
        draw=_bright_and_dark_images,
        solution=lambda pixels: pixels / 255,
        mistakes="""
            = pixels / pixels.max()
            = (pixels - pixels.min()).float() / (pixels.max() - pixels.min())
            = pixels / pixels.amax((1, 2, 3), keepdim=True)
            = pixels / pixels.amax((0, 2, 3), keepdim=True)
                You divided by the brightest pixel of these images, so a dark picture comes out as bright as others.
                look: the largest value that a uint8 pixel can have, 255, not the largest that occurs
            = pixels
                You returned the pixels as they came: `.float()` and `/` make new tensors and leave `pixels` as it is.
                when: yours.dtype == torch.uint8 and yours.equal(pixels)
            = pixels.float()
                Your values still go up to 255: divide by 255.
                when: yours.equal(pixels.float())
            = pixels // 255
                Everything but pure white has become 0.
                look: `//` rounds down, and so does storing the result as integers: use `/`, and keep the floats
            = pixels / 256
                White should be exactly 1: the largest pixel value is 255, not 256.
            = pixels / 127.5 - 1
                Your values go from -1 to 1; here they should go from 0 to 1.
            = pixels / 255 / 255
                You divided by 255 twice.
            = (pixels / 255).squeeze()
                The axis of size 1 is missing: the shape should stay {pixels.shape}.
                look: `squeeze` removes it
            = (pixels / 255).movedim(1, -1)
                The channels come last, as in matplotlib; the shape should stay {pixels.shape}.
                look: `permute` or `movedim`
            = 1 - pixels / 255
                Black and white are swapped: 0 should stay 0.
            = (pixels.float() - pixels.float().mean()) / pixels.float().std()
                You normalized to mean 0 and standard deviation 1; here the values should go from 0 to 1.
            = (pixels * 2.0).to(torch.uint8)
            = (pixels / 255).round().long()
                Your result still holds integers, so it cannot hold anything between 0 and 1.
                look: the dtype: torch.float32
                when: not yours.is_floating_point() and not yours.is_complex()
            = pixels.double() / 255
            = pixels.half() / 255
                Your values are {yours.dtype}; the layers of a network expect float32.
                look: `.double()`, `.half()`, or a detour through NumPy
                when: yours.dtype in (torch.float64, torch.float16, torch.bfloat16)
        """,
        also_right=[
            lambda pixels: torch.from_numpy(pixels.numpy().astype(np.float32) / 255),
            lambda pixels: pixels.float().div_(255).contiguous(memory_format=torch.channels_last).requires_grad_(),
            lambda pixels: (torch.arange(256) / 255)[pixels.long()],
        ],
    ),
)

# ---------------------------------------------------------------------------------------------------------------------

REASONS = {
    "x[1:3]": "A slice only needs a different start: it is a view, and writing into it writes into x.",
    "x[[1, 2]]": "A list of indices may name the rows in any order, which no stride can describe: it copies.",
    "x.T": "Transposing swaps the two strides and moves nothing: it is a view.",
    "x[x > 10]": "A mask may pick any elements, which no stride can describe: it copies.",
    "x.reshape(24)": "x lies in memory in reading order, so reshape needs no copy here: it is a view.",
    "x.T.reshape(24)": "Read row by row, x.T jumps through memory in a way that no single stride describes: it copies.",
    "x.T.stride()": "x has strides (6, 1): a step down skips a row of six. Transposed, the two swap.",
    "x[:, ::2].stride()": "A step down is still a row of six boxes; a step to the right now skips every other box.",
}


def _what_pytorch_does() -> dict[str, Any]:
    x = torch.arange(24).reshape(4, 6)
    answer = {}
    for name in REASONS:
        result = eval(name, {"x": x})  # the expressions above, not the student's
        shared = isinstance(result, torch.Tensor) and result.untyped_storage().data_ptr() == x.data_ptr()
        answer[name] = result if isinstance(result, tuple) else "view" if shared else "copy"
    return answer


def _one_prediction(answer: Callable, name: str, reason: str) -> Any:
    predictions = answer()
    if not isinstance(predictions, dict):
        return {"instead": predictions}
    value = predictions.get(name)
    if isinstance(value, str):
        return value.strip().lower()
    try:
        return tuple(operator.index(stride) for stride in value)  # a list or integers of NumPy do as well
    except TypeError:
        return value


def _but(**changed: Any) -> Callable:
    names = {"part": "x[1:3]", "rows": "x[[1, 2]]", "T": "x.T", "mask": "x[x > 10]", "flat": "x.reshape(24)"}
    names |= {"T_flat": "x.T.reshape(24)", "T_stride": "x.T.stride()", "step_stride": "x[:, ::2].stride()"}
    return lambda: _what_pytorch_does() | {names[key]: value for key, value in changed.items()}


def _well_formed(yours: Any, expected: Any) -> bool:
    return yours in ("view", "copy") if isinstance(expected, str) else isinstance(yours, tuple) and len(yours) == 2


exercise(
    "view_or_copy",
    title="View or copy?",
    minutes=5,
    difficulty=2,
    points=2,
    takeaway="Whatever a start, a shape and strides can describe is a view; for everything else, PyTorch has to copy.",
    hints=(
        "For each expression, ask: can a start and one fixed step for each axis describe it?",
        "They describe slices and `.T`, but not lists and masks. For `reshape`, think of the order in memory.",
        "`x` has shape (4, 6) and strides (6, 1). `.T` swaps them; `::2` doubles the one of its axis.",
    ),
    spec=Spec(
        takes_value=True,
        draw=lambda new: list(REASONS.items()),
        solution=_what_pytorch_does,
        measure=_one_prediction,
        mistakes="""
            = list(_what_pytorch_does().values())
                Your answer is not a dictionary, but {yours[instead]}.
                look: `predictions`, the dictionary with its eight keys
                when: "instead" in yours
            = {"x.T": "view"}
                The prediction for "{name}" is missing.
                look: the keys: leave them as they were
                when: yours is None
            _but(T="both")
            _but(flat=None, T=True)
                The prediction for "{name}" is neither "view" nor "copy", but {yours!r}.
                when: isinstance(expected, str) and not _well_formed(yours, expected)
            _but(T_stride="view")
            _but(T_stride="(1, 6)")
            _but(step_stride=6)
                The prediction for "{name}" should be a pair of strides, for example (6, 1), not {yours!r}.
                when: isinstance(expected, tuple) and not _well_formed(yours, expected)
            _but(part="copy")
            _but(rows="view")
            _but(T="copy")
            _but(mask="view")
            _but(flat="copy", T_flat="view")
            _but(T_flat="view", mask=None)
            _but(T_stride=(6, 1))
            _but(step_stride=(3, 1))
            _but(step_stride=(12, 2), rows="view")
                The prediction for "{name}" is not {yours!r}. {reason}
                look: the pictures of memory in the lecture
                when: True
        """,
        also_right=[
            _but(T="View ", T_stride=[1, 6]),
            _but(T_stride=(np.int64(1), np.int64(6)), step_stride=torch.Size([6, 2])),
        ],
    ),
)

# ---------------------------------------------------------------------------------------------------------------------

CHANNELS = (0, 2, 3)  # the axes over which each channel has its own statistics


def _color_images(new: Inputs) -> list[tuple]:
    cases = []
    # The first images are as wide as they have channels, where a mean of shape [3] runs along the width, unnoticed. The
    # number of pixels is large, so that both definitions of the deviation, with N and N - 1, are within the tolerance.
    for n, channels, height, width in (
        (new.size(10, 14), 3, new.size(20, 24), 3),
        (new.size(10, 14), 4, new.size(8, 9), new.size(10, 13)),
        (1, 1, 30, 31),
    ):
        images = new.randn(n, channels, height, width) + new.randn(n, 1, 1, 1)  # some images are brighter than others
        spread = torch.tensor([0.5, 1.0, 2.0, 3.0])[:channels]
        cases.append((images * spread[:, None, None] + (new.randn(channels) * 3)[:, None, None],))
    return cases


def _over(axes: tuple[int, ...], correction: int = 1) -> Callable:
    def normalize(images):
        deviation = images.std(axes, correction=correction, keepdim=True)
        return (images - images.mean(axes, keepdim=True)) / deviation

    return normalize


def _with_none(images):
    mean, variance = images.mean(CHANNELS), images.var(CHANNELS, correction=0)
    return (images - mean[:, None, None]) / variance.sqrt()[:, None, None]


def _channel_by_channel(images):
    return torch.stack([(channel - channel.mean()) / channel.std() for channel in images.unbind(1)], dim=1)


def _mistaken_axes() -> Iterator[Mistake]:
    for axes, what in [
        ((1, 2, 3), "for each image"),
        ((2, 3), "for each channel of each image"),
        ((0,), "for each single pixel"),
        ((1,), "for each pixel of each image"),
        ((0, 1, 2), "for each column of pixels"),
        ((0, 1), "for each pixel, over all channels"),
        ((0, 1, 2, 3), "once for everything"),
    ]:
        yield Mistake(
            f"You took mean and deviation {what}; they should be taken for each channel, over all images and pixels.",
            *(_over(axes, correction) for correction in (0, 1)),
            look="`dim=` names the axes that disappear: all but C",
        )


exercise(
    "normalize",
    title="Normalize each channel",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="Statistics of shape [C] meet images [N, C, H, W] only as [C, 1, 1]: shapes line up from the right.",
    hints=(
        "One mean and one deviation for each channel: over which axes do you take them, so that only C remains?",
        "`dim=` takes several axes at once. `keepdim=True` leaves a shape that broadcasts back without further work.",
        "`mean = images.mean(dim=(0, 2, 3), keepdim=True)`, the same with `std`, then subtract and divide.",
    ),
    spec=Spec(
        draw=_color_images,
        solution=_over(CHANNELS),
        rtol=2e-3,
        atol=1e-4,
        look="the mean of each channel of your result should be 0 and its deviation 1, whatever the images: take both "
        "numbers from `images`, and write none of them into your code",
        mistakes=[
            *_mistaken_axes(),
            """
            = (images - images.mean(CHANNELS)) / images.std(CHANNELS)
                Your mean and deviation have shape [{images.shape[1]}], and broadcasting lined them up with the last
                axis, the width.
                look: the shape of the mean: [C, 1, 1] meets the channels; `keepdim=True` or `[:, None, None]`
            = images - images.mean(CHANNELS, keepdim=True)
                The mean is 0 now, but the deviation is as before: divide by it.
            = images / images.std(CHANNELS, keepdim=True)
                The deviation is 1 now, but the mean is not 0: subtract it first.
            = images - images.mean(CHANNELS, keepdim=True) / images.std(CHANNELS, keepdim=True)
                You divided only the mean: `(images - mean) / deviation` needs the parentheses.
            = images / images.std(CHANNELS, keepdim=True) - images.mean(CHANNELS, keepdim=True)
                You divided first, so the mean that you subtract is that of the undivided images: subtract it first.
            = ((images - images.reshape(images.shape[1], -1).mean(1)[:, None, None]) /
                    images.reshape(images.shape[1], -1).std(1)[:, None, None])
                Your means are those of image rows, not of channels: `reshape(C, -1)` takes the numbers as they lie in
                memory, and there the images come before the channels.
                look: `dim=(0, 2, 3)`, or move the channels to the front before `reshape`
            = (images - images.mean(CHANNELS, keepdim=True)) / images.var(CHANNELS, keepdim=True)
                You divided by the variance: the standard deviation is its square root.
                look: `var` or `std`
            = (images - images.mean(CHANNELS, keepdim=True)) * images.std(CHANNELS, keepdim=True)
                You multiplied by the deviation: divide by it.
            = (images + images.mean(CHANNELS, keepdim=True)) / images.std(CHANNELS, keepdim=True)
                You added the mean: subtract it.
            = (images - images.mean(CHANNELS, keepdim=True)) / images.std()
            = (images - images.mean()) / images.std(CHANNELS, keepdim=True)
                Take both the mean and the deviation per channel; you took one of them over all channels.
                look: `dim=` in both, `mean` and `std`
            = (images - images.mean(CHANNELS, keepdim=True)) / images.std((2, 3), keepdim=True).mean(0, keepdim=True)
                Mean and deviation should come from all images together; you averaged those of the single images.
                look: `dim=(0, 2, 3)` in one call of `std`
            = (images - images.amin(CHANNELS, keepdim=True)) / (images.amax(CHANNELS, keepdim=True) -
                    images.amin(CHANNELS, keepdim=True))
                Each channel of your result goes from 0 to 1: subtract the mean and divide by the standard deviation.
            = (images - images.mean(CHANNELS).view(1, 3, 1, 1)) / images.std(CHANNELS).view(1, 3, 1, 1)
                With three channels your result is right. Here the images have {images.shape[1]}.
                look: a 3, or three names, in your code: the number of channels is `images.shape[1]`
                when: images.shape[1] != 3
            """,
        ],
        also_right=[
            _over(CHANNELS, correction=0),
            _with_none,
            lambda images: F.batch_norm(images, None, None, training=True),
            _channel_by_channel,
        ],
    ),
)

# ---------------------------------------------------------------------------------------------------------------------


def _splits(new: Inputs) -> list[tuple]:
    n, held_out = new.size(60, 90), new.size(12, 20)
    # Another n, so that a fixed share shows; seed 0, which `if seed` takes for none; and nothing held out.
    seed = new.size(1, 10_000)
    return [(n, held_out, seed), (n + new.size(10, 20), held_out, 0), (n, 0, seed)]


def _own_generator(n, held_out, seed):
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[held_out:], order[:held_out]


exercise(
    "held_out_split",
    title="A reproducible split",
    minutes=6,
    difficulty=2,
    points=2,
    takeaway="Your own generator gives the same numbers for the same seed and leaves all other random numbers alone.",
    hints=(
        "First put all indices in random order; then cut once. Parts cut from one permutation cannot overlap.",
        "`torch.randperm` takes `generator=`: pass your own `torch.Generator()` with the given seed.",
        "`order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))`, then two slices of `order`.",
    ),
    spec=Spec(
        draw=_splits,
        solution=_own_generator,
        measure=splits.split_report,
        mistakes=splits.split_mistakes(
            _own_generator,
            lambda n, held_out, seed: _own_generator(n, n // 5, seed),
            lambda n, held_out, seed: _own_generator(n, n // 2, seed),
        ),
        habits=splits.split_habits(_own_generator),
        also_right=[
            lambda n, held_out, seed: _own_generator(n, 0, seed)[0].split([n - held_out, held_out]),
            *splits.right_splits(_own_generator),
        ],
    ),
)

# ---------------------------------------------------------------------------------------------------------------------


# ---------------------------------------------------------------------------------------------------------------------


def _predictions(new: Inputs) -> list[tuple]:
    def images(classes: int, n: int) -> tuple[torch.Tensor, torch.Tensor, int]:
        # The last class never occurs, neither as label nor as prediction: the matrix still has its row and column.
        labels = new.ints(0, classes - 1, (n,))
        labels[::3] = 0  # one cell counts far beyond what uint8 can hold
        predicted = torch.where(new.rand(n) < 0.6, labels, (labels + new.ints(0, 2, (n,))) % (classes - 1))
        return labels, predicted, classes

    labels, predicted, classes = images(new.size(4, 7), new.size(1500, 2000))
    parts = [(labels[:part], predicted[:part], classes) for part in (100, 1, len(labels))]
    return [*parts, images(new.size(12, 15), 200)]  # more classes than there are digits


def _counts(labels, predicted, classes):
    return torch.bincount(labels * classes + predicted, minlength=classes**2).reshape(classes, classes)


def _no_minlength(labels, predicted, classes):
    return torch.bincount(labels * classes + predicted).reshape(classes, classes)


def _stopped_early(yours, expected, labels, predicted, classes):
    sizes = int((labels * classes + predicted).max()) + 1, classes  # without minlength, and with too small a one
    return says(yours, *(f"invalid for input of size {size}" for size in sizes))


def _image_by_image(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    for i, j in zip(labels, predicted, strict=True):
        matrix[i, j] += 1
    return matrix


def _by_accumulation(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    return matrix.index_put_((labels, predicted), torch.ones_like(labels), accumulate=True)


def _loop_over_cells(labels, predicted, classes):
    matrix = torch.zeros(classes, classes, dtype=torch.int64)
    for i in range(classes):
        for j in range(classes):
            matrix[i, j] = ((labels == i) & (predicted == j)).sum()
    return matrix


def _by_numpy_add(labels, predicted, classes):
    matrix = np.zeros((classes, classes), dtype=np.int64)
    np.add.at(matrix, (labels.numpy(), predicted.numpy()), 1)
    return torch.from_numpy(matrix)


exercise(
    "confusion_matrix",
    title="Which digits get confused?",
    minutes=8,
    difficulty=3,
    points=3,
    takeaway="With repeated indices `m[i, j] += 1` counts once: accumulate with index_put_ or bincount.",
    hints=(
        "Two index tensors address one cell for each image. The difficulty is that the same cell comes up many times.",
        "Either use `index_put_(..., accumulate=True)`, or give each pair (label, predicted) a number and count.",
        "`torch.bincount(labels * classes + predicted, minlength=...)`, then bring the counts into shape.",
    ),
    spec=Spec(
        draw=_predictions,
        solution=_counts,
        dtype=False,
        mistakes="""
            lambda *given: _counts(*given).clamp(max=1)
            lambda *given: _counts(*given) > 0
                Each cell was counted once, however many images fall into it.
                look: with an index that occurs several times, `matrix[labels, predicted] += 1` adds 1 only once
            = _counts(predicted, labels, classes)
                Rows and columns are swapped: the true class goes down, the predicted one across.
            lambda *given: _counts(*given)[:-1, :-1]
            = _counts(labels, predicted, int(labels.max()) + 1)
            lambda labels, predicted, _: _counts(labels, predicted, max(*labels.tolist(), *predicted.tolist()) + 1)
                The last class is missing: no image here belongs to it, and the matrix has its row and column anyway.
                look: `classes`: sizes and `minlength` come from there, not from the largest label that occurs
            = torch.zeros(classes, classes, dtype=torch.int64)
                Your matrix is still full of zeros: `matrix[labels]` is a copy, and what you write into it is lost.
                look: put both indices in one pair of brackets
            lambda *given: _counts(*given).to(torch.uint8)
            lambda *given: _counts(*given).to(torch.int8)
                Some of your counts wrapped around: {yours.dtype} is too small for them.
                look: the dtype of the matrix: int64 holds any count
            lambda *given: _counts(*given).flatten()
                The counts are right, but in one row: bring them into the shape {expected.shape}.
            lambda *given: _counts(*given).diag()
            lambda *given: _counts(*given).diag().diag()
                You counted only the correct ones, the diagonal of the matrix.
            lambda *given: _counts(*given).fill_diagonal_(0)
                You counted only the errors: the correct ones on the diagonal count, too.
            lambda *given: _counts(*given) / _counts(*given).sum()
            lambda *given: (_counts(*given) / _counts(*given).sum(1, keepdim=True)).nan_to_num()
                These are shares; the exercise asks for counts.
                when: yours.shape == expected.shape and yours.is_floating_point() and yours.nan_to_num().max() <= 1
            = torch.bincount(labels, minlength=classes)
            = torch.bincount(predicted, minlength=classes)
                You counted labels and predictions separately; count the pairs of label and prediction.
            = _counts(labels * 0, labels * predicted, classes)
            = _counts(labels * 0, labels + predicted, classes)
                Different pairs get the same number here: a label is worth `classes` predictions.
                look: `labels * classes + predicted`
            = (labels == predicted).float().mean()
            = (labels == predicted).sum()
                That is a single number, such as the accuracy; the matrix has {classes} rows and columns.
                when: isinstance(yours, float | int) or yours.numel() == 1
            _no_minlength
            = torch.bincount(labels * classes + predicted, minlength=classes).view(classes, classes)
                `bincount` stopped at the largest number that occurs, and no image here belongs to the last class.
                look: `minlength=`: one count for each cell, {classes} * {classes}
                when: lambda yours, *given: _stopped_early(yours, *given)
            = _counts(labels, predicted, 10)
            = _counts(labels, predicted, 10)[:classes, :classes]
                You take for granted that there are 10 classes; here `classes` is {classes}.
                when: says(yours, "[10, 10]") or yours.shape == (10, 10)
        """,
        habits=[
            Habit(
                "Your counts are right, but your code takes more steps the more images there are: there is a loop.",
                _image_by_image,
                probe=probes.steps,
                when=lambda few, one, many, *_: many > few + 700,  # a loop over classes or cells is another matter
                look="`for`: index with all labels at once",
            )
        ],
        also_right=[
            _by_accumulation,
            lambda labels, predicted, classes: (
                F.one_hot(labels, classes).float().T @ F.one_hot(predicted, classes).float()
            ),
            _loop_over_cells,
            _by_numpy_add,
        ],
    ),
)

# ---------------------------------------------------------------------------------------------------------------------


def _images_to_cut(new: Inputs) -> list[tuple]:
    n, (rows, columns), size = new.size(2, 3), new.sizes(2, 2, 5), new.pick([2, 4])  # never 3, as the channels
    # Bytes, as files bring them, then floats. The last images are larger, so that a loop shows.
    few = new.images(n, 3, rows * size, columns * size)
    floats = new.randn(1, 1, 3, 6)
    many = new.images(n, 2 if size == 4 else 4, (columns + 8) * size, (rows + 8) * size)
    return [(few, size), (floats, 3), (many, size)]


def _cut(images, size):
    n, c, h, w = images.shape
    split = images.reshape(n, c, h // size, size, w // size, size)  # n, c, row, y, column, x
    return split.permute(0, 2, 4, 1, 3, 5).reshape(n, -1, c, size, size)


def _by_functional_unfold(images, size):
    return F.unfold(images, size, stride=size).transpose(1, 2).unflatten(2, (-1, size, size))


def _with_loops(images, size):
    h, w = images.shape[2:]
    corners = [(y, x) for y in range(0, h, size) for x in range(0, w, size)]
    return torch.stack([images[:, :, y : y + size, x : x + size] for y, x in corners], dim=1)


exercise(
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
    spec=Spec(
        draw=_images_to_cut,
        solution=_cut,
        look="the first patch of an image is `image[:, :size, :size]`, the next one lies to its right",
        mistakes="""
            = images.reshape(_cut(images, size).shape)
                The shape is right, but the pixels are cut in the order of memory: each of your patches is a run of
                consecutive pixels, along the rows of the image.
                look: `reshape` alone cannot reorder: split the axes, `permute`, then join
            0, 2, 4, 1, 3, 5 → 0, 4, 2, 1, 3, 5
                Your patches run down the columns; they should come in reading order, row by row.
                look: the order of `row` and `column` in `permute`
            c, h // size, size, w // size, size) → c, size, h // size, size, w // size)
                    && 0, 2, 4, 1, 3, 5 → 0, 3, 5, 1, 2, 4
                Each of your patches is a thinned copy of the whole image. Split a side into patches first, and each
                patch into its pixels after that.
                look: the order of `h // size` and `size` in `reshape`
            0, 2, 4, 1, 3, 5 → 0, 2, 4, 1, 5, 3 || 0, 4, 2, 1, 5, 3
                Each patch is transposed: its rows and columns are swapped.
                look: the last two numbers of `permute`
            = _cut(images, size).permute(0, 1, 3, 4, 2)
                The channels come last; they should come before the rows and columns of a patch.
            = _cut(images, size).transpose(1, 2)
                The channels come before the patches: the order is image, patch, channel, row, column.
                look: where `c` is in `permute`
            .reshape(n, -1, c, size, size) →
                Every pixel is in place, but rows and columns of patches are still two axes: join them.
                look: a `reshape` or `flatten` after the `permute`
            = _cut(images, size).flatten(0, 1)
                Images and patches share one axis: the result has five axes, and image and patch come first.
            0, 2, 4, 1, 3, 5 → 0, 2, 4, 3, 5, 1 || 0, 2, 4, 3, 1, 5 || 0, 2, 1, 4, 3, 5 || 0, 1, 2, 4, 3, 5
                The colors are mixed up: a reshape has treated channels as rows.
                look: where `c` is in `permute`
            = _cut(images, size).flatten(2)
            = _cut(images, size).flatten(3)
                The pixels are right, but each patch is flat: give it back its shape (C, size, size).
            n, c, h, w = → n, c, w, h =
                Height and width are swapped: `images` has the shape [N, C, H, W].
            = _cut(images, size).float()
            = _cut(images, size).to(torch.uint8)
                Your patches have a different dtype from the images. Cutting computes nothing: keep {images.dtype}.
                when: yours.shape == expected.shape and yours.dtype != expected.dtype
            _by_functional_unfold
                These images are uint8, and something in your code only works with floats.
                look: `unfold` in torch.nn.functional needs floats; the tensor method `.unfold` takes any dtype
                when: says(yours, "not implemented for 'Byte'")
            .reshape(n, -1, c → .view(n, -1, c
                After `permute` the axes that you join are no longer neighbors in memory, so `view` cannot join them.
                look: `reshape`, which copies where it has to
                when: says(yours, "Use .reshape")
            reshape(n, c, → reshape(n, 3, && reshape(n, -1, c → reshape(n, -1, 3
                With three channels your result is right. Here the images have {images.shape[1]}.
                look: a 3, or three names, in your code: the number of channels is `images.shape[1]`
                when: images.shape[1] != 3
            w // size → h // size
            h // size → w // size
                These images are {images.shape[2]} × {images.shape[3]} pixels: you took height and width for equal.
                look: one number of patches for the rows, another one for the columns
        """,
        habits=[
            Habit(
                "Your patches are right, but your code takes more steps the more patches there are: there is a loop.",
                _with_loops,
                probe=probes.steps,
                when=lambda few, one, many: many > few + 5,
                look="`for`: reshape, permute, reshape cut all images at once",
            )
        ],
        also_right=[
            lambda images, size: (
                images.unfold(2, size, size).unfold(3, size, size).permute(0, 2, 3, 1, 4, 5).flatten(1, 2)
            ),
            lambda images, size: (
                images.unflatten(3, (-1, size)).unflatten(2, (-1, size)).movedim((2, 4), (1, 2)).flatten(1, 2)
            ),
        ],
    ),
)
