"""The average of all images of one digit: a comparison selects, a mean over one axis averages."""

from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    """Few images, then more than 100 of the digit, which is never 3, the example in the text."""
    cases = []
    for digit, n in ((0, rng.size(22, 30)), (rng.pick([1, 2, 4, 5]), rng.size(250, 260))):
        height, width = rng.sizes(2, 5, 9)
        labels = rng.ints(0, 10, (n,))
        labels[:6] = digit + 1  # so that image number `digit` shows another digit
        labels[7:10], labels[-3:], labels[12] = digit, digit, 3  # early and late, not only among the first ten
        labels[100:240] = digit
        cases.append((rng.images(n, 1, height, width), labels, digit))
    return cases


def solution(images: Tensor, labels: Tensor, digit: int) -> Tensor:
    return images[labels == digit].float().mean(dim=0)


def explain(yours: Tensor, expected: Tensor, images: Tensor, labels: Tensor, digit: int) -> None:
    wrong_if(
        yours.numel() == 1,
        "one_number",
        f"That is a single number, not an image of shape {tuple(expected.shape)}.",
        look="`images[labels == digit]`, all images of the digit, then `dim=0`, the axis that counts them",
    )
    wrong_if(
        yours.shape == (int((labels == digit).sum()), *expected.shape),
        "not_averaged",
        f"These are all the images of the digit {digit}; now average them.",
        look="`mean(dim=0)`",
    )


exercise = Exercise(
    title="Stretch: the average digit",
    minutes=5,
    difficulty=3,
    points=2,
    takeaway="A comparison selects, `mean(dim=0)` averages over the images: no loop, and the same line works for ten "
    "images and for sixty thousand.",
    hints=(
        "Two steps: keep only the images whose label is the digit, then average over these images, pixel by pixel. "
        "`labels == digit` is a tensor of True and False, and `images[…]` takes it as an index.",
        "`images[labels == digit].float()`, and then the mean over `dim=0`, the axis that counts the images.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        dtype=False,
        explain=explain,
        look="the mean of the selected images as floats: no rounding, no integer dtype",
        says=[
            looks_like(
                "all_images",
                "That is the average over all images, whatever digit they show.",
                lambda images, labels, digit: images.float().mean(dim=0),
                look="`images[labels == digit]`",
            ),
            looks_like(
                "position",
                "You used a digit as the position of an image. Where an image lies says nothing about what it shows.",
                lambda images, labels, digit: images[digit].float(),
                lambda images, labels, digit: images[labels[digit]].float(),
                lambda images, labels, digit: images[labels].float().mean(dim=0),
                look="`labels == digit`, which is True where an image shows the digit",
            ),
            looks_like(
                "sum",
                "That is the sum of the images of this digit, undivided or divided by the number of all images.",
                lambda images, labels, digit: images[labels == digit].float().sum(dim=0),
                lambda images, labels, digit: images[labels == digit].float().sum(dim=0) / len(images),
                look="`mean(dim=0)` of the selected images counts for you",
            ),
        ],
    ),
)
