"""Rows of tokens to train on, and for each token the one that comes next."""

from torch import Tensor

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, raises_like


def solution(tokens: Tensor, length: int) -> tuple[Tensor, Tensor]:
    used = (len(tokens) - 1) // length * length
    return tokens[:used].view(-1, length), tokens[1 : used + 1].view(-1, length)


def draw(rng: Inputs) -> list[tuple]:
    """As many tokens as all rows need with their targets; one fewer; some more; rows of one token; one row."""
    length, rows = rng.sizes(2, 4, 8)
    counts = (rows * length + 1, length), (rows * length, length), (rows * length + 3, length), (rows, 1), (6, 5)
    return [(100 + rng.permutation(count), each) for count, each in counts]


def windows(tokens: Tensor, length: int, step: int) -> tuple[Tensor, Tensor]:
    """Windows of one token more than a row."""
    both = tokens.unfold(0, length + 1, step)
    return both[:, :-1], both[:, 1:]


exercise = Exercise(
    title="What comes next?",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Each token is a training example, and the text itself holds the labels: nobody had to write them.",
    hints=(
        "Inputs and targets come from the same tensor; the targets begin one token later. How many tokens are used, if "
        "the last of them still needs a target?",
        "`used = (N - 1) // length * length`. The inputs are `tokens[:used].view(-1, length)`.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        look="the inputs, row after row, are the tokens from the first one on, and the targets those from the second "
        "one on; N tokens are enough for `(N - 1) // length` rows",
        says=[
            looks_like(
                "not_shifted",
                "Your targets are your inputs: the model would only learn to repeat what it sees.",
                lambda tokens, length: (solution(tokens, length)[0],) * 2,
                look="the target of a token is the next one",
            ),
            looks_like(
                "rolled",
                "The target of each row's last token is the row's first token. It should be the one that follows in "
                "the text, the first token of the next row.",
                lambda tokens, length: (rows := solution(tokens, length)[0], rows.roll(-1, dims=1)),
                look="shift the text first, then cut it into rows",
            ),
            looks_like(
                "backward",
                "Your targets come one token before your inputs, not one after them.",
                lambda tokens, length: solution(tokens, length)[::-1],
            ),
            looks_like(
                "skips",
                "Between two of your rows, a token is left out of the inputs: it is only a target. The last target of "
                "a row is also the first input of the next one.",
                lambda tokens, length: windows(tokens, length, length + 1),
                look="rows of length + 1 tokens, if you cut any: they have to share a token",
            ),
            looks_like(
                "overlap",
                "Your rows overlap. Each row should begin where the one before it ends.",
                lambda tokens, length: windows(tokens, length, 1),
                look="the step from row to row is `length`",
            ),
            looks_like(
                "row_less",
                "You give away a row: the targets need one token more than the inputs, not a whole row.",
                lambda tokens, length: tuple(rows[:-1] for rows in solution(tokens, length)),
                lambda tokens, length: tuple(rows[: len(tokens) // length - 1] for rows in solution(tokens, length)),
                look="`(N - 1) // length` rows",
            ),
            raises_like(
                "does_not_fit",
                "What you cut into rows isn't a whole number of rows, or inputs and targets differ in length.",
                "is invalid for input of size",
                look="use `(N - 1) // length * length` inputs, and as many targets",
            ),
        ],
    ),
    lends=solution,
)
