"""Pixels as floats from 0 to 1: the conversion with which nearly every program on images begins."""

from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like


def draw(rng: Inputs) -> list[tuple]:
    """Gray images with black and white in them, and colored ones that are dark: no pixel there is black or white."""
    n, height, width = rng.sizes(3, 3, 12)
    dark = rng.ints(7, 150, (n, 3, height, width)).byte()
    return [(rng.images(n, 1, height, width),), (dark,)]


def solution(pixels: Tensor) -> Tensor:
    return pixels / 255


exercise = Exercise(
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
    judge=Spec(
        draw=draw,
        solution=solution,
        says=[
            looks_like(
                "brightest_that_occurs",
                "You scaled by the pixels that occur in these images, so a dark picture comes out as bright as others.",
                lambda pixels: pixels / pixels.max(),
                lambda pixels: (pixels - pixels.min()) / (pixels.max() - pixels.min()),
                lambda pixels: pixels / pixels.amax((1, 2, 3), keepdim=True),
                look="0 and 255, the smallest and the largest value of uint8, not those that occur",
            ),
            looks_like(
                "rounded_down",
                "Everything but pure white has become 0.",
                lambda pixels: pixels // 255,
                look="`//` rounds down, and so does storing the result as integers: use `/`, and keep the floats",
            ),
            looks_like(
                "not_divided",
                "Your values still go up to 255: divide by 255.",
                lambda pixels: pixels.float(),
                look="a line like `pixels / 255` alone changes nothing: it makes a new tensor; return that",
            ),
            looks_like(
                "by_256",
                "White should be exactly 1: the largest pixel value is 255, not 256.",
                lambda pixels: pixels / 256,
            ),
        ],
    ),
)
