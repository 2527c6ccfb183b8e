"""The exercises' checks: `check("name", answer)`, `hint("name")`, `progress()`.

Each chapter's exercises are in the module with the chapter's name; `engine` runs them.
"""

from torchcourse import board
from torchcourse.checks.engine import check, evaluate, hint, progress

__all__ = ["check", "evaluate", "hint", "progress"]

board.greet()  # `setup` imports this package in the first cell of every notebook
