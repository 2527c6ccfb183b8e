"""What to ask for next time, from the table that `sacct` prints."""

import math
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, same


def draw(rng: Inputs) -> dict[str, str]:
    """Tables by what is in them. The first one has nothing special, and most of the others add to it."""
    n, m, peak = rng.size(1000, 4000), rng.size(10, 55), rng.size(9, 13)
    plain = f"""\
{n}|COMPLETED|22:{m}:18|4-06:{m}:20||32
{n}.batch|COMPLETED|22:{m}:18|00:01.250|5432K|32
{n}.0|COMPLETED|22:{m}:18|4-06:{m}:20|{peak * 1024 + 307}.20M|32
"""
    tables = {
        "a job of one step": plain,
        "nothing to round": f"{n}|COMPLETED|01:20:00|05:20:00||32\n{n}.0|COMPLETED|01:20:00|05:20:00|5120.00M|32\n",
        "a job of a few minutes": f"{n}|COMPLETED|00:09:06|09:06.700||32\n"
        f"{n}.0|COMPLETED|00:09:06|09:06.700|20889.60M|32\n",
        "a second job, of more than a day and without srun": f"{plain}{n + 1}|COMPLETED|1-03:{m}:18|3-07:21:40||32\n"
        f"{n + 1}.batch|COMPLETED|1-03:{m}:18|3-07:21:40|{(peak + 3) * 1024**2}K|32\n",
        "a memory in K": f"{plain}{n}.1|COMPLETED|00:10:00|01:10:00|{(peak + 5) * 1024**2}K|32\n",
        "a memory in G": f"{plain}{n}.1|COMPLETED|00:10:00|01:10:00|{peak + 7}.40G|32\n",
        "a step that failed in a completed job": f"{plain}{n + 2}|COMPLETED|01:{m}:00|11:{m}:40||32\n"
        f"{n + 2}.0|FAILED|00:10:00|05:00:00|{peak + 3}.30G|32\n{n + 2}.1|COMPLETED|00:{m}:00|06:{m}:40|812.50M|32\n",
        "a job that failed": f"{plain}{n + 3}|FAILED|2-09:20:00|51-01:00:00||32\n"
        f"{n + 3}.0|COMPLETED|02:00:00|3-00:00:00|40.50G|32\n",
        "a job that ran into its limit (TIMEOUT)": f"{plain}{10 * n}|TIMEOUT|2-00:00:00|38-03:00:00||32\n"
        f"{10 * n}.0|TIMEOUT|2-00:00:00|38-03:00:00|30.25G|32\n",
    }
    return {what: f"JobID|State|Elapsed|TotalCPU|MaxRSS|AllocCPUS\n{table}" for what, table in tables.items()}


def seconds(time: str) -> float:
    days, _, clock = time.rpartition("-")
    total = 0.0
    for part in clock.split(":"):
        total = 60 * total + float(part)
    return total + 86_400 * int(days or 0)


def gib(size: str) -> float:
    return float(size[:-1]) / {"K": 1024**2, "M": 1024, "G": 1}[size[-1]]


def solution(text: str) -> dict:
    header, *rows = [line.split("|") for line in text.splitlines()]
    rows = [dict(zip(header, row, strict=True)) for row in rows]
    jobs = {row["JobID"]: row for row in rows if "." not in row["JobID"] and row["State"] == "COMPLETED"}
    steps = [row for row in rows if row["MaxRSS"] and row["JobID"].split(".")[0] in jobs]
    return {
        "cores": math.ceil(max(seconds(job["TotalCPU"]) / seconds(job["Elapsed"]) for job in jobs.values())),
        "gib": math.ceil(1.2 * max(gib(step["MaxRSS"]) for step in steps)),
        "minutes": math.ceil(1.25 * max(seconds(job["Elapsed"]) / 60 for job in jobs.values())),
    }


TINY = "0|COMPLETED|00:01:00|00:00:01||1\n0.0|COMPLETED|00:01:00|00:00:01|1K|1\n"  # a job that decides nothing
LOOK = {
    "cores": "TotalCPU / Elapsed of jobs, not steps (`12` and `120` are two jobs); the largest, rounded up at the end",
    "gib": "the largest MaxRSS of all steps of completed jobs in GiB (1024 M), a fifth more, rounded up at the end",
    "minutes": "Elapsed in the lines of completed jobs, a quarter more, rounded up once, at the end",
}


def judge(answer: Any, rng: Inputs) -> None:
    for what, text in draw(rng).items():
        yours, right = call(answer, text), solution(text)
        if not isinstance(yours, dict) or yours.keys() != right.keys():
            raise Incorrect("Your result is not right.", "a dictionary with the keys cores, gib and minutes", yours)
        for key, number in right.items():
            less = ((line, text.replace(f"{line}\n", "") + TINY) for line in text.splitlines()[1:])
            decide = [f"`{line}`" for line, others in less if solution(others)[key] != number]
            look = f"{LOOK[key]}. Here, this decides: {' and '.join(decide)}"
            same(yours[key], number, f'The number under "{key}", for a table with {what},', look=look)


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
        "total = 60 * total + part. Cores in use on average are TotalCPU / Elapsed.",
    ),
    judge=judge,
)
