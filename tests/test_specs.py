"""Every specification runs its own rows: right answers are right, and each mistake gets its own sentence."""

import dataclasses
import importlib
import math  # noqa: F401 - for a table
import re
import tempfile
import traceback
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from conftest import made_here
from test_switches import many_at_once, takes_long

from tools import course
from torchcourse.checks import engine, evaluate, probes
from torchcourse.checks.engine import Incorrect, Inputs
from torchcourse_labs._mistakes import TableError
from labcheck.show import Result
from torchcourse_labs._spec import Habit, Mistake, Spec, Words, altered, changed, says

EXAMPLE = re.search(r"```python\n(.*?)```", (course.ROOT / "docs" / "authoring.md").read_text(), re.S)[1]
SPECS = {name: exercise.spec for name, exercise in engine.load_chapters().items() if exercise.spec}
# Names that Python, PyTorch or a check make up: of temporary files and folders, and long ones of hexadecimal digits.
RANDOM = re.compile(
    re.escape(tempfile.gettempdir()) + r"/\S|\btmp(?=\w{0,7}[_\d])\w{8}\b|(?<![\d.])(?=\d*[a-f])[0-9a-f]{16}"
)

pytestmark = pytest.mark.usefixtures("prepared_once")


@pytest.fixture(autouse=True)
def rows_count_as_students_code(monkeypatch):
    """The probe for loops follows only the student's own code, and the rows are in our modules."""
    own = {importlib.import_module(f"torchcourse.checks.{e.chapter[3:]}").__file__ for e in engine.EXERCISES.values()}
    monkeypatch.setattr(probes, "is_students", lambda filename: filename in own or engine.is_students(filename))


def judged(name: str, function: object, seed: int) -> Result:
    """The verdict on one of a Spec's own functions. For a value exercise, the value that it returns is the answer."""
    result = made_here(evaluate(name, function() if SPECS[name].takes_value else function, seed))
    assert result.judge_failed is None, f"seed {seed}\n{result.text}\n{result.judge_failed!r}"
    return result


def seeds(name: str, row: int | None = None) -> list[int]:
    """The seeds for a row of an exercise. row: its number among the wrong or the right ones; None for the solution.

    Four where a verdict takes milliseconds. One where it trains, compiles or starts processes; a row of what lies
    between gets one of the four.
    """
    if takes_long(name):
        return [0]
    limit = engine.EXERCISES[name].seconds
    return [0, 1, 2, 3] if row is None or limit <= engine.TIME_LIMIT else [row % 4]


def rows(kind: str) -> list:
    found = []
    for name, spec in SPECS.items():
        groups = [spec.solution, *spec.also_right] if kind == "right" else [*spec.mistakes, *spec.habits]
        found += [pytest.param(name, row, id=f"{name}-{i}") for i, row in enumerate(groups)]
    return found


@pytest.mark.parametrize("name, answer", rows("right"))
def test_right_answers_are_right(name, answer, tmp_path):
    if takes_long(name) and answer is SPECS[name].solution:  # once with all that a notebook can have switched
        with many_at_once(tmp_path):
            result = made_here(evaluate(name, answer, 0))
        assert result.correct, f"with many switches set\n{result.text}\n{result.judge_failed!r}"
        return
    others = SPECS[name].also_right
    for seed in seeds(name, others.index(answer) if answer in others else None):
        result = judged(name, answer, seed)
        assert result.correct, f"seed {seed}\n{result.text}"


@pytest.mark.parametrize("name, mistake", rows("wrong"))
def test_each_mistake_gets_its_own_sentence(name, mistake):
    spec = SPECS[name]
    for seed in seeds(name, [*spec.mistakes, *spec.habits].index(mistake)):
        for i, answer in enumerate(mistake.wrong):
            result = judged(name, answer, seed)
            assert not RANDOM.search(result.text), f"this sentence is another one in the next run: {result.text}"
            fixed_words = [part for part, *_ in Words().parse(mistake.problem)]
            assert result.outcome == "incorrect" and all(part in result.message for part in fixed_words), (
                f"seed {seed}, wrong solution {i}: expected {mistake.problem!r} in\n{result.text}"
            )


