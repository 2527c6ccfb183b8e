import math
import re
from functools import partial

from support.answers import mutant, mutants

from torchcourse_labs.cluster.right_size import solution


def by_columns(text):
    rows = [line.split("|") for line in text.strip().split("\n")][1:]
    done = {row[0] for row in rows if row[1] == "COMPLETED"}
    good = [row for row in rows if row[0].partition(".")[0] in done]

    def seconds(time):
        days, _, clock = time.rpartition("-")
        return 86_400 * int(days or 0) + sum(float(part) * 60**i for i, part in enumerate(reversed(clock.split(":"))))

    def gib(size):
        return float(size[:-1]) * 2.0 ** (10 * "KMG".index(size[-1]) - 20)

    jobs = [row for row in good if row[0].isdigit()]
    return {
        "minutes": math.ceil(max(seconds(row[2]) for row in jobs) * 1.25 / 60),
        "cores": max(math.ceil(seconds(row[3]) / seconds(row[2])) for row in jobs),
        "gib": math.ceil(max(gib(row[4]) for row in good if row[4]) * 1.2),
    }


RIGHT = [by_columns, mutant(by_columns, ("if row[0].isdigit()", 'if "." not in row[0]'), ("* 1.2)", "* 6 / 5)"))]

WRONG = {
    "not_completed": [partial(solution, done=lambda row: True), partial(solution, step=lambda *row: True)],
    "steps_as_jobs": [partial(solution, job=lambda row: True)],
    "nothing_to_spare": [partial(solution, more=(1.2, 1)), partial(solution, more=(1, 1.25))],
    "rounded": [
        *mutants(solution, '"minutes": up', '"minutes": int', '"minutes": round'),
        *mutants(solution, '"cores": up(', '"cores": 1 + int('),
    ],
    "units": [partial(solution, gib=lambda size: float(size[:-1]) / 1024)],
    "time": [lambda text: solution(re.sub(r"\|\d-", "|", text))],
    None: [
        print,
        lambda text: (3, 4, 5),
        lambda text: {"cores": 3},
        lambda text: solution(text) | {"cores": 32},
        partial(solution, largest=sum),
        partial(solution, largest=lambda values: values[-1]),
        lambda text: float(text.splitlines()[1].split("|")[2]),
        *mutants(by_columns, '"gib": math.ceil', '"gib": str', '"gib": float'),
        *mutants(by_columns, " / 60", "", " / 3600"),
    ],
}
