"""How large the course is, beside how large it may be: lines of Python, blank ones included.

python -m tools.size      ends with status 1 if a part is larger than its limit
"""

import statistics
import sys
from pathlib import Path

from tools.course import ROOT

SRC = ROOT / "src"
APART = ("lectures", "cluster", "commands")  # of torchcourse: counted on their own


def lines(folder: Path, but: tuple[str, ...] = ()) -> dict[Path, int]:
    """Lines of each Python file below a folder, except those in some of its own folders."""
    files = [path for path in folder.rglob("*.py") if path.relative_to(folder).parts[0] not in but]
    return {path: len(path.read_text(encoding="utf-8").splitlines()) for path in files}


def rows() -> list[tuple[str, int, int]]:
    """(what, lines, at most)."""
    exercises = lines(SRC / "torchcourse_labs")
    single = [count for path, count in exercises.items() if not path.name.startswith("_")]
    apart = lines(ROOT / "tests" / "answers")
    everything = lines(SRC) | lines(ROOT / "tools") | lines(ROOT / "tests")
    return [
        ("torchcourse: what students import and read", sum(lines(SRC / "torchcourse", APART).values()), 6100),
        ("torchcourse.lectures", sum(lines(SRC / "torchcourse" / "lectures").values()), 1950),
        ("torchcourse.cluster", sum(lines(SRC / "torchcourse" / "cluster").values()), 1300),
        ("torchcourse.commands", sum(lines(SRC / "torchcourse" / "commands").values()), 1300),
        ("labcheck", sum(lines(SRC / "labcheck").values()), 3300),
        ("torchcourse_labs", sum(exercises.values()), 11817),
        ("an exercise, median", round(statistics.median(single)), 100),
        ("an exercise, the largest", max(single), 220),
        ("tests/answers", sum(apart.values()), 4400),
        ("tests, answers aside", sum(lines(ROOT / "tests", ("answers",)).values()), 14000),
        ("tools", sum(lines(ROOT / "tools").values()), 9275),
        ("the largest file", max(everything.values()), 650),
    ]


def main() -> int:
    """Print the table. Returns the exit status."""
    for what, count, most in rows():
        print(f"{what:<46}{count:>7,} of {most:>6,}{'' if count <= most else '   too large'}")
    return int(any(count > most for _, count, most in rows()))


if __name__ == "__main__":
    sys.exit(main())
