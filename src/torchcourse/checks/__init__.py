"""The exercises' checks: `check("name", answer)`, `hint("name")`, `progress()`.

The exercises of a chapter are in the module with its name here; `engine` runs them.
"""

from torchcourse import board
from torchcourse.checks.engine import check, evaluate, hint, progress

__all__ = ["check", "evaluate", "hint", "progress"]

board.greet()  # `setup` imports this package in the first cell of every notebook
