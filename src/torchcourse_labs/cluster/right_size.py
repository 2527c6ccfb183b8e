"""What to ask for next time, from the table that `sacct` prints."""

import math
import re
from collections.abc import Callable
from functools import partial
from statistics import mean
from typing import Any

from labcheck.answer import call
from labcheck.compare import same
from labcheck.exercise import Exercise
from labcheck.inputs import Inputs
from labcheck.verdict import Incorrect, wrong_if


def clock(seconds: float, fraction: bool = False) -> str:
    """As Slurm writes it: D-HH:MM:SS, HH:MM:SS, or MM:SS.fff."""
    whole, thousandths = int(seconds), round(1000 * seconds) % 1000
    if fraction and whole < 3600:
        return f"{whole // 60:02}:{whole % 60:02}.{thousandths:03}"
    days = f"{whole // 86_400}-" if whole >= 86_400 else ""
    return f"{days}{whole // 3600 % 24:02}:{whole // 60 % 60:02}:{whole % 60:02}"


def table(*jobs: tuple) -> str:
    """jobs: number, state, minutes, cores in use, and for each step: state, part of the time, of the work, MaxRSS."""
    rows = ["JobID|State|Elapsed|TotalCPU|MaxRSS|AllocCPUS"]
    for job, state, minutes, busy, *steps in jobs:
        wall = int(60 * minutes)
        rows += [f"{job}|{state}|{clock(wall)}|{clock(busy * wall, True)}||32"]
        rows += [f"{job}.batch|{state}|{clock(wall)}|00:01.250|5432K|32"]
        for i, (ended, time, work, size) in enumerate(steps):
            rows += [f"{job}.{i}|{ended}|{clock(time * wall)}|{clock(work * busy * wall, True)}|{size}|32"]
    return "\n".join(rows) + "\n"


def draw(rng: Inputs) -> list[str]:
    n, a, b, c = rng.size(1000, 4000), rng.size(3, 6) + 0.3, 9.3 + rng.size(0, 3), 100.3 + rng.size(1, 50)
    one, failed = ("COMPLETED", 1, 1), ("FAILED", 0.25, 0.5)  # a short step is busy, and it may fail
    several = table(
        (n, "COMPLETED", c, a, (*one, f"{b * 1024:.2f}M")),
        (n + 1, "COMPLETED", 1.3 * c, a - 1, (*one, f"{0.7 * b * 1024**2:.0f}K")),
        (n + 2, "FAILED", 3 * c, 15.6, ("COMPLETED", 0.25, 0.5, f"{4 * b:.2f}G"), ("FAILED", 0.75, 0.5, "812.50M")),
        (n + 3, "COMPLETED", 0.7 * c, a + 2, (*failed, f"{1.3 * b:.2f}G"), ("COMPLETED", 0.75, 0.5, "812.50M")),
        (10 * n, "TIMEOUT", 2 * c, 14.4, ("TIMEOUT", 1, 1, f"{2 * b:.2f}G")),  # a number that begins like another
    )
    days = table(
        (n, "COMPLETED", 1440 + 3 * c, 5.7, (*one, f"{1.7 * b * 1024**2:.0f}K")),
        (n + 1, "COMPLETED", 1210 + c, 2.2, (*one, f"{b * 1024:.2f}M")),
    )
    nothing_to_round = table((n, "COMPLETED", 80, 4, (*one, "5120.00M")))
    short = table((n, "COMPLETED", 9.5, 1 + 0.7 / 570, (*one, "532.48M")))  # hardly more than one core
    return [several, days, nothing_to_round, short]


def seconds(time: str) -> float:
    days, _, clock = time.rpartition("-")
    total = 0.0
    for part in clock.split(":"):
        total = 60 * total + float(part)
    return total + 86_400 * int(days or 0)


def gib(size: str) -> float:
    return float(size[:-1]) / {"K": 1024**2, "M": 1024, "G": 1}[size[-1]]


def completed(row: dict) -> bool:
    return row["State"] == "COMPLETED"


def is_job(row: dict) -> bool:
    return "." not in row["JobID"]


def of_job(row: dict, numbers: set) -> bool:
    return row["JobID"].split(".")[0] in numbers


def always(*row: Any) -> bool:
    return True


def size(
    text: str, done=completed, job=is_job, step=of_job, largest=max, gib=gib, more=(1.2, 1.25), up=math.ceil
) -> dict:
    """The solution, and what comes of it if one part of it is another one."""
    header, *rows = [line.split("|") for line in text.splitlines()]
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    jobs = [row for row in rows if job(row) and done(row)]
    numbers = {row["JobID"] for row in jobs}
    steps = [row for row in rows if row["MaxRSS"] and step(row, numbers)]
    return {
        "cores": up(largest([seconds(job["TotalCPU"]) / seconds(job["Elapsed"]) for job in jobs])),
        "gib": up(more[0] * largest([gib(step["MaxRSS"]) for step in steps])),
        "minutes": up(more[1] * largest([seconds(job["Elapsed"]) / 60 for job in jobs])),
    }


