"""How findings are told: as text, as a table in a notebook, as JSON, and as the table of a whole class."""

from __future__ import annotations

import html
import json
import re
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import torchcourse
from torchcourse.commands.doctor.finding import Finding
from torchcourse.errors import CourseError

FORMAT = 1  # of the JSON; changes only when a program that reads it would have to
# ok -> (sign, word, color): the sign and the word say the same as the color
LOOKS = {True: ("✓", "fine", "#008562"), False: ("✗", "fix this", "#C05200"), None: ("○", "note", "#6B6B6B")}


def ready(findings: list[Finding]) -> bool:
    """Whether nothing needs a fix."""
    return not any(finding.ok is False for finding in findings)


def verdict(findings: list[Finding]) -> str:
    """The last line of a report."""
    broken = [finding.name for finding in findings if finding.ok is False]
    return f"Fix this first: {', '.join(broken)}." if broken else "Ready for the course."


def as_text(findings: list[Finding]) -> str:
    """A line for each finding, its fix below it, and the verdict."""
    width = max((len(finding.name) for finding in findings), default=0)
    lines = []
    for finding in findings:
        lines.append(f"{LOOKS[finding.ok][0]} {finding.name:<{width}}  {finding.found}")
        if finding.fix:
            lines.append(f"  {'':<{width}}  → {finding.fix}")
    return "\n".join([*lines, "", verdict(findings)])


def as_html(findings: list[Finding]) -> str:
    """The same as a table."""
    left = "text-align:left;vertical-align:top;padding:2px 10px"
    badge = "color:#ffffff;padding:1px 7px;border-radius:3px"  # as in the checks: readable in dark themes, too
    rows = []
    for finding in findings:
        sign, word, color = LOOKS[finding.ok]
        fix = f"<br><b>→</b> {_inline(finding.fix)}" if finding.fix else ""
        rows.append(
            f'<tr><td style="{left};white-space:nowrap"><b style="{badge};background:{color}">{sign} {word}</b></td>'
            f'<td style="{left};white-space:nowrap">{html.escape(finding.name)}</td>'
            f'<td style="{left}">{_inline(finding.found)}{fix}</td></tr>'
        )
    return f"<table>{''.join(rows)}</table><b>{html.escape(verdict(findings))}</b>"


def _inline(text: str) -> str:
    """Escaped text in which `code` between backticks is set as code."""
    return re.sub(r"`([^`]+)`", r"<code>\1</code>", html.escape(text))


def as_json(findings: list[Finding]) -> str:
    """For programs: see the top of the package for the form."""
    report = {
        "format": FORMAT,
        "torchcourse": torchcourse.__version__,
        "ready": ready(findings),
        "seconds": round(sum(finding.seconds for finding in findings), 3),
        "findings": [asdict(finding) for finding in findings],
    }
    return json.dumps(report, indent=2, ensure_ascii=False)


# ---------------------------------------- a class


def read(path: Path) -> list[Finding]:
    """The findings in a file that `--json` wrote. Raises CourseError for any other file."""
    try:
        report = json.loads(path.read_text(encoding="utf-8"))
        if report["format"] != FORMAT:
            raise CourseError(f"{path} has form {report['format']}, and this torchcourse reads {FORMAT}: upgrade it.")
        return [Finding(**finding) for finding in report["findings"]]
    except OSError as error:
        raise CourseError(f"{path} cannot be read ({error.strerror}).") from None
    except (ValueError, KeyError, TypeError):
        raise CourseError(f"{path} is not a report: `torchcourse doctor --json > {path.name}` writes one.") from None


def pooled(reports: dict[str, list[Finding]]) -> str:
    """The reports of a class: how often each problem occurs, what is only noted, and who needs help with what.

    reports: name of a report -> its findings.
    """
    counts = {ok: Counter(f.name for findings in reports.values() for f in findings if f.ok is ok) for ok in LOOKS}
    names = dict.fromkeys(f.name for findings in reports.values() for f in findings)  # in the order of the report
    worst = sorted(
        (name for name in names if counts[False][name] or counts[None][name]),
        key=lambda name: (-counts[False][name], -counts[None][name]),
    )
    waiting = {who: [f.name for f in findings if f.ok is False] for who, findings in reports.items()}
    waiting = {who: broken for who, broken in waiting.items() if broken}
    count = f"{len(reports)} report{'s' if len(reports) > 1 else ''}"
    lines = [f"{count}, {len(reports) - len(waiting)} ready for the course."]
    if worst:
        width = max(map(len, worst))
        lines += ["", f"{'':<{width}}   fix  note  fine"]
        lines += [
            f"{name:<{width}}  {counts[False][name]:>4}  {counts[None][name]:>4}  {counts[True][name]:>4}"
            for name in worst
        ]
    if waiting:
        width = max(map(len, waiting))
        lines += ["", *(f"{who:<{width}}  {', '.join(broken)}" for who, broken in waiting.items())]
    return "\n".join(lines)