@pytest.mark.parametrize("name", [name for name, spec in SPECS.items() if not spec.free])
def test_cases_are_found_soon(name, prepared_once):
    """Hardly a draw is thrown away: inputs are chosen so that they tell the mistakes apart."""
    for seed in seeds(name):
        _, right, known = SPECS[name].prepare(Inputs(seed))
        assert not SPECS[name].confused(right, known())
    draws = [prepared_once[id(SPECS[name]), seed].draws for seed in seeds(name)]
    assert sum(draws) <= 3 * len(draws) + 4, "about three at most: each costs time in a student's check"


def test_the_example_of_the_guide_for_authors_is_true(monkeypatch, tmp_path):
    monkeypatch.setattr(engine, "EXERCISES", {})
    names = {"torch": torch, "F": torch.nn.functional, "np": np, "Spec": Spec, "Mistake": Mistake}
    exec(EXAMPLE, names | {"exercise": engine.chapter("99_demo")})
    ((name, exercise),) = engine.EXERCISES.items()
    monkeypatch.setitem(SPECS, name, exercise.spec)
    for answer in (exercise.spec.solution, *exercise.spec.also_right):
        test_right_answers_are_right(name, answer, tmp_path)
    for mistake in exercise.spec.mistakes:
        test_each_mistake_gets_its_own_sentence(name, mistake)
    assert len(EXAMPLE.splitlines()) <= 50, "the guide promises 30 to 50 lines"


# ---------------------------------------------------------------------------------------------------------------------
# How a Spec judges, on exercises made up here


def verdict(spec: Spec, answer: object, seed: int = 0) -> Incorrect | None:
    try:
        spec(answer, Inputs(seed))
    except Incorrect as wrong:
        return wrong
    return None


SQUARE = Spec(
    draw=lambda new: [(new.size(1, 4),), (new.size(-4, 4),)],
    solution=lambda n: n * n,
    mistakes=[
        Mistake("Doubled: {n} gives {expected}, not {yours}.", lambda n: 2 * n),  # right for 0 and 2
        Mistake("Lost the sign.", lambda n: n * abs(n)),  # right from 0 up
        Mistake("A sequence.", lambda n: [n] * n, when=lambda yours, *_: isinstance(yours, list)),
    ],
)


def test_inputs_are_drawn_until_every_mistake_shows():
    for seed in range(50):
        cases, _, _ = SQUARE.prepare(Inputs(seed))
        assert any(n < 0 for (n,) in cases) and any(n not in (0, 2) for (n,) in cases)
        assert verdict(SQUARE, lambda n: n**2, seed) is None


def test_a_mistake_is_named_only_if_the_answer_agrees_with_it_in_every_case():
    assert verdict(SQUARE, lambda n: 2 * n).problem.startswith("Doubled: ")
    assert verdict(SQUARE, lambda n: n * abs(n)).problem == "Lost the sign."
    sometimes = verdict(SQUARE, lambda n: 2 * n if n > 0 else n * n + 1)
    assert sometimes.problem.startswith("Your result for n = ") and sometimes.expected and sometimes.yours


def test_a_class_of_mistakes_needs_its_condition_in_each_wrong_case():
    assert verdict(SQUARE, lambda n: []).problem == "A sequence."
    assert verdict(SQUARE, lambda n: [] if n > 0 else "text").problem != "A sequence."
    by_case = dataclasses.replace(SQUARE, by_case=True)
    assert verdict(by_case, lambda n: [] if n > 0 else "text").problem == "A sequence."


def test_by_case_the_first_wrong_case_is_the_last_one_unless_a_known_mistake_goes_on():
    asked = []
    cases = [(2,), (-3,), (5,), (7,)]
    spec = dataclasses.replace(SQUARE, by_case=True, draw=lambda new: cases)
    wrong = verdict(spec, lambda n: asked.append(n) or (n * n + 1 if n < 0 else n * n))
    assert "for n = -3" in wrong.problem and asked == [2, -3]
    asked.clear()
    assert verdict(spec, lambda n: asked.append(n) or 2 * n).problem.startswith("Doubled: ")
    assert asked == [2, -3, 5, 7]


