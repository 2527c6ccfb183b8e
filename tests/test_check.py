"""From an answer to what a check shows, on exercises made up here."""

import re
import subprocess
import sys
import threading
import time
from dataclasses import replace
from unittest import mock

import pytest
import torch

from labcheck import check, evaluate, exercise, hint, judge, lab, lend, progress, show
from labcheck.answer import call
from labcheck.compare import near, same
from labcheck.exercise import Exercise
from labcheck.inputs import Inputs
from labcheck.verdict import Incorrect, NotHere, wrong_if
from torchcourse import place


def double(answer, rng):
    x = rng.randn(rng.size(2, 5))
    yours = call(answer, x)
    wrong_if(near(yours, x**2), "squared", "You squared.", look="the operator")
    same(yours, 2 * x)


def number(answer, rng):
    same(answer, 42, "Your number", dtype=False)


def elsewhere(answer, rng):
    raise NotHere("This exercise needs a compiler.")


def broken_judge(answer, rng):
    raise KeyError("a mistake of ours")


@pytest.fixture(autouse=True)
def demo(monkeypatch):
    """Exercises of a chapter "99_demo" in a registry of their own."""
    for name in ("_latest", "_attempts", "_hints_given"):
        monkeypatch.setattr(lab, name, {})
    about = {"title": "Double", "minutes": 1, "difficulty": 1, "points": 2, "takeaway": "Twice is twice."}
    about |= {"hints": ("the idea", "the code"), "chapter": "99_demo", "lends": len}
    judges = (double, number, elsewhere, broken_judge)
    exercises = {each.__name__: Exercise(name=each.__name__, judge=each, **about) for each in judges}
    monkeypatch.setattr(exercise, "EXERCISES", exercises)
    monkeypatch.setattr(lab, "EXERCISES", exercises)
    monkeypatch.setattr(exercise, "load_chapters", lambda: exercises)
    monkeypatch.setattr(place, "chapter", "99_demo")


def stub(x):
    """Twice the tensor."""


def dots(x): ...


def passes(x):
    pass


def not_implemented(x):
    raise NotImplementedError


OPEN = [..., (1, ...), [..., 2], {"a": ..., "b": (1, ...)}]


@pytest.mark.parametrize("answer", [*OPEN, stub, dots, passes, not_implemented, lambda x: ...])
def test_not_attempted(answer):
    assert evaluate("double", answer).outcome == "not attempted"


def test_what_a_machine_lacks_is_no_fault_of_the_answer(capsys):
    check("elsewhere", lambda x: x)
    assert capsys.readouterr().out.strip() == "○ elsewhere: not checked. This exercise needs a compiler."
    assert evaluate("elsewhere", stub).outcome == "not attempted"
    progress()
    assert "1 try" not in capsys.readouterr().out


def test_correct_says_what_to_take_away():
    result = evaluate("double", lambda x: x + x)
    assert result.correct and "Twice is twice." in result.text


def test_incorrect_says_expected_yours_and_where():
    text = evaluate("double", lambda x: x**2).text
    assert "You squared." in text and "look at: the operator" in text
    text = evaluate("double", lambda x: x[:1]).text
    assert "shape" in text and "expected" in text and "yours: (1,)" in text
    assert "dtype" in evaluate("double", lambda x: (2 * x).double()).text
    assert "return" in evaluate("double", lambda x: print(end="")).text
    assert "not a tensor" in evaluate("double", lambda x: (2 * x).tolist()).text
    assert "not a function" in evaluate("double", 3).text
    result = evaluate("double", lambda x: "<script>alert(1)</script>")
    assert "<script>" not in result.html and "&lt;script&gt;" in result.html


def test_error_shows_the_students_own_line():
    def answer(x):
        half = x.view(2, 10_000)
        return half

    result = evaluate("double", answer)
    assert result.outcome == "error"
    assert "x.view(2, 10_000)" in result.text and "RuntimeError" in result.text
    assert "judge.py" not in result.text


