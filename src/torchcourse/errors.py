"""The one exception of the package: something that the user can fix."""


class CourseError(Exception):
    """A sentence that says what happened and what to do.

    In a notebook only the sentence is shown: a traceback through the package's own lines would not help.
    """

    def _render_traceback_(self) -> list[str]:  # asked for by IPython
        return [f"{type(self).__name__}: {self}"]
