"""The share of rows whose largest logit is at the label."""

from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, raises_like


def draw(rng: Inputs) -> list[tuple]:
    """First as many images as classes: there, mixing up the two axes gives a number instead of an error. Then a prime
    number of images: no share of them is a round number. Then images that are all right."""
    cases = [ranked(rng, n, classes) for n, classes in ((rng.size(18, 24), None), (rng.pick((17, 19, 23)), 35))]
    logits = rng.randn(3, 5)
    return [*cases, (logits, logits.argmax(1))]


def ranked(rng: Inputs, n: int, classes: int | None) -> tuple[Tensor, Tensor]:
    """Logits and labels. The label is the largest logit of a row, the second, or the third."""
    logits, rank = 2.5 * rng.randn(n, classes or n), rng.ints(0, 3, (n,))
    rank[:3] = rng.permutation(3)
    return logits, logits.argsort(1, descending=True).gather(1, rank[:, None])[:, 0]


def solution(logits: Tensor, labels: Tensor) -> float:
    return (logits.argmax(dim=1) == labels).float().mean().item()


exercise = Exercise(
    title="Accuracy",
    minutes=3,
    difficulty=1,
    points=1,
    takeaway="The largest logit is also the largest probability: you don't need a softmax for the accuracy.",
    hints=(
        "Which class does the model choose for each image? `logits.argmax(dim=1)`. Compare, then take the mean.",
        "`(logits.argmax(dim=1) == labels).float().mean()`, and `.item()` for a Python number.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        look="the share of rows in which `argmax(dim=1)` of the logits, as they come, is the label; not in percent",
        says=[
            looks_like(
                "for_each_image",
                "You return one value for each image: take the mean of them.",
                lambda logits, labels: logits.argmax(1) == labels,
            ),
            looks_like(
                "count",
                "This is the number of right answers: divide it by the number of images.",
                lambda logits, labels: int((logits.argmax(1) == labels).sum()),
            ),
            looks_like(
                "percent",
                "This is the accuracy in percent; the exercise asks for a share from 0 to 1.",
                lambda logits, labels: 100 * solution(logits, labels),
            ),
            looks_like(
                "other_axis",
                "You took the argmax over the images or over the whole tensor: each image has a best class of its own.",
                lambda logits, labels: (logits.argmax(0) == labels).float().mean().item(),
                lambda logits, labels: (logits.argmax() == labels).float().mean().item(),
                look="the `dim` of argmax: the classes lie along axis 1",
            ),
            looks_like(
                "every_pair",
                "You compared every row with every label: a column [N, 1] and a row [N] broadcast to [N, N].",
                lambda logits, labels: (logits.argmax(1, keepdim=True) == labels).float().mean().item(),
                lambda logits, labels: (logits.argmax(1, keepdim=True) == labels).sum().item() / len(labels),
                look="no `keepdim`",
            ),
            raises_like(
                "pair", "`max(dim=1)` gives a pair, (values, indices): take the indices, or `argmax`.", "'bool' object"
            ),
        ],
    ),
)