def test_mistakes_that_no_inputs_tell_apart_are_refused():
    same_as_right = dataclasses.replace(SQUARE, mistakes=[Mistake("Not a mistake.", lambda n: abs(n) * abs(n))])
    with pytest.raises(AssertionError, match=r"the solution.*Not a mistake"):
        same_as_right.prepare(Inputs(0))
    twins = [Mistake("One.", lambda n: n + 100), Mistake("Two.", lambda n: 100 + n)]
    with pytest.raises(AssertionError, match=r"One.*Two"):
        dataclasses.replace(SQUARE, mistakes=twins).prepare(Inputs(0))
    with pytest.raises(ValueError, match="needs a wrong solution"):
        Mistake("No example.")


HALF = Spec(
    draw=lambda new: [(new.randn(3, 4),), (new.randn(30, 4),)],
    solution=lambda x: x / 2,
    mistakes=[
        Mistake("Double precision.", lambda x: x.double() / 2),
        Mistake("A list.", lambda x: (x / 2).tolist()),
        Mistake("No such method in {x}.", lambda x: x.halve()),
        Mistake("Shape {yours.shape} instead of {expected.shape}.", lambda x: (x / 2).flatten()),
        Mistake("Three rows.", lambda x: x @ torch.ones(3)),
        Mistake("Cannot reshape.", lambda x: x.view(5), when=lambda yours, *_: says(yours, "is invalid for input")),
    ],
    habits=[
        Habit(
            "A loop.",
            lambda x: torch.stack([row / 2 for row in x]),
            probe=probes.steps,
            when=lambda few, many: many > few + 20,
        ),
        Habit(
            "PyTorch halves.", lambda x: x.div(2), probe=probes.operations, when=lambda *ops: "div.Tensor" not in ops[0]
        ),
    ],
)


def test_type_dtype_shape_and_errors_identify_a_mistake():
    assert verdict(HALF, lambda x: x * 0.5 / 1) is None
    assert verdict(HALF, lambda x: x.double() * 0.5).problem == "Double precision."
    assert verdict(HALF, lambda x: x.half().float().bfloat16()).problem.endswith("has the wrong dtype.")
    assert verdict(HALF, lambda x: [[v / 2 for v in row] for row in x.tolist()]).problem == "A list."
    assert verdict(HALF, lambda y: y.halve()).problem == "No such method in a float32 tensor of shape (3, 4)."
    assert verdict(HALF, lambda x: x.reshape(-1) / 2).problem == "Shape (12,) instead of (3, 4)."
    assert verdict(HALF, lambda x: x.view(7, 7)).problem == "Cannot reshape."
    assert verdict(HALF, lambda x: x @ torch.zeros(3)).problem == "Three rows."
    with pytest.raises(engine.AnswerRaised):
        verdict(HALF, lambda x: x @ torch.zeros(5))
    assert "is not a tensor" in verdict(HALF, lambda x: {"x": x}).problem
    assert "returned None" in verdict(HALF, lambda x: print(end="")).problem
    assert "changed its argument" in verdict(HALF, lambda x: x.div_(2)).problem


def test_a_habit_is_noticed_where_the_result_is_right():
    assert verdict(HALF, lambda x: torch.stack([row / 2 for row in x])).problem == "A loop."
    assert verdict(HALF, lambda x: x * 0.5).problem == "PyTorch halves."


def test_several_results_are_compared_one_by_one():
    both = Spec(draw=lambda new: [(new.randn(3),)], solution=lambda x: (x.mean(), x + 1))
    assert verdict(both, lambda x: [x.sum() / 3, 1 + x]) is None
    assert verdict(both, lambda x: (x.mean(), x)).problem.startswith("Value 2 of your result")
    assert verdict(both, lambda x: x.mean()).problem == "Your function should return 2 values."


