"""Every exercise judges its rows: right answers are right, and each sentence about a misconception has an answer.

The rows are in tests/answers/<chapter>/<exercise>.py:

    RIGHT = [answers]             beside the exercise's own `solution`; as different from one another as can be
    WRONG = {"key": [answers]}    by the key of the sentence that answers them; None for those that no sentence names

On each run, each right answer and one wrong answer of each sentence are judged, on one seed; with `make test-all`, all
answers, on three.
"""

import importlib
import json
import re
import subprocess
import sys
import tempfile
import time

import pytest
import torch
from conftest import made_here
from support.answers import EXERCISES, module, mutant, right, rows, wrong

from labcheck import evaluate, exercise
from labcheck.exercise import TIME_LIMIT, sentences_of
from tools import course

RIGHT, WRONG = rows()
MOST = 10  # sentences of an exercise


def seeds(name: str, config: pytest.Config) -> range:
    """With `make test-all` several where a verdict takes milliseconds; else one: it may train or start processes."""
    return range(1 if config.option.markexpr or EXERCISES[name].seconds > TIME_LIMIT else 3)


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_right_answers_are_right(name, answer, pytestconfig):
    for seed in seeds(name, pytestconfig):
        result = made_here(evaluate(name, answer, seed))
        assert result.correct, f"seed {seed}\n{result.text}\n{result.judge_failed!r}"


@pytest.mark.parametrize(("name", "key", "answer"), WRONG)
def test_wrong_answers_get_their_sentence(name, key, answer, pytestconfig):
    for seed in seeds(name, pytestconfig):
        result = made_here(evaluate(name, answer, seed))
        assert result.judge_failed is None, f"seed {seed}\n{result.text}\n{result.judge_failed!r}"
        assert result.outcome in ("incorrect", "error") and result.misconception == key, f"seed {seed}\n{result.text}"
        assert tempfile.gettempdir() not in result.text, f"this sentence is another one in the next run: {result.text}"


@pytest.mark.parametrize("name", EXERCISES)
def test_an_exercise_is_described(name):
    own = sentences_of(module(name).__name__)
    assert all(own) and all(own.values()), "key and sentence stand where they are said, as texts"
    assert own.keys() <= wrong(name).keys(), f"no wrong answer has the key {own.keys() - wrong(name).keys()}"
    assert len(own) <= MOST
    about = EXERCISES[name]
    assert len(right(name)) >= 2, "two different right answers show that the check dictates no way"
    assert 1 <= about.difficulty <= 5 and about.minutes > 0 and about.points > 0 and about.title
    assert len(about.hints) in (2, 3), "two or three hints, from the idea to almost the code"
    assert about.takeaway.strip().endswith((".", "!"))


@pytest.mark.parametrize("chapter", course.chapters(), ids=lambda chapter: chapter.name)
def test_a_lab_asks_the_exercises_of_its_chapter_in_their_order(chapter):
    lab = json.loads((course.ROOT / "labs" / f"{chapter.name}.ipynb").read_text())
    asked = [cell["id"].removeprefix("check-") for cell in lab["cells"] if cell["id"].startswith("check-")]
    text = (course.ROOT / "solutions" / f"{chapter.name}.md").read_text()
    names = [*exercise.load_chapter(chapter.name)]
    assert names == re.findall(r"{{exercise: (\w+)}}", text) and {*names} == {*asked}


def stub(*args, **kwargs):
    """What comes in and what goes out."""


JUNK = {
    "number": 3,
    "list": [1, "two", None],
    "strings": lambda *a, **k: "x",
    "lists": lambda *a, **k: [1, 2],
    "tensors": lambda *a, **k: torch.zeros(7, 1, 2),
    "first argument": lambda *a, **k: a[0] if a else 0,
    "raises": lambda *a, **k: 1 / 0,
    "class": type("Nothing", (), {}),
}


@pytest.mark.parametrize("name", EXERCISES)
def test_no_answer_breaks_a_check(name):
    """Of the junk, every third kind where each judgment trains a network, compiles, or starts processes."""
    for answer in (..., stub):
        assert evaluate(name, answer, 0).outcome == "not attempted"
    for kind in list(JUNK)[:: 1 if EXERCISES[name].seconds <= TIME_LIMIT else 3]:
        result = evaluate(name, JUNK[kind], 0)
        assert result.outcome in ("incorrect", "error", "not attempted"), f"{kind}\n{result.text}"
        assert result.judge_failed is None, f"{kind}\n{result.text}\n{result.judge_failed!r}"


def test_no_thread_of_an_answer_speaks_after_its_check(capsys):
    """Otherwise a traceback about a client that disconnected appears in the notebook."""
    late = mutant(right("project_serve")[0], ("self.reply(411", "__import__('time').sleep(1); self.reply(411"))
    assert evaluate("project_serve", late).correct
    time.sleep(2)
    assert capsys.readouterr().err == ""


def test_the_first_check_of_a_process():
    """It imports one chapter, not all of them. The libraries' own imports must not hide the steps of a loop."""
    code = """
import math, sys, torch
from torchcourse import place
place.chapter = "01_tensors"
from labcheck import evaluate
loop = lambda a, b: torch.tensor([[math.dist(p, q) for q in b.tolist()] for p in a.tolist()])
print("torchcourse_labs.ddp" in sys.modules, evaluate("pairwise_distances", loop).text)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("False") and "there is a loop" in done.stdout, done.stdout + done.stderr


def test_the_examples_of_the_guide_for_authors_are_true(monkeypatch, tmp_path, pytestconfig):
    """Both exercises of docs/authoring.md with all their rows."""
    page = (course.ROOT / "docs" / "authoring.md").read_text()
    names = ("moving_average", "rows_1", "predict_quietly", "rows_2")
    files = dict(zip(names, re.findall(r"```python\n(.*?)```", page, re.S), strict=True))
    folder = tmp_path / "guide_labs" / "slug"
    folder.mkdir(parents=True)
    (folder.parent / "__init__.py").touch()
    (folder / "__init__.py").write_text('CHAPTER = "99_slug"\nEXERCISES = ("moving_average", "predict_quietly")\n')
    for name, code in files.items():
        (folder / f"{name}.py").write_text(code.replace("torchcourse_labs", "guide_labs"))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(exercise.place, "LABS", "guide_labs")
    monkeypatch.setattr(exercise, "EXERCISES", {})
    monkeypatch.setitem(EXERCISES, "moving_average", exercise.load_chapter("99_slug")["moving_average"])
    monkeypatch.setitem(EXERCISES, "predict_quietly", exercise.EXERCISES["predict_quietly"])
    for name, file in (("moving_average", "rows_1"), ("predict_quietly", "rows_2")):
        table = importlib.import_module(f"guide_labs.slug.{file}")
        for answer in table.RIGHT:
            test_right_answers_are_right(name, answer, pytestconfig)
        for key, answers in table.WRONG.items():
            for answer in answers:
                test_wrong_answers_get_their_sentence(name, key, answer, pytestconfig)
        said = exercise.EXERCISES[name].sentences.keys() - {"deadlock", "unequal_tensors"}
        assert {key for key in table.WRONG if key} | {"sum", "no_overlap"} >= said
