"""Before a class is graded, the course's own solution is: in the same sandbox, with the same data and the same limits.

Whatever keeps a right answer from its points on this machine (a folder that the sandbox does not show, a package that
is missing, data that cannot be read) shows here, before it costs a class its points.
"""

from collections.abc import Callable

import nbformat

from tools.course import ROOT, Chapter
from tools.grade import results
from tools.grade.collect import Submission
from tools.grade.restore import Cell
from tools.grade.sandbox import Report


def rehearse(chapter: Chapter, run: Callable[[Submission], tuple]) -> None:
    """Raise SystemExit with the reason unless the solution of a chapter gets all its points.

    run: grades one submission, as `tools.grade.__main__._run` does
    """
    path = ROOT / "solutions" / f"{chapter.name}.ipynb"
    cells = [Cell(cell.id, cell.source, cell.cell_type == "code") for cell in nbformat.read(path, as_version=4).cells]
    _, asked, report, _ = run(Submission("the solution", chapter, path, 0.0, cells))
    wrong = [name for name in asked if not results.verdict(name, report)[0].correct]
    if report.ended == "whole" and not wrong:
        return
    raise SystemExit(
        f"Nothing is graded: on this machine even the course's own solution of {chapter.name} does not get its points. "
        f"{_reason(wrong, report)}"
    )


def _reason(wrong: list[str], report: Report) -> str:
    if report.ended != "whole":
        return f"What happened: {report.ended}."
    first = results.verdict(wrong[0], report)[0]
    errors = [each["error"].strip().splitlines()[-1] for each in report.cells.values() if each.get("error", "").strip()]
    cells = f" The first error in its notebook: {errors[0]}" if errors else ""
    return f"`{wrong[0]}`: {first.message}{cells}"
