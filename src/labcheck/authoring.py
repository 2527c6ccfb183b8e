"""What the file of an exercise imports, in one place. docs/authoring.md shows how it is used.

The larger tools keep their own names: `probes`, `ranks`, `collectives`.
"""

# ruff: noqa: F401

from labcheck.answer import attempted, call, line_of, observe
from labcheck.compare import equal, near, same
from labcheck.exercise import Exercise
from labcheck.inputs import Inputs
from labcheck.show import show
from labcheck.spec import Spec, looks_like, raises_like
from labcheck.verdict import AnswerRaised, Incorrect, NotHere, not_none, wrong_if
