"""An exercise as data: what is drawn, what is right, and what people get wrong.

    Spec(
        draw=lambda new: [(new.size(20, 60), new.size(3, 7)) for _ in range(3)],
        solution=lambda n, kernel: n - kernel + 1,
        mistakes='''
            = n - kernel
                The first place counts, too: {kernel} of {n} fit {expected} times.
            = n // kernel
                Places may overlap.
        ''',
        also_right=[lambda n, kernel: len(range(n)[kernel - 1 :])],
    )

A `Mistake` is a sentence and the wrong solutions that it is about; `altered` reads tables of them. The student reads
the sentence only if the answer gives the same result as a wrong solution in every case, and inputs are drawn until no
two sentences fit the same results. Each mistake is its own test: tests/test_specs.py runs all right and all wrong
solutions as answers.

A Spec never looks into an answer. It calls it and judges the numbers, strings and tensors that come back, so the answer may live in another process. docs/authoring.md shows how to write one.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import inspect
import io
import re
import string
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from inspect import Parameter
from typing import Any, TypeAlias

import numpy as np
import torch

from labcheck import ranks
from labcheck.answer import attempted, call, observe
from labcheck.compare import near, same
from labcheck.exercise import EXERCISES, Exercise
from labcheck.inputs import Inputs
from labcheck.show import show
from labcheck.verdict import UNSAID, AnswerRaised, Incorrect, not_none
from torchcourse_labs._mistakes import Habit, Mistake, When, altered, changed

__all__ = ["Asking", "Habit", "Mistake", "Raised", "Spec", "Words", "altered", "changed", "key", "says"]

# A wrong solution: its mistake, its results, and whether they differ from the right ones in type or dtype only.
Known: TypeAlias = tuple[Mistake, list, bool]
MARGIN = 3  # wrong solutions differ by this many tolerances, so that rounding cannot turn one into another


@dataclass(frozen=True)
class Raised:
    """The result of a call that raised."""

    error: AnswerRaised

    @property
    def message(self) -> str:
        """What the error says."""
        return str(self.error)

    @property
    def said(self) -> tuple[str, list[str]]:
        """What the error says: its words, and its numbers in any order, since either of two sizes may come first."""
        number = r"-?\d+(?:\.\d+)?"
        return re.sub(number, "#", self.message), sorted(re.findall(number, self.message))


@dataclass(frozen=True, kw_only=True)
class Declared(Exercise):
    """An exercise whose sentences are in its Spec."""

    @property
    def sentences(self) -> dict[str, str]:
        return getattr(self.judge, "misconceptions", {})


def chapter(chapter_name: str) -> Callable[..., Any]:
    """What declares the exercises of a chapter that are all in one file: with `spec=Spec(…)`, or as a decorator."""

    def exercise(name: str, *, spec: Spec | None = None, **said: Any) -> Any:
        def declare(judge: Callable) -> Callable:
            EXERCISES[name] = Declared(name=name, chapter=chapter_name, judge=judge, **said)
            return judge

        return declare(spec) if spec else declare

    return exercise


def measure(harness: Callable[..., dict], functions: int = 1, world_size: int = 2) -> Callable[..., dict]:
    """A Spec's `measure`: what `harness(answer, *inputs)` returns on each rank, in one dict."""

    def measure(ask: Any, *inputs: Any) -> dict:
        seen = ask.observe(ranks._on_ranks, harness, functions, world_size, inputs)
        if isinstance(seen, dict):
            return seen
        names = list(seen[0])
        each = {f"{name} on rank {r}": one[name] for name in names if name[0].isupper() for r, one in enumerate(seen)}
        return each | {name: [one[name] for one in seen] for name in names if not name[0].isupper()}

    measure.__signature__ = inspect.signature(harness)
    return measure


def says(yours: Any, *words: str) -> bool:
    """Tell whether a result is an error whose message contains one of these words. For `when`."""
    return isinstance(yours, Raised) and any(word in yours.message for word in words)


