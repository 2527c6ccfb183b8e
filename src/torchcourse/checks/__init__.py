"""The exercises' checks: `check("name", answer)`, `hint("name")`, `progress()`.

The exercises of a chapter stand in the module of its name beside this file; `engine` runs them.
"""

from torchcourse.checks.engine import check, evaluate, hint, progress

__all__ = ["check", "evaluate", "hint", "progress"]
