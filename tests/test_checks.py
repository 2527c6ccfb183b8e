"""The truth table: right answers pass, stubs are "not attempted", every named mistake gets its own message.

The table of a chapter is a Python file `NN_slug.py` in tests/answers, or in the folder given with `--answers FOLDER`.
It defines two dictionaries, keyed by the name of the exercise:

    RIGHT = {"double": [by_sum, by_product]}
        at least two right answers that differ in how they do it: functions, classes or values, whatever the exercise
        takes as `check("double", answer)`.
    WRONG = {"double": [(squares, "twice"), (forgot_return, "return")]}
        the mistakes people make, each with words that its message must contain. Case does not count; the message
        is everything that the student reads: problem, expected, yours, where to look.

A wrong answer must come out as "incorrect" or "error", never as "correct" and never as "not attempted". A table in
another folder may leave out exercises. So may the ones in tests/answers, for what an exercise's Spec already holds:
tests/test_specs.py runs that. A chapter that has nothing to add has no file there.
"""

import functools
import importlib.util
import json
import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tools import course
from torchcourse.checks import engine, evaluate
from labcheck.show import Result

pytestmark = pytest.mark.usefixtures("prepared_once")

OWN = Path(__file__).parent / "answers"
EXERCISES = engine.load_chapters()
# Each row of the table is judged with several random inputs: right answers with more, as each may meet a rare case.
SEEDS = {"right": range(5), "wrong": range(2)}
FEW = {"right": range(2), "wrong": range(1)}  # where each judgment trains a network or starts processes
NO_TABLE = SimpleNamespace(RIGHT={}, WRONG={})  # of a chapter whose Specs hold all answers