def test_a_python_number_is_a_python_number():
    count = Spec(draw=lambda new: [(new.size(3, 9),)], solution=lambda n: n + 1)
    assert verdict(count, lambda n: 1 + n) is None
    for kind in (float, torch.tensor):
        assert "another type" in verdict(count, lambda n, kind=kind: kind(n + 1)).problem


def test_what_a_solution_warns_of_or_prints_is_not_shown(capsys):
    """Right and wrong solutions run at every check. A student's notebook shows what the student's own code says."""

    def talks(x, more=0):
        warnings.warn("degrees of freedom", stacklevel=1)
        print(x)
        return x + more

    mistakes = [Mistake("You added 1.", partial(talks, more=1))]
    spec = Spec(draw=lambda new: [(new.size(3, 9),)], solution=lambda x: talks(x), mistakes=mistakes)
    with warnings.catch_warnings(action="error"):
        spec(lambda x: print("mine") or x, engine.Inputs(0))
    assert capsys.readouterr().out == "mine\n"


def counted(answer, n):
    """A probe: what a class or several functions do with n."""
    made = [each() if isinstance(each, type) else each for each in (answer if isinstance(answer, tuple) else [answer])]
    return {"The number of answers": len(made), "The sum": torch.tensor(sum(engine.call(each, n) for each in made))}


def test_a_probe_sees_classes_and_several_functions():
    class Twice:
        def __call__(self, n):
            return 2 * n

    spec = Spec(
        draw=lambda new: [(new.size(1, 9),)],
        solution=(lambda n: n, lambda n: n),
        probe=counted,
        mistakes=[
            Mistake("One answer for {n}: {yours[The sum]}.", Twice, when=lambda yours, *_: 1 in yours.values()),
            Mistake("Three times.", (lambda n: n, lambda n: 2 * n)),
        ],
    )
    assert verdict(spec, (Twice, lambda n: 0)) is None
    assert verdict(spec, Twice, 3).problem.startswith("One answer for ")
    assert verdict(spec, (Twice, lambda n: n)).problem == "Three times."
    wrong = verdict(spec, (lambda n: n, lambda n: n + 1))
    assert wrong.problem == "The sum is not right." and wrong.expected and wrong.yours
    doubled = dataclasses.replace(spec, measure=lambda ask, n: 2 * ask(n)["The sum"].item(), mistakes=())
    assert verdict(doubled, (Twice, lambda n: 0)) is None and verdict(doubled, Twice) is None
    assert verdict(doubled, (Twice, Twice)).expected


def test_a_free_exercise_accepts_what_no_mistake_names():
    spec = Spec(
        draw=lambda new: [(4,), (7,)],
        solution=lambda n: n + 1,
        free=True,
        mistakes=[
            Mistake("Not above {n}, but {yours}.", lambda n: n, when=lambda yours, _, n: yours <= n),
            Mistake("Odd.", lambda n: 2 * n + 1, when=lambda yours, *_: yours % 2),
        ],
    )
    assert verdict(spec, lambda n: 2 * n) is None
    assert verdict(spec, lambda n: n).problem == "Not above 4, but 4."
    assert verdict(spec, lambda n: 9 if n == 4 else 0).problem == "Odd.", "each case has its own mistake: the first"
    assert "cannot work with" in verdict(spec, lambda n: "text").problem, "what cannot be judged does not pass"
    with pytest.raises(engine.AnswerRaised, match="division"):
        spec(lambda n: n / 0, Inputs(0))


class Double:
    def __call__(self, x):
        return x + x


def double(x):
    y = x + x
    return y


def test_a_wrong_solution_is_the_solution_with_one_place_changed():
    assert changed(double, ("x + x", "x * x"))(3) == 9 and double(3) == 6
    assert changed(double, ("y = x + x", "y = x"), ("return y", "return -y"))(3) == -3
    assert changed(Double, ("x + x", "x * x"))()(3) == 9
    with pytest.raises(ValueError, match=r"'x - x' occurs 0 times in double"):
        changed(double, ("x - x", "x"))
    with pytest.raises(ValueError, match=r"'y' occurs 2 times in double"):
        changed(double, ("y", "z"))


