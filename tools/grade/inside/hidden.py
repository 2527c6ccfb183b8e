"""In place of a chapter's checks, in the sandbox of a notebook: they hold reference solutions.

Labs import some of these modules, so each name is there; what it stands for is not.
"""

from typing import Any


class Hidden:
    """What a name of the checks stands for while a notebook is graded."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __call__(self, *args: Any, **options: Any) -> Any:
        raise RuntimeError(f"`{self.name}` belongs to the checks, and those are not there while your lab is graded.")


def __getattr__(name: str) -> Hidden:
    if name.startswith("__"):
        raise AttributeError(name)
    return Hidden(name)
