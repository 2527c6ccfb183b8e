"""From an answer to what a check shows, on exercises made up here."""

import re
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from unittest import mock

import pytest
import torch

from labcheck import check, evaluate, exercise, hint, judge, lab, lend, progress, show
from labcheck.answer import call
from labcheck.compare import near, same
from labcheck.exercise import Exercise
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


@pytest.fixture
def double_with(demo, monkeypatch):
    """`double_with(seconds=1)`: the exercise "double" is another one in this respect."""
    return lambda **changes: monkeypatch.setitem(
        exercise.EXERCISES, "double", replace(exercise.EXERCISES["double"], **changes)
    )


def stub(x):
    """Twice the tensor."""


def dots(x): ...


def passes(x):
    pass


def not_implemented(x):
    raise NotImplementedError


def says(name, answer, outcome, *words):
    """Whether the check of this answer comes to this outcome, with these words in what it shows."""
    result = evaluate(name, answer)
    assert result.outcome == outcome and not [word for word in words if word not in result.text], result.text
    return True


def test_not_attempted():
    for answer in (..., (1, ...), [..., 2], {"a": ..., "b": (1, ...)}, stub, dots, passes, not_implemented):
        assert says("double", answer, "not attempted")
    assert says("double", lambda x: ..., "not attempted")


def test_what_a_machine_lacks_is_no_fault_of_the_answer(capsys):
    check("elsewhere", lambda x: x)
    assert capsys.readouterr().out.strip() == "○ elsewhere: not checked. This exercise needs a compiler."
    assert says("elsewhere", stub, "not attempted")
    progress()
    assert "1 try" not in capsys.readouterr().out


def test_what_is_said_of_an_answer():
    assert says("double", lambda x: x + x, "correct", "Twice is twice.")
    assert says("double", lambda x: x**2, "incorrect", "You squared.", "look at: the operator")
    assert says("double", lambda x: x[:1], "incorrect", "shape", "expected", "yours: (1,)")
    assert says("double", lambda x: (2 * x).double(), "incorrect", "dtype")
    assert says("double", lambda x: print(end=""), "incorrect", "return")
    assert says("double", lambda x: (2 * x).tolist(), "incorrect", "not a tensor")
    assert says("double", 3, "incorrect", "not a function")
    assert says("number", 42, "correct") and says("number", torch.tensor(42), "correct")
    assert says("number", 41, "incorrect") and says("number", True, "incorrect")
    assert says("number", None, "incorrect", "yours: None")
    html = evaluate("double", lambda x: "<script>alert(1)</script>").html
    assert "<script>" not in html and "&lt;script&gt;" in html
    assert isinstance(evaluate("broken_judge", 1).judge_failed, KeyError), "our mistake is not the student's"


def test_error_shows_the_students_own_line():
    def answer(x):
        half = x.view(2, 10_000)
        return half

    def without_gpu(x):
        raise RuntimeError("Found no NVIDIA driver on your system. Please install a driver from …")

    assert says("double", answer, "error", "x.view(2, 10_000)", "RuntimeError")
    assert "judge.py" not in evaluate("double", answer).text
    assert says("double", without_gpu, "error", "raise RuntimeError", "`device`")
    assert "driver" not in evaluate("double", without_gpu).message
    assert says("double", lambda x: torch.rand(3, dtype=torch.long), "error", "NotImplementedError")
    assert says("double", lambda x: exit(), "error")


def test_answer_that_changes_its_argument():
    def in_place(x):
        x *= 2
        return x

    assert says("double", in_place, "incorrect", "changed its argument")
    with pytest.raises(Incorrect, match="changed its argument"):
        call(lambda batch: batch.update(x=[1.0]), {"x": torch.ones(1)}, may_return_none=True)


@pytest.mark.parametrize("swallow", [False, True])
def test_endless_answer_is_stopped(double_with, swallow):
    def endless(x):
        for _ in range(60_000):  # ten minutes: if nothing stops it, its result is wrong
            try:
                time.sleep(0.01)
            except Exception:
                if not swallow:
                    raise

    double_with(seconds=0.5)
    assert says("double", endless, "error", "still running")


def test_a_library_is_not_stopped_halfway_through_its_import(double_with, tmp_path, monkeypatch):
    (tmp_path / "slow_library.py").write_text("import time\ntime.sleep(1.5)\nwhole = True\n")
    monkeypatch.syspath_prepend(tmp_path)
    double_with(seconds=0.2)
    assert says("double", lambda x: __import__("slow_library") and time.sleep(600), "error", "still running")
    assert sys.modules.pop("slow_library").whole


def test_an_answer_that_hardly_got_a_processor_gets_more_time(double_with, monkeypatch):
    double_with(seconds=0.1)
    monkeypatch.setattr(judge, "STARVED", 1e6)
    monkeypatch.setattr(time, "process_time", lambda: 0.0)
    assert says("double", lambda x: time.sleep(0.3) or 2 * x, "correct")


