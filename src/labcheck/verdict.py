"""What a judge says: the exceptions that become the outcome of a check, and `wrong_if`, which most judges use."""

from __future__ import annotations

from typing import Any

from labcheck.show import show

UNSAID = object()  # tells "nothing to say" from the value None


class Incorrect(Exception):
    """The answer is wrong: `problem` says how, the rest what was expected, what came, and where to look.

    misconception: its key in `Exercise.sentences`, if it is a known one
    """

    def __init__(
        self,
        problem: str,
        expected: Any = UNSAID,
        yours: Any = UNSAID,
        look: str | None = None,
        misconception: str | None = None,
    ) -> None:
        super().__init__(problem)
        self.problem, self.look, self.misconception = problem, look, misconception
        self.expected, self.yours = (
            None if value is UNSAID else value if isinstance(value, str) else show(value) for value in (expected, yours)
        )


class NotAttempted(Exception):
    """The answer is still the stub."""


class NotHere(Exception):
    """This machine lacks what the check needs. The message says what, and what to do."""


class AnswerRaised(Exception):
    """The student's code raised `error`; kept apart from mistakes in the check itself."""

    def __init__(self, error: BaseException) -> None:
        super().__init__(str(error))
        self.error = error


class TooSlow(BaseException):
    """The time is up. Not an Exception, so that an `except Exception` in the answer does not swallow it."""


def wrong_if(
    condition: object, key: str, sentence: str, look: str | None = None, expected: Any = UNSAID, yours: Any = UNSAID
) -> None:
    """Raise Incorrect with this sentence if the condition holds.

    key: what this misconception is called where its sentence is not at hand, for example "every_rank_the_same". A
        string, not a variable, and so is the sentence (it may be an f-string): `sentences` reads both in the source.
    look: where to look
    """
    if condition:
        raise Incorrect(sentence, expected, yours, look, key)


def not_none(result: Any) -> None:
    """Raise Incorrect for None: the usual sign of a forgotten `return`."""
    if result is None:
        raise Incorrect("Your function returned None.", look="is there a `return` at its end?")
