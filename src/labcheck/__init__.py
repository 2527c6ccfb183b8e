"""Checks for the exercises of a course: `check("name", answer)`, `hint("name")`, `progress()`.

This package knows no chapter. The exercises are in a package of the course (see `exercise`); here is what judges them,
from the bottom up:

    show, switches                 how outcomes look; the notebook's settings put aside while a check runs
    verdict, compare, inputs       what a judge says; comparing results; fresh random inputs
    answer, probes                 calling the student's answer, and watching it while it works
    ranks, rank_server, collectives   an answer in several processes
    exercise, spec                 an exercise; the judge of one that is a function of its inputs
    reports, board                 what checks found, kept for the student and counted for a class
    certificate                    the same as a page to print
    judge, lab                     from an answer to its outcome; what a lab calls
    authoring                      what the file of an exercise imports, in one place
"""

from labcheck import board
from labcheck.judge import evaluate
from labcheck.lab import check, hint, lend, progress

__all__ = ["board", "check", "evaluate", "hint", "lend", "progress"]

board.greet()  # in the first cell of a lab
