"""Every exercise judges its rows: right answers are right, and each sentence about a misconception has an answer.

The rows are in tests/answers/<chapter>/<exercise>.py:

    RIGHT = [answers]             beside the exercise's own `solution`; as different from one another as can be
    WRONG = {"key": [answers]}    by the key of the sentence that answers them; None for those that no sentence names

On each run, one wrong answer of each sentence is judged; with `-m weekly`, the others, too.
"""

import tempfile

import pytest
from conftest import made_here
from support.answers import EXERCISES, module, rows, wrong

from labcheck import evaluate
from labcheck.exercise import TIME_LIMIT, sentences_of

RIGHT, WRONG = rows()
MOST = 10  # sentences of an exercise


def seeds(name: str) -> range:
    """Several where a verdict takes milliseconds; one where it trains, compiles or starts processes."""
    return range(3 if EXERCISES[name].seconds <= TIME_LIMIT else 1)


@pytest.mark.parametrize(("name", "answer"), RIGHT)
def test_right_answers_are_right(name, answer):
    for seed in seeds(name):
        result = made_here(evaluate(name, answer, seed))
        assert result.correct, f"seed {seed}\n{result.text}\n{result.judge_failed!r}"


@pytest.mark.parametrize(("name", "key", "answer"), WRONG)
def test_wrong_answers_get_their_sentence(name, key, answer):
    for seed in seeds(name):
        result = made_here(evaluate(name, answer, seed))
        assert result.judge_failed is None, f"seed {seed}\n{result.text}\n{result.judge_failed!r}"
        assert result.outcome in ("incorrect", "error") and result.misconception == key, f"seed {seed}\n{result.text}"
        assert tempfile.gettempdir() not in result.text, f"this sentence is another one in the next run: {result.text}"


@pytest.mark.parametrize("name", EXERCISES)
def test_each_sentence_has_an_answer_and_there_are_few(name):
    own = {*sentences_of(module(name).__name__)}
    assert own <= wrong(name).keys() and len(own) <= MOST
