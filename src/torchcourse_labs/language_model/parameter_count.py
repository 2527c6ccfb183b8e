"""How large a GPT is, and how much a token costs, without building it."""

from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, raises_like, same, wrong_if
from labcheck.probes import plain_number

LOOKS = {
    "embedding": "one vector for each token of the vocabulary; the head has no matrix of its own",
    "attention": "in each block queries, keys, values, and the output have a matrix width × width; heads add nothing",
    "mlp": "in each block `up`, from width to 4 × width, and `down`, from there back to width",
    "norms": "two in each block and one before the head, `width` numbers each",
    "total": "the sum of the four parts",
    "flops": "6 for each number in a matrix: embedding (it is the head), attention, and mlp, but not the norms",
}


def solution(vocabulary: int, width: int, depth: int) -> dict[str, int]:
    parts = {
        "embedding": vocabulary * width,
        "attention": depth * 4 * width**2,
        "mlp": depth * 8 * width**2,
        "norms": (2 * depth + 1) * width,
    }
    total = sum(parts.values())
    return {**parts, "total": total, "flops": 6 * (total - parts["norms"])}


def judge(answer: Any, rng: Inputs) -> None:
    """A small one, one of a single block, and one that no machine holds."""
    vocabulary, heads, depth = rng.sizes(3, 7, 12)
    for case in ((50 * vocabulary, 8 * heads, depth), (300, 64, 1), (10**9, 2**22, 10 * depth)):
        with raises_like("built", "You build the model, but no memory holds it; compute.", "you tried to allocate"):
            yours, expected = call(answer, *case), solution(*case)
        if not isinstance(yours, dict) or None in [plain_number(yours.get(name)) for name in expected]:
            raise Incorrect("Your function should return a dict with six numbers.", str([*expected]), yours)
        judge_case(yours, expected, *case)


def judge_case(yours: dict, expected: dict, vocabulary: int, width: int, depth: int) -> None:
    here = f"with vocabulary = {vocabulary}, width = {width}, depth = {depth}"
    twice, look = yours["embedding"] == 2 * expected["embedding"], "`self.head.weight = self.embed.weight`"
    wrong_if(twice, "head_twice", "You count the matrix of embedding and head twice. Both layers use one tensor.", look)
    biases = {"attention": 4 * width * depth, "mlp": 5 * width * depth, "norms": expected["norms"]}
    found = [name for name, count in biases.items() if yours[name] == expected[name] + count]
    look = "`bias=False` in each layer of `models.gpt`"
    wrong_if(found, "biases", f"You count biases in {' and '.join(found)}, but this model has none.", look)
    found = [name for name in ("attention", "mlp") if depth > 1 and yours[name] * depth == expected[name]]
    wrong_if(found, "one_block", f"You count {' and '.join(found)} of a single block. The model has `depth` of them.")
    found = [name for name in expected if isinstance(yours[name], float)]
    wrong_if(found, "floats", f'Your "{"".join(found[:1])}" is a float, and not an int.', "`/` gives floats, `//` ints")
    for name, look in LOOKS.items():
        same(yours[name], expected[name], f'"{name}", {here},', rtol=0, atol=0, look=look)


exercise = Exercise(
    title="How large is it?",
    minutes=10,
    difficulty=2,
    points=2,
    takeaway="About 12 × depth × width² and an embedding: from these two numbers follow memory, time, and cost.",
    hints=(
        "Read `models.gpt` and write the shape of each tensor beside its layer. Which of them does each block have?",
        "Embedding: vocabulary × width. In each block: 4 matrices of width × width in the attention, 8 times as many "
        "numbers as one of them in the MLP, and two norms of `width` numbers. At the end, one more norm.",
    ),
    judge=judge,
    lends=solution,
)