def _calls_its_function(answer, numbers):
    """A probe: what the answer returns, and how often it calls a function that it gets."""
    calls = []
    total = engine.call(answer, lambda n: calls.append(n) or n * n, numbers, may_change=True)
    return {"The total": total, "calls": len(calls)}


def _squares_with_mean(ask, numbers):
    seen = ask.observe(_calls_its_function, numbers)
    return seen | {"The mean": seen["The total"] / len(numbers)}  # what is computed here the answer cannot forge


def _nothing_of_seven(ask, numbers):
    seen = _squares_with_mean(ask, numbers)
    return {"calls": 9} if seen["The total"] == 7 else seen


def test_what_an_answer_does_is_measured_by_a_probe():
    """Of a dict, the entries with a capital letter are compared; the others are there for `when` and the sentences."""
    spec = Spec(
        draw=lambda new: [(new.sizes(4, 1, 9),)],
        measure=_squares_with_mean,
        dtype=False,
        solution=lambda f, numbers: sum(f(n) for n in numbers),
        rtol=0.01,
        mistakes=[
            Mistake(
                "One is missing: {yours[calls]} of {expected[calls]}.", lambda f, numbers: sum(map(f, numbers[1:]))
            ),
            Mistake("Never called.", lambda f, numbers: sum(numbers) + 0.5, when=lambda yours, *_: yours["calls"] == 0),
        ],
    )
    assert verdict(spec, lambda f, numbers: 1.001 * sum(f(n) for n in numbers if f(n))) is None
    assert verdict(spec, lambda f, numbers: sum(f(n) for n in numbers[1:])).problem == "One is missing: 3 of 4."
    assert verdict(spec, lambda f, numbers: 7).problem == "Never called."
    assert verdict(spec, lambda f, numbers: 3 * sum(map(f, numbers))).problem == "The total is not right."
    two = dataclasses.replace(spec, draw=lambda new: [([2, 3],), ([4, 5, 6],)])
    mixed = verdict(two, lambda f, numbers: 7 if len(numbers) == 2 else 3 * sum(map(f, numbers)))
    assert mixed.problem == "Never called.", "each case has its own mistake: the first"
    assert "does not do what" in verdict(dataclasses.replace(spec, measure=_nothing_of_seven), lambda f, _: 7).problem


def test_a_dtype_is_a_result():
    spec = Spec(
        draw=lambda new: [(torch.float16,), (torch.int64,)],
        solution=lambda dtype: torch.ones(1, dtype=dtype).mean().dtype if dtype.is_floating_point else torch.float32,
        mistakes=[Mistake("Always {yours}.", lambda dtype: torch.float16)],
    )
    assert verdict(spec, lambda dtype: torch.float16).problem == "Always torch.float16."
    assert verdict(spec, lambda dtype: torch.float64).problem == "Your result for dtype = torch.float16 is not right."


WHOLE = 2.0


def _twice(value):
    return 2 * value


def _is_negative(yours, expected, x):
    return yours < 0 < x


def test_a_table_of_wrong_solutions():
    squared, negative, other = altered(
        double,
        r"""
        x + x → x * x || x**3
        x + x → x**2
                && return y → return y\n    return x
            You squared it. The sum of
            both was asked for.
            look: the
                operator
        = -2 *
                x
            The sign is wrong.

        _twice, *map(_twice, []), lambda *x: 7
            Not {WHOLE:.0f} times {x}, as `{WHOLE}` says.
        """,
    )
    assert [wrong(3) for wrong in squared.wrong + negative.wrong + other.wrong] == [9, 27, 9, -6, 6, 7]
    assert (squared.problem, squared.look) == ("You squared it. The sum of both was asked for.", "the operator")
    assert (negative.problem, negative.look) == ("The sign is wrong.", None)
    assert other.problem == "Not 2 times {x}, as `2.0` says."


