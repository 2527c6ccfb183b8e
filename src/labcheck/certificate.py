"""A certificate: what the checks on this machine have recorded, as a page to print. It says itself what it proves."""

import datetime
import html

import torchcourse
from labcheck import reports
from torchcourse.errors import CourseError

PAGE = """<!DOCTYPE html>
<html lang="en">
<meta charset="utf-8">
<title>Certificate: {name}</title>
<style>
  @page {{ margin: 15mm }}
  body {{ font: 11pt/1.3 Georgia, serif; max-width: 165mm; margin: 0 auto; color: #111; overflow-wrap: anywhere }}
  strong {{ display: block; font-size: 20pt }}
  table {{ border-collapse: collapse; width: 100% }}
  th, td {{ border-bottom: 1px solid #bbb; padding: 0.7mm 0; text-align: right }}
  th:first-child, td:first-child {{ text-align: left }}
  footer {{ font-size: 9pt; margin-top: 6mm }}
</style>
<h1>Certificate</h1>
<p><strong>{name}</strong> has worked on these labs of <em>PyTorch, from tensor to cluster</em>.</p>
<table>
<tr><th>lab<th>exercises correct<th>points</tr>
{rows}
</table>
<p>{date} · torchcourse {version}</p>
<footer>
<p>This page states what the checks on one machine have recorded, and the name that was typed there. It is not a grade:
on their own machine, people can change the record. Grades come from <code>make grade</code>, which the instructor runs.
</footer>
</html>
"""


def page(name: str, standing: reports.Standing) -> str:
    """The certificate. Raises CourseError if there is nothing to certify."""
    labs = []
    for chapter in sorted(standing.chapters):
        every = [each for each in reports.exercises().values() if each.chapter == chapter]
        done = [each for each in every if standing.states.get(each.name) == reports.CORRECT]
        counts = (len(done), len(every), sum(each.points for each in done), sum(each.points for each in every))
        labs += [(chapter, *counts)] if done else []
    if not labs:
        raise CourseError("No exercise is correct on this machine yet, so there is nothing to certify.")
    labs.append(("total", *map(sum, list(zip(*labs, strict=True))[1:])))
    rows = "\n".join(f"<tr><td>{lab}<td>{n} of {of}<td>{points} of {most}</tr>" for lab, n, of, points, most in labs)
    said = {"date": datetime.date.today(), "version": torchcourse.__version__}
    return PAGE.format(name=html.escape(" ".join(name.split())), rows=rows, **said)