@dataclass(frozen=True, kw_only=True)
class Spec:
    """One exercise whose answer is a value or a function of its inputs. Called with an answer, it judges it."""

    draw: Callable[[Inputs], Sequence[tuple]]  # the cases: tuples of inputs, edge cases included
    solution: Any
    mistakes: str | Sequence[str | Mistake] = ()  # or tables of them, see `altered`; a list of mistakes is made of it
    habits: Sequence[Habit] = ()
    also_right: Sequence[Callable] = ()  # other right answers, run as tests
    # Judge what `measure(ask, *inputs)` returns instead of the result. Of a dict, the entries whose names begin with a
    # capital letter are compared, each under its name ("The loss"); the others are for `when` and for the sentences.
    measure: Callable[..., Any] | None = None
    # Judge what `probe(answer, *inputs)` sees of the answer, as plain data. It runs where the answer is, and is what
    # `measure` asks if there are both. The answer may then be a class or several functions. All of a dict is compared.
    probe: Callable[..., Any] | None = None
    finds: Any = UNSAID  # the result of every right answer, if inputs don't matter: no check runs the solution
    free: bool = False  # many results are right: all but those that a mistake's `when` names
    takes_value: bool = False  # the answer is a value, not a function; the solution and the mistakes return theirs
    dtype: bool = True  # False: any real dtype is right
    rtol: float = 1e-4
    atol: float = 1e-5
    by_case: bool = False  # sentences are about one case: a `when` needs to hold in the first wrong case only
    # Any inputs tell the mistakes apart (a test tries some): slow wrong solutions run for wrong answers only.
    any_inputs: bool = False
    look: str | None = None  # where to look if the values are wrong and no mistake matches

    def __post_init__(self) -> None:
        written = [self.mistakes] if isinstance(self.mistakes, str) else self.mistakes
        tables = (altered(self.solution, each) if isinstance(each, str) else [each] for each in written)
        object.__setattr__(self, "mistakes", [self.about_inputs(mistake) for table in tables for mistake in table])

    def about_inputs(self, mistake: Mistake) -> Mistake:
        """The mistake, with a function as its `when`, if it has one."""
        if not isinstance(mistake.when, When):
            return mistake
        return Mistake(mistake.problem, *mistake.wrong, look=mistake.look, when=mistake.when.of(self.inputs))

    def __call__(self, answer: Any, new: Inputs) -> None:
        cases, right, known = self.prepare(new)
        ask = partial(observe, answer, attempted) if self.takes_value else Asking(answer, self.probe)
        yours = []
        wrong_cases = []
        for i, case in enumerate(cases):
            yours += self.results(ask, [case])
            if self.is_right(yours[i], right[i], case):
                continue
            wrong_cases.append(i)
            # The sentence is about this case, unless the answer goes on as a known wrong solution does.
            if self.by_case and not any(self.agree(yours, wrong[: i + 1], kind) for _, wrong, kind in known()):
                break
        if wrong_cases:
            first = wrong_cases[0]
            for mistake, wrong, by_kind in known():
                if self.agree(yours, wrong[: len(yours)], by_kind):
                    shown = next((i for i in wrong_cases if not self.near(yours[i], right[i])), first)
                    raise self.told(mistake, yours[shown], right[shown], cases[shown])
            deciders = [[first]] if self.by_case else [wrong_cases]
            if self.free or (self.watches and isinstance(right[first], dict)):
                deciders.append([first])  # each case may show its own mistake, and the names of entries say little
            for deciding in deciders:
                for mistake in self.mistakes:
                    if all(_holds(mistake.when, yours[i], right[i], *cases[i]) for i in deciding):
                        raise self.told(mistake, yours[first], right[first], cases[first])
            if self.free and not isinstance(yours[first], Raised):
                raise Incorrect("Your answer is of a kind that this check cannot work with.", yours=yours[first])
            self.compare(yours[first], right[first], cases[first])
        for habit in self.habits:
            if habit.when(*(observe(answer, habit.probe, *case) for case in cases)):
                raise Incorrect(habit.problem, look=habit.look, misconception=key(habit.problem))

    @property
    def misconceptions(self) -> dict[str, str]:
        """Each misconception by its key, as a sentence about no answer in particular: "…" where values would be."""
        mistakes = {key(mistake.problem): without_values(mistake.problem) for mistake in self.mistakes}
        return mistakes | {key(habit.problem): habit.problem for habit in self.habits}

    @property
    def watches(self) -> bool:
        """Whether something else is judged than the result of a call."""
        return bool(self.measure or self.probe)

    def prepare(self, new: Inputs, tries: int = 200) -> tuple[list[tuple], list, Callable[[], list[Known]]]:
        """Draw cases until each wrong solution differs from the solution and from those with another sentence.

        Returns the cases, the right results, and a function that returns those of the wrong solutions.
        """
        for _ in range(tries):
            cases = [tuple(case) for case in self.draw(new)]
            with _unseen():
                if self.finds is UNSAID:
                    right = self.results(Asking(self.solution, self.probe), cases)
                else:
                    right = [self.finds] * len(cases)
            known = functools.cache(partial(self.known, cases, right))
            if self.any_inputs or not (confused := self.confused(right, known())):
                return cases, right, known
        raise AssertionError(f"No inputs tell apart {confused}. Draw other inputs, or give the mistake a `when`.")

    def known(self, cases: list[tuple], right: list) -> list[Known]:
        """The results of each wrong solution that is recognized by them."""
        with _unseen():
            found = []
            for mistake in self.mistakes:
                for function in () if mistake.when else mistake.wrong:
                    wrong = self.results(Asking(function, self.probe), cases)
                    found.append((mistake, wrong, self.agree(wrong, right, margin=MARGIN)))
            return found

    def confused(self, right: list, known: list[Known]) -> str | None:
        """The first two that have the same results, in words; None if there are none."""
        for i, (mistake, wrong, by_kind) in enumerate(known):
            if by_kind and self.agree(wrong, right, by_kind, MARGIN):
                return f'the solution and "{mistake.problem}"'
            for other, results, other_by_kind in known[:i]:
                comparable = other.problem != mistake.problem and other_by_kind == by_kind
                if comparable and self.agree(wrong, results, by_kind, MARGIN):
                    return f'"{other.problem}" and "{mistake.problem}"'
        return None

    def results(self, ask: Callable, cases: list[tuple]) -> list:
        """What comes back in each case, or what was raised."""
        found = []
        for case in cases:
            try:
                found.append(self.measure(ask, *case) if self.measure else ask(*case))
            except AnswerRaised as raised:
                found.append(Raised(raised))
        return found

    def agree(self, one: list, other: list, by_kind: bool = False, margin: float = 1) -> bool:
        """Tell whether two lists of results are the same up to rounding; by_kind: types and dtypes count, too."""
        pairs = zip(one, other, strict=True)
        return all(self.near(a, b, margin) and not (by_kind and _kind(a) != _kind(b)) for a, b in pairs)

    def near(self, a: Any, b: Any, margin: float = 1) -> bool:
        """Tell whether two results have the same values. Two errors are the same if their messages are."""
        if isinstance(a, Raised) and isinstance(b, Raised):
            return a.said == b.said
        if isinstance(b, torch.dtype):
            return a is b
        if isinstance(b, dict):
            names = self.compared(b)
            complete = isinstance(a, dict) and {*names} <= a.keys() and (self.by_name or a.keys() == b.keys())
            return complete and all(self.near(a[name], b[name], margin) for name in names)
        if isinstance(b, tuple | list):
            sequences = isinstance(a, tuple | list) and len(a) == len(b)
            return sequences and all(self.near(x, y, margin) for x, y in zip(a, b, strict=True))
        if isinstance(b, bool) or not isinstance(b, torch.Tensor | int | float):
            return near(a, b)
        if isinstance(a, torch.Tensor) and (a.dtype == torch.bool) != (_kind(b) == torch.bool):
            return False  # True is not 1
        try:
            same(a, b, dtype=False, rtol=margin * self.rtol, atol=margin * self.atol)
        except Exception:  # values that cannot be compared are not the same
            return False
        return True

    def compared(self, result: dict) -> list:
        """The names of the entries that are compared."""
        return [name for name in result if not self.by_name or name[:1].isupper()]

    @property
    def by_name(self) -> bool:
        """Whether only some entries of a dict are compared."""
        return self.measure is not None and self.probe is None

    def is_right(self, yours: Any, right: Any, case: tuple) -> bool:
        """Tell whether a result passes."""
        if self.free:
            named = any(_holds(m.when, yours, right, *case, unknown=True) for m in self.mistakes)
            return not isinstance(yours, Raised) and not named
        try:
            self.compare(yours, right, case)
        except (Incorrect, AnswerRaised):
            return False
        return True

    def compare(self, yours: Any, right: Any, case: tuple) -> None:
        """Raise what there is to say about a wrong result if no mistake matches."""
        if isinstance(yours, Raised):
            raise yours.error
        not_none(yours)
        if isinstance(right, dict) and self.watches:
            names = self.compared(right)
            if not isinstance(yours, dict) or not {*names} <= yours.keys():
                raise Incorrect("Your answer does not do what the exercise asks for.", show(right), show(yours))
            parts = [(str(name), yours[name], right[name]) for name in names]
        elif isinstance(right, tuple | list) and any(isinstance(part, torch.Tensor) for part in right):
            if not isinstance(yours, tuple | list) or len(yours) != len(right):
                raise Incorrect(f"Your function should return {len(right)} values.", show(right), show(yours))
            parts = [(f"Value {i} of your result", *pair) for i, pair in enumerate(zip(yours, right, strict=True), 1)]
        elif isinstance(right, dict) and isinstance(yours, dict) and yours.keys() == right.keys():
            parts = [(f'"{name}" in your result', yours[name], right[name]) for name in right]
        else:
            parts = [("Your result", yours, right)]
        for what, mine, expected in parts:
            tensors = isinstance(mine, torch.Tensor) and isinstance(expected, torch.Tensor)
            strict = self.dtype or (tensors and mine.is_complex())
            form_differs = tensors and (mine.shape != expected.shape or (strict and mine.dtype != expected.dtype))
            look = None if form_differs else self.look
            what = f"{what}{self.short_inputs(case)}" if self.shows_inputs else what
            if isinstance(expected, dict):  # it may hold tensors
                if not self.near(mine, expected):
                    raise Incorrect(f"{what} is not right.", show(expected), show(mine))
                continue
            same(mine, expected, what, dtype=strict, rtol=self.rtol, atol=self.atol, look=look)
            numbers = {int: int | np.integer, float: int | float}.get(type(expected))
            if strict and numbers and not isinstance(mine, numbers):
                wanted = f"a Python {type(expected).__name__}"
                raise Incorrect(f"{what} has the right value, but another type.", wanted, show(mine))

    @property
    def shows_inputs(self) -> bool:
        """Whether the inputs of a case are those of the answer: a probe or a measure may have others."""
        if self.probe or not self.measure:
            return not self.probe
        names = [*inspect.signature(self.solution).parameters] if inspect.isfunction(self.solution) else None
        return [*inspect.signature(self.measure).parameters][1:] == names

    def told(self, mistake: Mistake, yours: Any, right: Any, case: tuple) -> Incorrect:
        """The mistake's sentence about one case."""
        values = {**self.named(case), "expected": right, "yours": yours}
        problem, look = (text and Words().format(text, **values) for text in (mistake.problem, mistake.look))
        told = Incorrect(problem, look=look, misconception=key(mistake.problem))
        plain = not self.measure and not isinstance(right, dict)
        if plain and "{expected" not in mistake.problem and "{yours" not in mistake.problem:
            try:
                self.compare(yours, right, case)
            except Incorrect as details:
                told.expected, told.yours = details.expected, details.yours
            except AnswerRaised as raised:
                told.yours = str(raised)
        return told

    @property
    def inputs(self) -> list[Parameter]:
        """The names of the inputs: those of what gets them, which is the solution if nothing else is judged."""
        parameters = [*inspect.signature(self.measure or self.probe or self.solution).parameters.values()]
        return parameters[1:] if self.watches else parameters

    def named(self, case: tuple) -> dict[str, Any]:
        """The inputs of a case by name, defaults included."""
        bound = inspect.Signature(self.inputs).bind(*case)
        bound.apply_defaults()
        return dict(bound.arguments)

    def short_inputs(self, case: tuple) -> str:
        """The inputs of a case that are short enough for a sentence: " for n = 3, kernel = 2"."""
        plain = int | float | str | tuple | list | torch.dtype
        values = {name: repr(value) for name, value in self.named(case).items() if isinstance(value, plain)}
        short = [f"{name} = {text}" for name, text in values.items() if len(text) < 60]
        return " for " + ", ".join(short) if short else ""


