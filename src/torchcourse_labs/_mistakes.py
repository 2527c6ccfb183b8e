"""Mistakes: wrong solutions with the sentence about each, written one by one or as a table."""

from __future__ import annotations

import ast
import inspect
import itertools
import linecache
import re
import symtable
import sys
import textwrap
from collections.abc import Callable, Iterable
from functools import cache
from inspect import Parameter
from typing import Any


class Mistake:
    """A misconception: the sentence for it, and the wrong solutions that show it.

    problem, look: may contain {expected}, {yours} and the names of the inputs; "{images.shape[0]}" works, too.
    wrong: functions of the same inputs as the solution. They may raise or return anything: an error is a result, too.
        If the values are right, the type and the dtype are compared as well.
    when: for a whole class of wrong results: the sentence is for answers with `when(yours, expected, *inputs)` in each
        case that is not right. A `when` that raises doesn't hold. Here `wrong` are only examples, for the tests.
    """

    def __init__(
        self, problem: str, *wrong: Callable, look: str | None = None, when: Callable[..., Any] | When | None = None
    ) -> None:
        if not wrong:
            raise ValueError(f"A mistake needs a wrong solution: it is the test of its sentence ({problem}).")
        self.problem, self.wrong, self.look, self.when = problem, wrong, look, when


class Habit:
    """A way to work that the exercise rules out although the result is right: a loop, a call that does it all.

    wrong: answers with this habit, for the tests; every result of theirs is right.
    probe: `probe(answer, *inputs)` calls the answer and returns what it saw as plain data; it runs where the answer is.
    when: `when(*seen)`, what the probe saw in each case.
    """

    def __init__(
        self, problem: str, *wrong: Callable, probe: Callable, when: Callable[..., bool], look: str | None = None
    ) -> None:
        self.problem, self.wrong, self.probe, self.when, self.look = problem, wrong, probe, when, look


@cache  # for a class, Python parses the whole file again each time
def _source(solution: Callable) -> str:
    return textwrap.dedent(inspect.getsource(solution))


def changed(solution: Any, *places: tuple[str, str]) -> Any:
    """The solution, a function or a class, with some places of its source replaced: how most mistakes are made.

        changed(train_step, ("optimizer.zero_grad()", "pass"))

    solution: of a tuple of functions, the one is changed that has the place
    places: pairs (old, new). Each old text must occur exactly once, so that a row cannot silently change nothing.
    """
    if isinstance(solution, tuple):
        return _one_changed(solution, places)
    source = _source(solution)
    for old, new in places:
        if source.count(old) != 1:
            raise ValueError(f"{old!r} occurs {source.count(old)} times in {solution.__name__}; it must be there once.")
        source = source.replace(old, new)
    names: dict[str, Any] = {}
    # The file is the solution's: what follows the lines of an answer (probes.steps) then follows these as well.
    code = compile(source, inspect.getfile(solution), "exec", dont_inherit=True)
    exec(code, vars(sys.modules[solution.__module__]), names)
    return names[solution.__name__]


def _one_changed(solutions: tuple, places: Iterable[tuple[str, str]]) -> tuple:
    of_each: dict[int, list] = {}
    where = 0
    for old, new in places:
        owners = [i for i, part in enumerate(solutions) if callable(part) and old in _source(part)]
        if len(owners) > 1:
            raise ValueError(f"{old!r} occurs in {len(owners)} functions of the solution; it must be in one of them.")
        where = owners[0] if owners else where  # a place that the one before it has made
        of_each.setdefault(where, []).append((old, new))
    return tuple(changed(part, *of_each[i]) if i in of_each else part for i, part in enumerate(solutions))


def altered(solution: Any, table: str) -> list[Mistake]:
    r"""Mistakes as a table: wrong solutions, and below them the sentence about them.

        altered(places, r'''
            - kernel → - kernel - 1 || - kernel // 2
            - kernel → + kernel && return n → return -n
                The first place counts, too: {kernel} of {n} fit {expected} times.
                look: add 1 after the division
            = n // kernel
                Places may overlap.
            _as_list, *_guessing("n", "kernel"), lambda *given: {}
                One number is asked for, at most {LIMIT}. Yours is {yours}.
                when: not isinstance(yours, int)
        ''')

    A line for each wrong solution, or for several of them:
        old → new: the solution, with a place of its source changed. " && " is between several places, " || " between
            several new texts of a place, which make several wrong solutions. "\n" is a line's end.
        = expression: a function that returns this, made of the solution's parameters.
        anything else: the wrong solutions themselves, as you would write them in a list.
    Indented by four, the sentence. Then perhaps, each on a line of its own, "look: " (where to look) and "when: ",
        an expression made of `yours`, `expected`, and the inputs, by their names (or a function of all of them). See
        `Mistake`. In both texts, {LIMIT} is a constant of the module, which is filled in at once.
    A line goes on in the next one, which is indented; below a wrong solution, by eight.

    Names are those of the solution's module. So is the file: a traceback shows the line of the table.
    """
    return _Table(solution, table).mistakes()


class TableError(ValueError):
    """What is wrong with a table of mistakes, and in which line."""