def solution(text: str) -> dict:
    return size(text)


def misread(text: str, pattern: str, as_if: str) -> dict:
    return size(re.sub(pattern, as_if, text))


def judge(answer: Any, rng: Inputs) -> None:
    texts = draw(rng)
    results = [call(answer, text) for text in texts]
    for result in results:
        if not isinstance(result, dict) or {*result} != {"cores", "gib", "minutes"}:
            raise Incorrect("Your result is of another kind.", "a dictionary with cores, gib and minutes", result)
    for key in ("cores", "gib", "minutes"):
        judge_number(key, [result[key] for result in results], texts)


def judge_number(key: str, yours: list, texts: list[str]) -> None:
    expected = [solution(text)[key] for text in texts]

    def like(*mistakes: Callable) -> bool:
        return yours != expected and any(yours == [mistake(text)[key] for text in texts] for mistake in mistakes)

    wrong_if(
        key == "cores" and yours == [32] * len(texts),
        "reserved",
        "Your cores are what the jobs had reserved, AllocCPUS, and not what they used.",
        look="TotalCPU over Elapsed",
    )
    wrong_if(
        like(
            partial(size, done=always),
            partial(size, done=lambda row: row["State"] != "FAILED"),
            partial(size, step=always),
            partial(size, step=lambda row, numbers: completed(row)),
        ),
        "not_completed",
        f"A job that did not complete counts in your {key}: it says what one mistake used.",
        look="the JobID in front of the dot, and the state of that job; a step has a state of its own",
    )
    wrong_if(
        like(partial(size, job=always)),
        "steps_as_jobs",
        f"Steps count as jobs in your {key}: a step may be short and busy. The line of the job has the whole.",
        look="a dot in JobID",
    )
    wrong_if(
        like(*(partial(size, largest=f) for f in (mean, sum, lambda values: values[0], lambda values: values[-1]))),
        "mean",
        f"Your {key} are a mean, a sum, or those of the first or last line. What counts is the largest number.",
        look="`max`",
    )
    wrong_if(
        like(partial(size, more=(1, 1))),
        "nothing_to_spare",
        f"Your {key} are just what the runs used: the next run needs a little more.",
        look="a fifth more memory, a quarter more minutes",
    )
    wrong_if(
        like(*(partial(size, up=f) for f in (int, round, lambda n: int(n) + 1, lambda n: round(n) + 1)))
        or like(partial(size, largest=lambda values: math.ceil(max(values)))),
        "rounded",
        f"Your {key} are not rounded up, or rounded up twice: 4.1 becomes 5, and 4 remains 4.",
        look="`math.ceil` at the very end, and not `int(…) + 1`",
    )
    wrong_if(
        like(
            partial(size, gib=lambda size: float(size[:-1]) / 1024),
            partial(size, gib=lambda size: float(size[:-1]) / {"K": 1000**2, "M": 1000, "G": 1}[size[-1]]),
            partial(size, gib=lambda size: gib(size) * 1024),
        ),
        "units",
        "MaxRSS has a unit in its last letter: K, M or G, and 1024 of one are one of the next.",
    )
    wrong_if(
        like(
            partial(misread, pattern=r"\d+-(?=\d\d:)", as_if=""),
            partial(misread, pattern=r"\|(\d\d:\d\d)(\.\d+)?(?=\|)", as_if=r"|\1:00"),
            partial(misread, pattern=r":\d\d(\.\d+)?(?=\|)", as_if=":00"),
        ),
        "time",
        "You misread a time: 1-02:30:00 is a day more than 02:30:00, and 01:30.500 is a minute and 30.5 seconds.",
        look="the parts from the right: seconds, minutes, hours",
    )
    for number, right in zip(yours, expected, strict=True):
        look = "each rule on its own; sizes and times are compared as numbers of one unit, not as text"
        same(number, right, f'The number under "{key}"', look=look)


exercise = Exercise(
    title="Stretch: ask for what you use",
    minutes=12,
    difficulty=3,
    points=2,
    takeaway="Three sums from `sacct` say what to ask for next time: processor time over wall time, the largest peak "
    "with a fifth more, the longest run with a quarter more.",
    hints=(
        'Make a dictionary of each line with the names of the first one: `dict(zip(header, line.split("|")))`. Jobs '
        'are the lines without "." in JobID; MaxRSS is in the lines of the steps.',
        "A time is D-HH:MM:SS, HH:MM:SS or MM:SS.fff. Cut off the days, then go through the parts from the left: "
        "total = 60 * total + part.",
        "Cores in use on average are TotalCPU / Elapsed. Take the largest of the completed jobs, then `math.ceil`.",
    ),
    judge=judge,
)