def test_a_missing_gpu_sends_nobody_to_a_driver():
    def answer(x):
        raise RuntimeError("Found no NVIDIA driver on your system. Please install a driver from …")

    result = evaluate("double", answer)
    assert "driver" not in result.message and "raise RuntimeError" in result.text and "`device`" in result.text


def test_what_pytorch_and_sys_exit_raise_is_the_answers_error():
    result = evaluate("double", lambda x: torch.rand(3, dtype=torch.long))
    assert result.outcome == "error" and "NotImplementedError" in result.text
    assert evaluate("double", lambda x: exit()).outcome == "error"


def test_answer_that_changes_its_argument():
    def in_place(x):
        x *= 2
        return x

    result = evaluate("double", in_place)
    assert result.outcome == "incorrect" and "changed its argument" in result.text
    with pytest.raises(Incorrect, match="changed its argument"):
        call(lambda batch: batch.update(x=[1.0]), {"x": torch.ones(1)}, may_return_none=True)


@pytest.mark.parametrize("swallow", [False, True])
def test_endless_answer_is_stopped(monkeypatch, swallow):
    def endless(x):
        for _ in range(60_000):  # ten minutes: if nothing stops it, its result is wrong
            try:
                time.sleep(0.01)
            except Exception:
                if not swallow:
                    raise

    monkeypatch.setitem(exercise.EXERCISES, "double", replace(exercise.EXERCISES["double"], seconds=0.5))
    result = evaluate("double", endless)
    assert result.outcome == "error" and "still running" in result.text


def test_an_answer_that_hardly_got_a_processor_gets_more_time(monkeypatch):
    monkeypatch.setitem(exercise.EXERCISES, "double", replace(exercise.EXERCISES["double"], seconds=0.1))
    monkeypatch.setattr(judge, "STARVED", 1e6)
    monkeypatch.setattr(time, "process_time", lambda: 0.0)

    def starved(x):
        time.sleep(0.3)
        return 2 * x

    assert evaluate("double", starved).correct


def test_outside_the_main_thread_it_works_without_limit():
    results = []
    thread = threading.Thread(target=lambda: results.append(evaluate("double", lambda x: 2 * x)))
    thread.start()
    thread.join()
    assert results[0].correct


def test_value_exercise():
    assert evaluate("number", 42).correct and evaluate("number", torch.tensor(42)).correct
    assert evaluate("number", 41).outcome == "incorrect" and evaluate("number", True).outcome == "incorrect"
    assert "yours: None" in evaluate("number", None).text


def test_stumbling_judge_is_told_apart():
    result = evaluate("broken_judge", 1)
    assert isinstance(result.judge_failed, KeyError) and not result.correct


class Near(float):
    """As near as you like to every number."""

    def __sub__(self, other):
        return 0.0