def test_a_table_names_the_inputs_in_its_conditions():
    spec = Spec(
        draw=lambda new: [(new.size(3, 9),)],
        solution=double,
        mistakes="""
            = -x
                Below {x}: {yours}.
                look: the sign
                when: _is_negative
            x + x → x + x + 1
                One too many.
                when: yours == expected + 1 and
                    all(yours > i + x for i in range(x))
            = 0.0
                A fraction.
                when: isinstance(yours, float) and math.floor(yours) < x
        """,
    )
    assert verdict(spec, lambda x: x + x) is None
    below = verdict(spec, lambda x: -3)
    assert below.problem.startswith("Below ") and below.look == "the sign"
    assert verdict(spec, lambda x: 1 + 2 * x).problem == "One too many."
    assert verdict(spec, lambda x: x / 3).problem == "A fraction."
    measured = dataclasses.replace(
        spec,
        measure=lambda ask, double=1: ask(double),
        mistakes=["= 0\n    Too small for {double}.\n    when: yours < double", Mistake("Nine.", lambda x: 9)],
    )
    assert verdict(measured, lambda x: -1).problem.startswith("Too small for "), "a measure has its own names"
    assert verdict(measured, lambda x: 9).problem == "Nine."


def test_of_several_functions_a_table_changes_the_one_that_has_the_place():
    ((first, second),) = altered((_twice, double), "x + x → x * x\n    Squared.")[0].wrong
    assert first is _twice and second(3) == 9
    with pytest.raises(TableError, match=r"'return' occurs in 2 functions"):
        altered((_twice, double), "return → return -\n    Negative.")


@pytest.mark.parametrize(
    "table, problem",
    {
        "x - x → x\n    A sentence.": r"'x - x' occurs 0 times in double",
        "x + x → x && y\n    A sentence.": r"each place needs .*'y'",
        "= x + z\n    A sentence.": r"z is neither an input nor a name of the module",
        "_unknown\n    A sentence.": r"_unknown is neither an input nor a name",
        "Not code at all.\n    A sentence.": r"not an expression .*Not code",
        "= -x\n    A sentence.\n    when: yours < [n for n in z]": r"z is neither an input nor a name",
        "= -x\n    A sentence.\n    when: yours <": r"not an expression",
        "= -x": r"sentence is missing.*'= -x'",
        "= -x\n    look: here": r"sentence is missing",
        "    A sentence.": r"sentence is missing",
        "= -x\n    A sentence.\n    look: here\n    look: there": r"sentence is missing, or is there twice",
        "= -x\n    A sentence. look: in the same line": r"begin a line of their own",
        "= -x\n    At most {MOST}.": r"\{MOST\} is not a constant",
    }.items(),
)
def test_a_table_with_a_slip_says_which_line_it_is(table, problem):
    with pytest.raises(TableError, match=r"(?s)test_specs.py, line \d+: .*" + problem):
        Spec(draw=lambda new: [(1,)], solution=double, mistakes=table)


def test_a_traceback_shows_the_line_of_the_table():
    spec = Spec(
        draw=lambda new: [(1,)],
        solution=double,
        mistakes="""
            lambda x: x // 0
                Zero. This is line 1.
                when: yours.first + yours.then
        """,
    )
    (mistake,) = spec.mistakes
    for call, line in (
        (partial(mistake.wrong[0], 1), "lambda x: x // 0"),
        (partial(mistake.when, 1, 2, 3), "when: yours.first + yours.then"),
    ):
        with pytest.raises((ZeroDivisionError, AttributeError)) as caught:
            call()
        assert traceback.extract_tb(caught.tb)[-1].line == line


def test_a_dictionary_is_compared_entry_by_entry_and_a_measured_value_names_its_inputs():
    plain = Spec(draw=lambda new: [(2,)], solution=lambda n: {"a": n, "b": n})
    assert verdict(plain, lambda n: {"a": n, "b": 7}).problem == '"b" in your result for n = 2 is not right.'
    measured = Spec(draw=lambda new: [(2,)], solution=lambda n: n, measure=lambda ask, n: {"The size": ask(n)})
    assert verdict(measured, lambda n: 7).problem == "The size for n = 2 is not right."