class Words(string.Formatter):
    """Fills in a sentence: values appear as the checks show them, not in full."""

    def format_field(self, value: Any, format_spec: str) -> str:
        value = tuple(value) if isinstance(value, torch.Size) else value
        return format(value, format_spec) if format_spec or isinstance(value, str) else show(value)


def key(problem: str) -> str:
    """What a misconception is called where its sentence is not at hand: it changes with the sentence only."""
    return hashlib.blake2s(problem.encode(), digest_size=4).hexdigest()


def without_values(problem: str) -> str:
    """The sentence of a mistake without the values of an answer."""
    parts = string.Formatter().parse(problem)
    return "".join(text + ("" if field is None else "…") for text, field, *_ in parts).replace("….", "…")


class Asking:
    """The answer for `measure`: `ask(*inputs)` calls it, or its probe; `ask.observe(probe, *inputs)` watches it."""

    def __init__(self, answer: Any, probe: Callable | None = None) -> None:
        self.answer, self.probe = answer, probe

    def __call__(self, *inputs: Any) -> Any:
        if self.probe:
            return self.observe(self.probe, *inputs)
        return call(self.answer, *inputs, may_return_none=True)

    def observe(self, probe: Callable, *inputs: Any) -> Any:
        """What `probe(answer, *inputs)` returns: plain data. It runs where the answer is."""
        return observe(self.answer, probe, *inputs)


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """The solution, right or wrong, may warn and print, but not in a student's notebook."""
    with warnings.catch_warnings(action="ignore"), contextlib.redirect_stdout(io.StringIO()):
        yield


def _kind(value: Any) -> Any:
    return value.dtype if isinstance(value, torch.Tensor) else type(value)


def _holds(when: Callable | None, *args: Any, unknown: bool = False) -> bool:
    """Tell whether a condition holds. unknown: what to say if it cannot be evaluated, say on a string."""
    try:
        return when is not None and bool(when(*args))
    except Exception:
        return unknown