class Agreeable(torch.Tensor):
    """All operations on it say yes."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.tensor(True)


@pytest.mark.parametrize("liar", [mock.ANY, {"a": ([mock.ANY],)}, Near(3), torch.ones(2).as_subclass(Agreeable)])
def test_who_says_itself_what_it_equals_is_refused(liar):
    for result in (evaluate("number", liar), evaluate("double", lambda x: liar)):
        assert result.outcome == "incorrect" and "says itself what it equals" in result.text


def test_a_tensor_of_many_dimensions_is_refused():
    """PyTorch makes one of 100,000; to list its numbers crashes Python."""
    many = torch.zeros([1] * 100_000 + [2])
    assert show.show(many) == "a float32 tensor of 100001 dimensions"
    for result in (evaluate("number", many), evaluate("double", lambda x: [many])):
        assert result.outcome == "incorrect" and "too many dimensions" in result.text


def test_the_chapter_of_the_notebook_is_looked_at_first():
    """The first check of a lab imports one chapter, not all of them."""
    code = "from torchcourse import place; place.chapter = '01_tensors'; from labcheck import exercise, evaluate; "
    code += "import sys; print(evaluate('normalize', ...).outcome, 'torchcourse_labs.ddp' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "not attempted False", done


def test_a_late_student_is_lent_an_answer(capsys):
    twice = lambda x: 2 * x  # noqa: E731
    assert lend("double", twice) is twice and lend("double", stub) is len and lend("double", ...) is len
    assert capsys.readouterr().out.split("\n")[:2] == ["double: yours", "double: borrowed"]


def test_misspelled_name(capsys):
    check("duoble", 1)
    hint("duoble")
    assert capsys.readouterr().out.count('did you mean "double"?') == 2


def test_hints_one_after_the_other(capsys):
    for words in ("the idea", "That was the last one. Still stuck? Go back", "no more hints", "the idea"):
        hint("double")
        assert words in capsys.readouterr().out


@pytest.mark.parametrize(
    ("answer", "hints", "last"),
    [
        (lambda x: x.nothing, 1, 'Stuck? Run `hint("double")` in a new cell.'),
        (lambda x: x, 2, "You have seen all hints. Still stuck? Go back"),
        (lambda x: 2 * x, 0, "2 of 4 exercises correct in this session."),
        (stub, 0, "run this cell again."),
    ],
)
def test_the_last_line_says_what_next(capsys, answer, hints, last):
    check("number", 42)
    for _ in range(hints):
        hint("double")
    check("double", answer)
    assert last in capsys.readouterr().out.splitlines()[-1]


def test_what_next_stands_beside_what_the_notebook_has_changed(capsys):
    torch.set_default_dtype(torch.float64)
    try:
        check("double", lambda x: x)
    finally:
        torch.set_default_dtype(torch.float32)
    assert re.search("Your notebook has changed: .*float64. Stuck?", capsys.readouterr().out)


def test_white_words_can_be_read_on_each_color():
    """4.5 to 1, as WCAG defines it."""
    for _, color in show.LOOKS.values():
        parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        red, green, blue = (part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts)
        assert 1.05 / (0.2126 * red + 0.7152 * green + 0.0722 * blue + 0.05) >= 4.5, color


def test_progress(capsys):
    check("double", lambda x: x)
    check("double", lambda x: 2 * x)
    capsys.readouterr()
    progress()
    out = capsys.readouterr().out
    assert "1 of 4 exercises correct, 2 of 8 points" in out and "2 tries" in out


def test_check_never_raises_for_students_and_always_for_graders(monkeypatch, capsys):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    assert check("double", stub) is None
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    with pytest.raises(AssertionError, match="not attempted"):
        check("double", stub)
    with pytest.raises(AssertionError, match="There is no exercise"):
        check("nothing", 1)
    check("double", lambda x: 2 * x)


def test_class_answers():
    class Half:
        def __init__(self):
            self.done = True

        def forward(self):
            """To do."""

    class Empty:
        def forward(self):
            """To do."""

    assert evaluate("double", Empty).outcome == "not attempted"
    assert "`forward`" in evaluate("double", Half).text


def test_dictionary_is_attempted_when_its_first_dots_are_replaced():
    assert evaluate("double", {"a": ..., "b": ...}).outcome == "not attempted"
    result = evaluate("double", {"a": 1, "b": ...})
    assert result.outcome == "incorrect" and '"b" is still open' in result.text


def test_of_several_functions_the_empty_one_is_named_at_once(monkeypatch):
    """Before anything runs: what an exercise of several functions runs may take seconds."""
    never = mock.Mock(side_effect=AssertionError("judged"))
    monkeypatch.setitem(exercise.EXERCISES, "double", replace(exercise.EXERCISES["double"], judge=never))
    assert evaluate("double", (stub, passes)).outcome == "not attempted"
    halfway = evaluate("double", (lambda x: 2 * x, passes))
    assert halfway.outcome == "not attempted" and halfway.message == "Your function `passes` is still empty."


@pytest.mark.parametrize(
    ("yours", "expected", "words"),
    [
        ([1, 2], torch.tensor([1, 2]), "not a tensor"),
        (torch.ones(2, 3), torch.ones(3, 2), "wrong shape"),
        (torch.ones(2).int(), torch.ones(2), "wrong dtype"),
        (torch.tensor([1.0, 3.0]), torch.tensor([1.0, 2.0]), "at index [1]"),
        (float("nan"), 1.0, "not right"),
        (torch.zeros(2, device="meta"), torch.zeros(2), "without readable values"),
        (torch.tensor(1), 1, "another type"),
        (10**400, 1.0, "not right"),
        (torch.tensor([1 + 2j]), torch.tensor([1 + 3j]), "not right"),
        (torch.zeros((), device="meta"), 1.0, "not a number"),
        ({"a": 1}, {"a": 2}, '"a" in your result'),
        ([torch.ones(1)], (torch.ones(1), 2), "should have 2 parts"),
        ((1, torch.ones(1)), (1, torch.zeros(1)), "Part 2 of your result"),
    ],
)
def test_same_says_what_differs(yours, expected, words):
    with pytest.raises(Incorrect) as caught:
        same(yours, expected)
    told = f"{caught.value.problem} {caught.value.expected} {caught.value.yours}"
    assert words in told


def test_same_accepts_what_is_the_same():
    same(torch.ones(2).double(), torch.ones(2), dtype=False)
    same(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    same(torch.Size([3, 2]), (3, 2))
    same(torch.tensor(2.0), 2, dtype=False)
    same({"a": [1, torch.ones(2)]}, {"a": (1.0, torch.ones(2))}, dtype=False)
    same(torch.tensor([1 + 2j]), torch.tensor([1 + 2j]))


def test_two_exercises_of_one_name_are_noticed(tmp_path, monkeypatch):
    for chapter in ("one", "two"):
        (tmp_path / "some_labs" / chapter).mkdir(parents=True)
        init = f'CHAPTER = "98_{chapter}"\nEXERCISES = ("same_name",)\n'
        (tmp_path / "some_labs" / chapter / "__init__.py").write_text(init)
        (tmp_path / "some_labs" / chapter / "same_name.py").write_text(EMPTY)
    (tmp_path / "some_labs" / "__init__.py").touch()
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(place, "LABS", "some_labs")
    assert [*exercise.load_chapter("98_one")] == ["same_name"]
    said = exercise.EXERCISES["same_name"].sentences
    assert (said["one"], said["two"]) == ("One.", "It is … and not 2.")
    with pytest.raises(ValueError, match='called "same_name": in 98_one and in 98_two'):
        exercise.load_chapter("98_two")


EMPTY = """
from labcheck.exercise import Exercise
from labcheck.verdict import wrong_if

def judge(answer, rng):
    wrong_if(answer == 1, "one", "One.", look="it")
    wrong_if(answer != 2, "two", f"It is {answer} and not 2.")

exercise = Exercise(title="", minutes=1, difficulty=1, points=1, takeaway="", hints=("",), judge=judge)
"""


def test_inputs_are_fresh_and_repeatable():
    one, again, other = Inputs(1), Inputs(1), Inputs(2)
    draw = lambda new: torch.cat([new.rand(3), new.randn(3), new.ints(0, 9, (3,)), new.permutation(4)])  # noqa: E731
    first = draw(one)
    assert torch.equal(first, draw(again)) and not torch.equal(first, draw(other))
    assert len(set(one.sizes(3, 2, 6))) == 3 and 2 <= one.size(2, 4) <= 4
    pixels = one.images(2, 3, 4, 5)
    assert pixels.dtype == torch.uint8 and pixels.min() == 0 and pixels.max() == 255
