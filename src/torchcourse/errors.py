"""The one exception of the package, something that the user can fix; and a way to look at anyone's errors."""

import textwrap
from collections.abc import Callable


class CourseError(Exception):
    """A sentence that says what happened and what to do.

    In a notebook only the sentence is shown: a traceback through the package's own lines would not help.
    """

    def _render_traceback_(self) -> list[str]:  # asked for by IPython
        return [f"{type(self).__name__}: {self}"]


def attempt(what: str, action: Callable[[], object]) -> None:
    """Run `action()` and print what it returned, or the type and the beginning of the message of its error."""
    try:
        result = action()
    except Exception as error:
        message = textwrap.shorten(f"{type(error).__name__}: {error}", 200, placeholder=" …")
        print(what, textwrap.indent(textwrap.fill(message, 92), "    "), sep="\n")
    else:
        print(f"{what}: no error" + ("" if result is None else f", {result}"))
