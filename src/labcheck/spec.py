"""The judge of an exercise whose answer is a function of its inputs: `Spec`.

    Spec(
        draw=lambda rng: [(rng.size(20, 60), rng.size(3, 7)) for _ in range(3)],
        solution=lambda n, kernel: n - kernel + 1,
        says=[
            looks_like("off_by_one", "The first place counts, too.", lambda n, kernel: n - kernel),
            looks_like("no_overlap", "Places may overlap.", lambda n, kernel: n // kernel),
        ],
    )

Inputs are drawn, the answer is called with them, and the results are compared with those of the solution. What differs
is said by the first sentence that fits, or else in general: the shape, the dtype, the first value that is not right.
"""

from __future__ import annotations

import contextlib
import inspect
import io
import itertools
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from labcheck.answer import call
from labcheck.compare import near, same
from labcheck.inputs import Inputs
from labcheck.verdict import UNSAID, AnswerRaised, Incorrect, not_none

TRIES = 100  # draws until each known wrong function differs from the solution
MARGIN = 3  # tolerances by which it differs, so that rounding cannot turn one into the other


class looks_like:
    """A sentence for answers that give the same results as one of these wrong functions of the inputs.

    key: what the misconception is called where its sentence is not at hand
    look: where to look
    """

    def __init__(self, key: str, sentence: str, *wrong: Callable, look: str | None = None) -> None:
        self.key, self.sentence, self.wrong, self.look = key, sentence, wrong, look


class raises_like:
    """A sentence for answers that raise an error whose message contains one of these words.

    A judge that is not a Spec observes inside of it: `with raises_like(…): seen = observe(…)`.
    """

    def __init__(self, key: str, sentence: str, *words: str, look: str | None = None) -> None:
        self.key, self.sentence, self.words, self.look = key, sentence, words, look

    def fits(self, problem: BaseException | None) -> bool:
        return isinstance(problem, AnswerRaised) and any(word in str(problem) for word in self.words)

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: Any, problem: BaseException | None, __: Any) -> None:
        if self.fits(problem):
            raise Incorrect(self.sentence, UNSAID, str(problem).splitlines()[0], self.look, self.key)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """The judge of a function of its inputs. Called with an answer and random inputs, it judges the answer.

    draw: the cases, tuples of inputs, edge cases included
    solution: the reference, a function of the inputs
    says: the sentences for wrong results, the most frequent first
    explain: `explain(yours, expected, *inputs)` says more with `wrong_if`, in the first case that is wrong, if the two
        are of one kind (two tensors, say) and no sentence of `says` fits
    afterward: `afterward(answer, *cases)` looks at how a right answer came about, with `observe` and `wrong_if`
    dtype, rtol, atol: as in `same`
    look: where to look if no sentence fits
    """

    draw: Callable[[Inputs], Sequence[tuple]]
    solution: Callable
    says: Sequence[looks_like | raises_like] = ()
    explain: Callable[..., None] | None = None
    afterward: Callable[..., None] | None = None
    dtype: bool = True
    rtol: float = 1e-4
    atol: float = 1e-5
    look: str | None = None

    def __call__(self, answer: Any, rng: Inputs) -> None:
        cases, expected, wrong = self.prepare(rng)
        yours = [self.result(answer, case) for case in cases]
        first = next((i for i in range(len(cases)) if self.problem(yours[i], expected[i], cases[i])), None)
        if first is None:
            if self.afterward:
                self.afterward(answer, *cases)
            return
        problem = self.problem(yours[first], expected[first], cases[first])
        for sentence in self.says:
            if isinstance(sentence, raises_like):
                fits = sentence.fits(problem)
            else:
                fits = any(self.agree(yours, results, expected) for results in wrong[sentence.key])
            if fits:
                details = UNSAID, str(problem)
                if isinstance(problem, Incorrect) and problem.expected is not None:
                    details = f"{problem.expected}{self.short_inputs(cases[first])}", problem.yours
                raise Incorrect(sentence.sentence, *details, sentence.look, sentence.key)
        if self.explain and _kind(yours[first]) == _kind(expected[first]):
            self.explain(yours[first], expected[first], *cases[first])
        raise problem

    def prepare(self, rng: Inputs) -> tuple[list[tuple], list, dict[str, list[list]]]:
        """Cases, the solution's results, and by key those of the wrong functions: no two keys have the same."""
        known = [each for each in self.says if isinstance(each, looks_like)]
        for _ in range(TRIES):
            cases = [tuple(case) for case in self.draw(rng)]
            with _unseen():
                expected = [self.result(self.solution, case) for case in cases]
                wrong = {
                    each.key: [[self.result(function, case) for case in cases] for function in each.wrong]
                    for each in known
                }
            named = [("the solution", expected), *((key, results) for key, group in wrong.items() for results in group)]
            pairs = ((a, b) for a, b in itertools.combinations(named, 2) if a[0] != b[0])
            alike = next(((a[0], b[0]) for a, b in pairs if self.all_near(b[1], a[1], MARGIN, self.dtype)), None)
            if not alike:
                return cases, expected, wrong
        raise AssertionError(f"With these inputs, the results of {alike[0]} and {alike[1]} are the same. Draw others.")

    @staticmethod
    def result(function: Any, case: tuple) -> Any:
        """What a function returns, or the AnswerRaised that it ends with."""
        try:
            return call(function, *case, may_return_none=True)
        except AnswerRaised as raised:
            return raised

    def agree(self, yours: list, wrong: list, expected: list) -> bool:
        """Tell whether results are those of a wrong function, up to rounding.

        A dtype counts only where nothing else is wrong: an answer may divide by 256 and return float64.
        """
        return self.all_near(yours, wrong, dtype=self.dtype and self.all_near(wrong, expected))

    def all_near(self, one: list, other: list, margin: float = 1, dtype: bool = False) -> bool:
        """Tell whether two lists of results are the same up to rounding; two errors are if their types are.

        Lists of nothing but errors never are: a type alone says too little.
        """

        def alike(a: Any, b: Any) -> bool:
            if isinstance(a, AnswerRaised) and isinstance(b, AnswerRaised):
                return type(a.error).__name__ == type(b.error).__name__
            return near(a, b, margin * self.rtol, margin * self.atol, dtype)

        return not all(isinstance(each, AnswerRaised) for each in other) and all(map(alike, one, other))

    def problem(self, yours: Any, expected: Any, case: tuple) -> Incorrect | AnswerRaised | None:
        """What there is to say about a result in general; None if it is right."""
        if isinstance(yours, AnswerRaised):
            return yours
        try:
            not_none(yours)
            what = f"Your result{self.short_inputs(case)}"
            same(yours, expected, what, self.dtype, self.rtol, self.atol, self.look)
        except Incorrect as problem:
            return problem
        return None

    def short_inputs(self, case: tuple) -> str:
        """The inputs of a case that are short enough for a sentence: " for n = 3, kernel = 2"."""
        bound = inspect.signature(self.solution).bind(*case)
        plain = int | float | str | tuple | list | torch.dtype
        values = {name: repr(value) for name, value in bound.arguments.items() if isinstance(value, plain)}
        short = [f"{name} = {text}" for name, text in values.items() if len(text) < 60]
        return " for " + ", ".join(short) if short else ""


def _kind(value: Any) -> type:
    """The type of a value; one for all tensors, one for all numbers, one for all sequences."""
    kinds = (torch.Tensor, bool, int | float, tuple | list)
    return next((kind for kind in kinds if isinstance(value, kind)), type(value))


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Solutions, right or wrong, may warn and print, but not in a student's notebook."""
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        yield