def test_outside_the_main_thread_it_works_without_limit():
    with ThreadPoolExecutor() as pool:
        assert pool.submit(evaluate, "double", lambda x: 2 * x).result().correct


class Near(float):
    """As near as you like to every number."""

    def __sub__(self, other):
        return 0.0


class Agreeable(torch.Tensor):
    """All operations on it say yes."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        return torch.tensor(True)


def test_who_says_itself_what_it_equals_is_refused():
    for liar in (mock.ANY, {"a": ([mock.ANY],)}, Near(3), torch.ones(2).as_subclass(Agreeable)):
        assert says("number", liar, "incorrect", "says itself what it equals")
        assert says("double", lambda x, liar=liar: liar, "incorrect", "says itself what it equals")
    # PyTorch makes a tensor of 100,000 dimensions; to list its numbers crashes Python.
    many = torch.zeros([1] * 100_000 + [2])
    assert show.show(many) == "a float32 tensor of 100001 dimensions"
    assert says("number", many, "incorrect", "too many dimensions")
    assert says("double", lambda x: [many], "incorrect", "too many dimensions")


def test_a_late_student_is_lent_an_answer(capsys):
    twice = lambda x: 2 * x  # noqa: E731
    assert lend("double", twice) is twice and lend("double", stub) is len and lend("double", ...) is len
    assert capsys.readouterr().out.split("\n")[:2] == ["double: yours", "double: borrowed"]


def test_hints_one_after_the_other(capsys):
    for words in ("the idea", "That was the last one. Still stuck? Go back", "no more hints", "the idea"):
        hint("double")
        assert words in capsys.readouterr().out
    check("duoble", 1)
    hint("duoble")
    assert capsys.readouterr().out.count('did you mean "double"?') == 2


def test_the_last_line_says_what_next(capsys):
    def last_line(answer, hints=0):
        for _ in range(hints):
            hint("double")
        check("double", answer)
        return capsys.readouterr().out.splitlines()[-1]

    check("number", 42)
    assert "run this cell again." in last_line(stub)
    assert last_line(lambda x: x.nothing).endswith('Stuck? Run `hint("double")` in a new cell.')
    assert "You have seen all hints. Still stuck? Go back" in last_line(lambda x: x, hints=2)
    torch.set_default_dtype(torch.float64)
    try:
        assert re.search("Your notebook has changed: .*float64. You have seen", last_line(lambda x: x))
    finally:
        torch.set_default_dtype(torch.float32)
    assert "2 of 4 exercises correct in this session." in last_line(lambda x: 2 * x)
    progress()
    out = capsys.readouterr().out
    assert "2 of 4 exercises correct, 4 of 8 points" in out and "4 tries" in out


def test_check_never_raises_for_students_and_always_for_graders(monkeypatch, capsys):
    monkeypatch.delenv("NBGRADER_EXECUTION", raising=False)
    assert check("double", stub) is None
    monkeypatch.setenv("NBGRADER_EXECUTION", "autograde")
    with pytest.raises(AssertionError, match="not attempted"):
        check("double", stub)
    with pytest.raises(AssertionError, match="There is no exercise"):
        check("nothing", 1)
    check("double", lambda x: 2 * x)


def test_answers_that_are_half_written():
    half = {"__init__": lambda self: print(), "forward": stub}
    assert says("double", type("Empty", (), {"forward": stub}), "not attempted")
    assert "`forward`" in evaluate("double", type("Half", (), half)).text
    assert says("double", {"a": ..., "b": ...}, "not attempted")
    assert says("double", {"a": 1, "b": ...}, "incorrect", '"b" is still open')


def test_of_several_functions_the_empty_one_is_named_at_once(double_with):
    """Before anything runs: what an exercise of several functions runs may take seconds."""
    double_with(judge=mock.Mock(side_effect=AssertionError("judged")))
    assert says("double", (stub, passes), "not attempted")
    assert says("double", (lambda x: 2 * x, passes), "not attempted", "Your function `passes` is still empty.")


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
        ({"a": 1}, {"a": 2}, '"a" in your result'),
        ([torch.ones(1)], (torch.ones(1), 2), "should have 2 parts"),
        ((1, torch.ones(1)), (1, torch.zeros(1)), "Part 2 of your result"),
    ],
)
def test_same_says_what_differs(yours, expected, words):
    with pytest.raises(Incorrect) as caught:
        same(yours, expected)
    assert words in f"{caught.value.problem} {caught.value.expected} {caught.value.yours}"


def test_same_accepts_what_is_the_same():
    same(torch.tensor([float("nan")]), torch.tensor([float("nan")]))
    same(torch.Size([3, 2]), (3, 2))
    same(torch.tensor(2.0), 2, dtype=False)
    same({"a": [1, torch.ones(2)]}, {"a": (1.0, torch.ones(2).double())}, dtype=False)
