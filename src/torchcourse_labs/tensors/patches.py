"""Images cut into squares: reshape splits and joins, permute reorders."""

from typing import Any

from torch import Tensor

from labcheck import probes
from labcheck.authoring import Exercise, Inputs, Spec, looks_like, observe, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """Bytes, as files bring them, integers beyond float32, then floats; the last are larger, so that a loop shows."""
    n, (rows, columns), size = rng.size(2, 3), rng.sizes(2, 2, 5), rng.pick([2, 4])  # never 3, as the channels
    many = rng.images(n, 2 if size == 4 else 4, (columns + 8) * size, (rows + 8) * size) / 255
    large = rng.ints(-(2**30), 2**30, (1, 1, 3, 6))
    return [(rng.images(n, 3, rows * size, columns * size), size), (large, 3), (many, size)]


def solution(images: Tensor, size: int, order: tuple = (0, 2, 4, 1, 3, 5)) -> Tensor:
    n, c, h, w = images.shape
    split = images.reshape(n, c, h // size, size, w // size, size)  # n, c, row, y, column, x
    return split.permute(order).reshape(n, -1, c, size, size)


def afterward(answer: Any, few: tuple, large: tuple, many: tuple) -> None:
    wrong_if(
        observe(answer, probes.steps, *many) > observe(answer, probes.steps, *few) + 5,
        "loop",
        "Your patches are right, but your code takes more steps the more patches there are: there is a loop.",
        look="`for`: reshape, permute, reshape cut all images at once",
    )


exercise = Exercise(
    title="Stretch: cut images into patches",
    minutes=11,
    difficulty=4,
    points=4,
    takeaway="reshape only splits and joins neighboring axes; to change their order you need permute, in between.",
    hints=(
        "Split first: an axis of length H becomes two, (H / size) rows of patches and `size` rows within a patch. Then "
        "there are six axes: n, c, row, y, column, x. Which order do you need?",
        "`images.reshape(n, c, h // size, size, w // size, size).permute(0, 2, 4, 1, 3, 5)`, then join row and column.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        rtol=0,
        look="the first patch of an image is `image[:, :size, :size]`, the next one lies to its right",
        afterward=afterward,
        says=[
            looks_like(
                "order_of_memory",
                "The shape is right, but the pixels are cut in the order of memory: each of your patches is a run of "
                "consecutive pixels, along the rows of the image.",
                lambda images, size: images.reshape(solution(images, size).shape),
                look="`reshape` alone cannot reorder: split the axes, `permute`, then join",
            ),
            looks_like(
                "by_columns",
                "Your patches run down the columns; they should come in reading order, row by row.",
                lambda images, size: solution(images, size, (0, 4, 2, 1, 3, 5)),
                look="the order of `row` and `column` in `permute`",
            ),
            looks_like(
                "thinned",
                "Each of your patches is a thinned copy of the whole image. Split a side into patches first, and each "
                "patch into its pixels after that.",
                lambda images, size: (
                    images.unflatten(3, (size, -1)).unflatten(2, (size, -1)).permute(0, 3, 5, 1, 2, 4).flatten(1, 2)
                ),
                look="the order of `h // size` and `size` in `reshape`",
            ),
        ],
    ),
)