@functools.cache
def tables(folder: Path) -> dict[str, object]:
    """Chapter -> the module with its table."""
    found = {}
    for path in sorted(folder.glob("[0-9][0-9]_*.py")):
        spec = importlib.util.spec_from_file_location(f"answers_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found[path.stem] = module
    return found


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per row of the truth table."""
    if not {"right", "wrong"} & set(metafunc.fixturenames):
        return
    given = metafunc.config.getoption("answers")
    found = tables(Path(given) if given else OWN)
    if not found:
        raise pytest.UsageError(f"No truth table (NN_slug.py) in {given}: see the docstring of tests/test_checks.py.")
    rows, ids = [], []
    for chapter, module in found.items():
        if "right" in metafunc.fixturenames:
            for name, answers in module.RIGHT.items():
                rows += [(name, answer) for answer in answers]
                ids += [f"{chapter}-{name}-{i}-{label(answer)}" for i, answer in enumerate(answers)]
        else:
            for name, answers in module.WRONG.items():
                rows += [(name, answer, words) for answer, words in answers]
                ids += [f"{chapter}-{name}-{i}-{label(answer)}" for i, (answer, _) in enumerate(answers)]
    metafunc.parametrize("right" if "right" in metafunc.fixturenames else "wrong", rows, ids=ids)


def label(answer: object) -> str:
    return getattr(answer, "__name__", type(answer).__name__).strip("<>")


VERDICTS: dict[tuple[str, int, int], Result] = {}


def judged(name: str, answer: object, seed: int) -> Result:
    """`evaluate`, once for each row and seed: some take a second. (By identity: not every answer can be hashed.)"""
    key = (name, id(answer), seed)
    if key not in VERDICTS:
        VERDICTS[key] = evaluate(name, answer, seed)
    return VERDICTS[key]


def seeds(name: str, kind: str) -> range:
    """The seeds for a row of the table of an exercise; kind: "right" or "wrong"."""
    takes_its_time = EXERCISES[name].seconds >= 60
    return (FEW if takes_its_time else SEEDS)[kind]


def healthy(result: Result) -> Result:
    """The check itself must not have stumbled."""
    assert result.judge_failed is None, f"{result.text}\n{result.judge_failed!r}"
    return result


def test_right_answer_is_correct(right):
    name, answer = right
    for seed in seeds(name, "right"):
        result = healthy(evaluate(name, answer, seed))
        assert result.outcome == "correct", f"seed {seed}\n{result.text}"


def test_named_mistake_gets_its_own_message(wrong):
    name, answer, words = wrong
    for seed in seeds(name, "wrong"):
        result = healthy(judged(name, answer, seed))
        assert result.outcome in ("incorrect", "error"), f"seed {seed}\n{result.text}"
        assert words.lower() in result.text.lower(), f"seed {seed}: no {words!r} in\n{result.text}"


# ---------------------------------------------------------------------------------------------------------------------
# The tables themselves


@pytest.fixture(scope="module")
def own() -> dict[str, object]:
    return tables(OWN)


def right_and_wrong(name: str, own: dict[str, object]) -> tuple[list, list]:
    """The answers to an exercise: those in its Spec, if it has one, and those in the table of its chapter."""
    table = own.get(EXERCISES[name].chapter, NO_TABLE)
    right, wrong = list(table.RIGHT.get(name, [])), [answer for answer, _ in table.WRONG.get(name, [])]
    if spec := EXERCISES[name].spec:
        made = (lambda function: function()) if spec.takes_value else (lambda function: function)
        right += [made(function) for function in (spec.solution, *spec.also_right)]
        wrong += [made(mistake.wrong[0]) for mistake in spec.mistakes]
    return right, wrong


@pytest.mark.parametrize("lab", sorted((course.ROOT / "solutions").glob("*.md")), ids=lambda lab: lab.stem)
def test_exercises_come_in_the_order_of_their_lab(lab):
    in_lab = re.findall(r"{{exercise: (\w+)}}", lab.read_text())
    assert [name for name in EXERCISES if EXERCISES[name].chapter == lab.stem] == in_lab


@pytest.mark.parametrize("name", list(EXERCISES))
def test_every_exercise_has_its_rows(name, own):
    exercise = EXERCISES[name]
    right, mistakes = right_and_wrong(name, own)
    assert len(right) >= 2, "two different right answers show that the check dictates no way"
    enough = 2 if exercise.few_mistakes else 3
    assert len(mistakes) >= enough, f"{name} has {len(mistakes)} named mistakes; fewer than three need few_mistakes=…"
    if exercise.spec:  # tests/test_specs.py shows that each mistake gets its own sentence
        messages = {mistake.problem for mistake in exercise.spec.mistakes}
    else:
        messages = {judged(name, answer, 0).message for answer in mistakes}
    assert len(messages) >= enough, f"the mistakes of {name} share their messages: {messages}"


@pytest.mark.parametrize("name", list(EXERCISES))
def test_exercise_is_described(name):
    exercise = EXERCISES[name]
    assert exercise.chapter in [chapter.name for chapter in course.chapters()]
    assert 1 <= exercise.difficulty <= 5 and exercise.minutes > 0 and exercise.points > 0
    assert len(exercise.hints) in (2, 3), "two or three hints, from the idea to almost the code"
    assert exercise.takeaway.strip().endswith((".", "!")) and exercise.title


def test_tables_name_no_unknown_exercise(own):
    for chapter, module in own.items():
        for name in {*module.RIGHT, *module.WRONG}:
            assert name in EXERCISES and EXERCISES[name].chapter == chapter, f"{chapter}: {name}"


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda c: c.name)
def test_lab_asks_exactly_the_exercises_of_its_chapter(chapter):
    lab = json.loads((course.ROOT / "labs" / f"{chapter.name}.ipynb").read_text())
    ids = [cell["id"] for cell in lab["cells"]]
    asked = {i.removeprefix("check-") for i in ids if i.startswith("check-")}
    assert asked == {e.name for e in EXERCISES.values() if e.chapter == chapter.name}


# ---------------------------------------------------------------------------------------------------------------------
# Whatever people type


def raises(*args, **kwargs):
    raise RuntimeError("my own mistake")


def deletes(*args, **kwargs):
    for arg in args:
        if isinstance(arg, torch.Tensor) and not arg.requires_grad:
            arg.zero_()
    return args[0] if args else None


JUNK = {
    "None": None,
    "number": 3,
    "text": "x",
    "list": [1, "two", None],
    "dict": {},
    "array": np.zeros(3),
    "tensor": torch.zeros(2, 3),
    "empty tensor": torch.empty(0),
    "strings": lambda *a, **k: "x",
    "lists": lambda *a, **k: [1, 2],
    "numbers": lambda *a, **k: 1,
    "nan": lambda *a, **k: float("nan"),
    "tensors": lambda *a, **k: torch.zeros(()),
    "big tensors": lambda *a, **k: torch.zeros(7, 1, 2, 2),
    "complex tensors": lambda *a, **k: torch.zeros(2, dtype=torch.complex64),
    "first argument": lambda *a, **k: a[0] if a else 0,
    "tuples": lambda *a, **k: (None, None),
    "no arguments": lambda: 1,
    "raises": raises,
    "mutates": deletes,
    "class": type("Nothing", (), {}),
    "module": torch.nn.Linear(2, 2),
}


def junk_for(name: str) -> list[str]:
    """A third of it, from all over, where each judgment trains a network, compiles or starts processes."""
    return list(JUNK)[:: 3 if EXERCISES[name].seconds >= 60 else 1]


@pytest.mark.parametrize(("name", "junk"), [(name, junk) for name in EXERCISES for junk in junk_for(name)])
def test_no_answer_breaks_a_check(name, junk):
    result = healthy(evaluate(name, JUNK[junk], 0))
    assert result.outcome in ("incorrect", "error", "not attempted")


@pytest.mark.parametrize("name", list(EXERCISES))
def test_stubs_are_not_attempted(name):
    def stub(*args, **kwargs):
        """What comes in and what goes out."""

    def not_implemented(*args, **kwargs):
        raise NotImplementedError

    for answer in (..., stub):
        assert evaluate(name, answer, 0).outcome == "not attempted"
    assert evaluate(name, not_implemented, 0).outcome in (
        "not attempted",
        "incorrect",
    )  # incorrect: a value is asked for


def test_a_loop_is_found_at_the_first_check_of_a_process():
    """There the libraries' own imports run as well, and must not hide the steps of the answer."""
    code = """
import math, torch
from labcheck import evaluate
loop = lambda a, b: torch.tensor([[math.dist(p, q) for q in b.tolist()] for p in a.tolist()])
print(evaluate("pairwise_distances", loop).text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert "there is a loop" in done.stdout, done.stdout + done.stderr
