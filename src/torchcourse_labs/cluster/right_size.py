"""What to ask for next time, from the table that `sacct` prints."""

import math
import re
from collections.abc import Callable
from functools import partial
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, same, wrong_if


def draw(rng: Inputs) -> list[str]:
    """In the first table, the longest job is neither the busiest nor the largest, and others would be more."""
    n, m, peak = rng.size(1000, 4000), rng.size(10, 55), rng.size(9, 13)
    several = f"""\
{n}|COMPLETED|22:{m}:18|4-06:{m}:20||32
{n}.batch|COMPLETED|22:{m}:18|00:01.250|5432K|32
{n}.0|COMPLETED|22:{m}:18|4-06:{m}:20|{peak * 1024 + 307}.20M|32
{n + 1}|COMPLETED|1-03:{m}:18|3-07:21:40||32
{n + 1}.0|COMPLETED|1-03:{m}:18|3-07:21:40|{(peak - 3) * 1024**2}K|32
{n + 2}|FAILED|2-09:20:00|51-01:00:00||32
{n + 2}.0|COMPLETED|02:00:00|3-00:00:00|40.50G|32
{n + 3}|COMPLETED|01:{m}:00|11:{m}:40||32
{n + 3}.0|FAILED|00:10:00|05:00:00|{peak + 3}.30G|32
{n + 3}.1|COMPLETED|00:{m}:00|06:{m}:40|812.50M|32
{10 * n}|TIMEOUT|2-00:00:00|38-03:00:00||32
{10 * n}.0|TIMEOUT|2-00:00:00|38-03:00:00|30.25G|32
"""
    nothing_to_round = f"{n}|COMPLETED|01:20:00|05:20:00||32\n{n}.0|COMPLETED|01:20:00|05:20:00|5120.00M|32\n"
    little_more = f"{n}|COMPLETED|00:09:06|09:06.700||32\n{n}.0|COMPLETED|00:09:06|09:06.700|20889.60M|32\n"
    header = "JobID|State|Elapsed|TotalCPU|MaxRSS|AllocCPUS\n"
    return [header + table for table in (several, nothing_to_round, little_more)]


def seconds(time: str) -> float:
    days, _, clock = time.rpartition("-")
    total = 0.0
    for part in clock.split(":"):
        total = 60 * total + float(part)
    return total + 86_400 * int(days or 0)


def gib(size: str) -> float:
    return float(size[:-1]) / {"K": 1024**2, "M": 1024, "G": 1}[size[-1]]


def solution(
    text: str,
    done=lambda row: row["State"] == "COMPLETED",
    job=lambda row: "." not in row["JobID"],
    step=lambda row, numbers: row["JobID"].split(".")[0] in numbers,
    largest=max,
    gib=gib,
    more=(1.2, 1.25),
    up=math.ceil,
) -> dict:
    """The parts have names, so that the judge can exchange one of them."""
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


def misread(text: str, pattern: str, as_if: str) -> dict:
    return solution(re.sub(pattern, as_if, text))


def judge(answer: Any, rng: Inputs) -> None:
    texts = draw(rng)
    results = [call(answer, text) for text in texts]
    for result in results:
        if not isinstance(result, dict) or {*result} != {"cores", "gib", "minutes"}:
            raise Incorrect("Your result is not right.", "a dictionary with the keys cores, gib and minutes", result)
    for key in ("cores", "gib", "minutes"):
        judge_number(key, [result[key] for result in results], texts)


def judge_number(key: str, yours: list, texts: list[str]) -> None:
    expected = [solution(text)[key] for text in texts]

    def like(*mistakes: Callable) -> bool:
        return yours != expected and any(yours == [mistake(text)[key] for text in texts] for mistake in mistakes)

    wrong_if(
        like(
            partial(solution, done=lambda row: True),
            partial(solution, done=lambda row: row["State"] != "FAILED"),
            partial(solution, step=lambda *row: True),
            partial(solution, step=lambda row, _: row["State"] == "COMPLETED"),
        ),
        "not_completed",
        f"A job that did not complete counts in your {key}: its numbers are not those of a whole run.",
        look="the JobID in front of the dot, and the state of that job; a step has a state of its own",
    )
    wrong_if(
        like(partial(solution, job=lambda row: True)),
        "steps_as_jobs",
        f"Steps count as jobs in your {key}: a step may be short and busy. Only the line of the job covers all of it.",
        look="a dot in JobID",
    )
    wrong_if(
        like(partial(solution, more=(1, 1))),
        "nothing_to_spare",
        f"Your {key} are just what the runs used: the next run needs a little more.",
        look="a fifth more memory, a quarter more minutes",
    )
    wrong_if(
        like(*(partial(solution, up=f) for f in (int, round, lambda n: int(n) + 1, lambda n: round(n) + 1)))
        or like(partial(solution, largest=lambda values: math.ceil(max(values)))),
        "rounded",
        f"Your {key} are not rounded up, or rounded up twice: 4.1 becomes 5, and 4 remains 4.",
        look="`math.ceil` at the very end, and not `int(…) + 1`",
    )
    wrong_if(
        like(
            partial(solution, gib=lambda size: float(size[:-1]) / 1024),
            partial(solution, gib=lambda size: float(size[:-1]) / {"K": 1000**2, "M": 1000, "G": 1}[size[-1]]),
            partial(solution, gib=lambda size: gib(size) * 1024),
        ),
        "units",
        "You misread a unit: the last letter of MaxRSS is K, M, or G, and 1024 of one are one of the next.",
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
        look = "the largest number of all jobs (of TotalCPU over Elapsed for the cores), each rule on its own"
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
