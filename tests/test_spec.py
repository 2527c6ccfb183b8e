"""How a Spec judges, on exercises made up here."""

import pytest
import torch

from labcheck.authoring import AnswerRaised, Incorrect, Inputs, Spec, looks_like, observe, raises_like, wrong_if


def explain(yours, expected, n):
    wrong_if(yours < 0, "negative", f"A square is never negative; yours for {n} is {yours}.", look="the sign")


def afterward(answer, *cases):
    wrong_if(observe(answer, lambda answer: answer.__name__) == "forbidden", "forbidden", "Not by that way.")


SQUARE = Spec(
    draw=lambda rng: [(rng.size(1, 4),), (rng.size(-4, -1),)],
    solution=lambda n: n * n,
    look="the operator",
    says=[
        looks_like("doubled", "Doubled.", lambda n: 2 * n),  # right for 2
        looks_like("lost_sign", "Lost the sign.", lambda n: n * abs(n)),  # right from 0 up
        looks_like("float", "A float.", lambda n: float(n * n)),
        raises_like("range", "Only from 0 up.", "below zero", look="what is squared"),
    ],
    explain=explain,
    afterward=afterward,
)


def verdict(spec: Spec, answer: object, seed: int = 0) -> Incorrect | None:
    try:
        spec(answer, Inputs(seed))
    except Incorrect as wrong:
        return wrong
    return None


def below_zero(n):
    if n < 0:
        raise ValueError(f"{n} is below zero")
    return n * n


def test_a_mistake_is_recognized_by_its_results():
    for answer, key in (
        (lambda n: n**2, None),
        (lambda n: n + n, "doubled"),
        (lambda n: torch.tensor(2 * n), "doubled"),  # another kind of number: the mistake counts
        (lambda n: n * abs(n), "lost_sign"),
        (lambda n: n * float(n), "float"),
        (lambda n: -n * n, "negative"),
        (below_zero, "range"),
    ):
        for seed in range(20):
            found = verdict(SQUARE, answer, seed)
            assert (found and found.misconception) == key, f"seed {seed}: {found}"


def test_what_no_sentence_fits_is_said_in_general():
    found = verdict(SQUARE, lambda n: n + 100)
    assert found.problem.startswith("Your result for n = ") and found.look == "the operator"
    assert int(found.yours) == 100 + int(int(found.expected) ** 0.5)
    assert "returned None" in verdict(SQUARE, lambda n: print(end="")).problem
    assert "not a number" in verdict(SQUARE, lambda n: "x").problem
    with pytest.raises(AnswerRaised, match="division"):
        SQUARE(lambda n: n // 0, Inputs(0))


def test_a_right_answer_is_looked_at_afterward():
    def forbidden(n):
        return n * n

    assert verdict(SQUARE, forbidden).misconception == "forbidden"


def test_solutions_do_their_work_unseen(capsys):
    spec = Spec(draw=lambda rng: [(1,)], solution=lambda n: print("the solution") or n)
    assert verdict(spec, lambda n: print("mine") or n) is None
    assert capsys.readouterr().out == "mine\n"


def test_inputs_are_drawn_until_each_wrong_function_differs():
    doubled = looks_like("doubled", "Doubled.", lambda n: 2 * n)
    spec = Spec(draw=lambda rng: [(rng.size(2, 4),)], solution=lambda n: n * n, says=[doubled])
    for seed in range(30):
        assert spec.prepare(Inputs(seed))[0] != [(2,)]
    with pytest.raises(AssertionError, match="doubled"):
        verdict(Spec(draw=lambda rng: [(2,)], solution=spec.solution, says=spec.says), lambda n: n)


def test_a_dtype_counts_where_it_is_all_that_is_wrong():
    says = [looks_like("not_halved", "Not halved.", lambda x: x)]
    says.append(looks_like("float64", "In float64.", lambda x: x.double() / 2))
    spec = Spec(draw=lambda rng: [(rng.rand(5),)], solution=lambda x: x / 2, says=says)
    assert verdict(spec, lambda x: x.double()).misconception == "not_halved"
    assert verdict(spec, lambda x: x.double() / 2).misconception == "float64"
    assert "wrong dtype" in verdict(spec, lambda x: (x / 2).half()).problem