class _Table:
    def __init__(self, solution: Any, text: str) -> None:
        self.solution, self.text = solution, text
        first = next(part for part in (solution if isinstance(solution, tuple) else (solution,)) if callable(part))
        self.names = getattr(first, "__globals__", None) or vars(sys.modules[first.__module__])
        self.file = self.names.get("__file__", "a table")
        before, found, _ = "".join(linecache.getlines(self.file)).partition(text)
        self.line = before.count("\n") + 1 if found else 1  # an r"" or an f"" may hide it

    def error(self, line: int, problem: str) -> TableError:
        return TableError(f"{self.file}, line {line}: {problem}")

    def mistakes(self) -> list[Mistake]:
        found: list[Mistake] = []
        wrong: list[tuple[int, str]] = []
        told: list[tuple[int, str]] = []
        for number, line in enumerate(textwrap.dedent(self.text).splitlines(), self.line):
            indent, words = len(line) - len(line.lstrip()), line.strip()
            if not words:
                continue
            if indent == 0:
                if told:
                    found.append(self.mistake(wrong, told))
                    wrong, told = [], []
                wrong.append((number, words))
            elif wrong and not told and indent >= 8:
                wrong[-1] = wrong[-1][0], f"{wrong[-1][1]} {words}"
            elif told and not words.startswith(("look: ", "when: ")):
                told[-1] = told[-1][0], f"{told[-1][1]} {words}"
            else:
                told.append((number, words))
        return [*found, self.mistake(wrong, told)]

    def mistake(self, wrong: list[tuple[int, str]], told: list[tuple[int, str]]) -> Mistake:
        texts = {words[:4] if words.startswith(("look: ", "when: ")) else "": (line, words) for line, words in told}
        if not wrong or "" not in texts or len(texts) < len(told):
            line, words = (wrong or told or [(self.line, "")])[-1]
            raise self.error(line, f"A sentence is missing, or is there twice, for {words!r}. Indent it by four.")
        for line, words in texts.values():
            if " look: " in words or " when: " in words:
                raise self.error(line, f'"look:" and "when:" begin a line of their own, unlike here: {words!r}.')
        look, when = texts.get("look"), texts.get("when")
        return Mistake(
            self.filled(*texts[""]),
            *(solution for line, words in wrong for solution in self.solutions(line, words)),
            look=look and self.filled(look[0], look[1].removeprefix("look: ")),
            when=when and When(self, when[0], when[1].removeprefix("when: ")),
        )

    def filled(self, line: int, sentence: str) -> str:
        """The sentence with the module's constants."""

        def constant(match: re.Match) -> str:
            if match[1] not in self.names:
                raise self.error(line, f"{match[0]} is not a constant of the module: is it spelled correctly?")
            return format(self.names[match[1]], match[2] or "")

        return re.sub(r"\{(_?[A-Z][A-Z0-9_]*)(?::([^{}]*))?\}", constant, sentence)

    def solutions(self, line: int, words: str) -> list[Callable]:
        """The wrong solutions of a line."""
        if " →" in words:
            places = []
            for place in words.replace("\\n", "\n").split(" && "):
                old, arrow, new = place.partition(" →")
                if not arrow:
                    raise self.error(line, f'Between " && ", each place needs "old → new", unlike {place!r}.')
                places.append([(old, each) for each in new.removeprefix(" ").split(" || ")])
            try:
                return [changed(self.solution, *each) for each in itertools.product(*places)]
            except ValueError as problem:
                raise self.error(line, str(problem)) from None
        if words.startswith("= "):
            return [self.function(line, words[2:], inspect.signature(self.solution).parameters.values())]
        return self.value(line, f"[{words}]")

    def function(self, line: int, expression: str, parameters: Iterable[Parameter]) -> Callable:
        """The function that returns this expression."""
        parameters = [each.replace(annotation=Parameter.empty) for each in parameters]
        names = inspect.Signature([each.replace(default=Parameter.empty) for each in parameters])
        function = self.value(line, f"lambda {str(names)[1:-1]}: {expression}")
        function.__defaults__ = tuple(each.default for each in parameters if each.default is not each.empty) or None
        return function

    def value(self, line: int, code: str) -> Any:
        """What the code gives in the solution's module, as if it were in its file, on this line."""
        try:
            tree = ast.parse(code, mode="eval")
        except SyntaxError as problem:
            raise self.error(line, f"This is not an expression ({problem.msg}): {code}") from None
        known = self.names.keys() | vars(sys.modules["builtins"])
        if unknown := sorted(_globals(symtable.symtable(code, self.file, "eval")) - known):
            raise self.error(line, f"{', '.join(unknown)} is neither an input nor a name of the module: {code}")
        return eval(compile(ast.increment_lineno(tree, line - 1), self.file, "eval"), self.names)


def _globals(scope: symtable.SymbolTable) -> set[str]:
    """The global names that code uses."""
    own = {symbol.get_name() for symbol in scope.get_symbols() if symbol.is_global()}
    return own.union(*map(_globals, scope.get_children()))


class When:
    """The `when` of a table. It becomes a function where the names of the inputs are known, in a Spec."""

    def __init__(self, table: _Table, line: int, expression: str) -> None:
        self.table, self.line, self.expression = table, line, expression

    def of(self, inputs: Iterable[Parameter]) -> Callable[..., Any]:
        """The function of yours, expected, and these inputs."""
        both = [Parameter(name, Parameter.POSITIONAL_OR_KEYWORD) for name in ("yours", "expected")]
        value = self.table.function(self.line, self.expression, [*both, *inputs])

        def when(*args: Any) -> Any:
            holds = value(*args)
            return holds(*args) if callable(holds) else holds

        return when
