"""One step of byte pair encoding: a new token in place of each occurrence of a pair."""

from itertools import pairwise

from labcheck.authoring import Exercise, Inputs, Spec, looks_like, raises_like, wrong_if


def solution(tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
    merged, i = [], 0
    while i < len(tokens):
        found = tuple(tokens[i : i + 2]) == pair
        merged.append(new if found else tokens[i])
        i += 2 if found else 1
    return merged


def draw(rng: Inputs) -> list[tuple]:
    """A pair in the middle; pairs of equal tokens in runs; pairs at both ends; none; one token; no token."""
    a, b, c = rng.sizes(3, 1, 9)
    new = 256 + rng.size(0, 99)
    some = [c, a, b, b, a, 10 * c + a, 10 * b + c, a, b, a, a, b, c]  # 31, 2 is not 1, 2
    return [
        (some, (a, b), new),
        ([b, a, a, a, b, a, a, a, a, a, c], (a, a), new),
        ([a, b, c, a, a, b], (a, b), new),
        ([a, a, b], (b, c), new),
        ([a], (a, a), new),
        ([], (a, b), new),
    ]


def keeps_second(tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """Goes on by one token after a merge, too."""
    return [new if pair == both else both[0] for both in pairwise([*tokens, None])]


def from_right(tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
    return solution(tokens[::-1], pair[::-1], new)[::-1]


def explain(yours: list, expected: list, tokens: list[int], pair: tuple[int, int], new: int) -> None:
    wrong_if(
        yours == expected[:-1],
        "last_lost",
        "The last token is missing: no pair begins with it, but it belongs to the result.",
        look="where your loop ends, and what is left then",
    )
    wrong_if(
        yours == tokens,
        "unchanged",
        "Your result is `tokens`, unchanged. If you compare a slice with `pair`: a list never equals a tuple.",
    )
    wrong_if(
        pair[0] == pair[1] and yours.count(new) > expected.count(new),
        "overlap",
        "A token is used in two pairs: in a, a, a, the token in the middle is gone once the first two have merged.",
        look="how far your loop goes on after a merge",
    )


exercise = Exercise(
    title="Merge a pair",
    minutes=8,
    difficulty=1,
    points=1,
    takeaway="A tokenizer is trained by repeating this: merge the most frequent pair, and write down which it was.",
    hints=(
        "Walk through the list with an index of your own: a `while` loop can go on by two tokens, a `for` loop can't.",
        "At index i, compare `tokens[i : i + 2]` with `list(pair)`: at the end, the slice has only one token. Append "
        "`new` and add 2 to i, or append `tokens[i]` and add 1.",
    ),
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        look="from the left, each pair of neighbors: is it `pair`? Then `new` stands for both; all others stay",
        says=[
            looks_like(
                "keeps_second",
                "After a merge, the second token of the pair is still looked at: `new` stands for both of them.",
                keeps_second,
                look="after a merge, go on by two tokens",
            ),
            looks_like("from_right", "You merge from the right: of a, a, a, the first two become one.", from_right),
            raises_like(
                "past_end",
                "The last token has no right neighbor, and your code asks for one.",
                "index out of range",
                look="`tokens[i + 1]` where i is the last index; a slice, `tokens[i : i + 2]`, is never out of range",
            ),
        ],
    ),
    lends=solution,
)
