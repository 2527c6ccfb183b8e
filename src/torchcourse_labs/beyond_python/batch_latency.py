"""Latencies of a server that answers what waits in batches, and their 50th and 99th percentiles: counted, not timed."""

import math
import statistics
from collections.abc import Callable, Sequence
from typing import Any

from labcheck.authoring import Exercise, Incorrect, Inputs, call, near, same, wrong_if

Case = tuple[list[int], int, int, int]


def solution(arrivals: list[int], most: int, fixed: int, each: int) -> tuple[list[int], int, int]:
    latencies, free = [], 0
    while len(latencies) < len(arrivals):
        waiting = arrivals[len(latencies) :]
        start = max(free, waiting[0])
        batch = [arrival for arrival in waiting if arrival <= start][:most]
        free = start + fixed + each * len(batch)
        latencies += [free - arrival for arrival in batch]
    ordered = sorted(latencies)
    p50, p99 = (ordered[math.ceil(share * len(ordered) / 100) - 1] for share in (50, 99))
    return latencies, p50, p99


def served(arrivals: list[int], fixed: int, each: int, takes: Callable) -> list[int]:
    """Latencies of a server that takes batches in its own way. takes: waiting, free -> its start and its length"""
    latencies, free = [], 0
    while waiting := arrivals[len(latencies) :]:
        start, length = takes(waiting, free)
        free = start + fixed + each * length
        latencies += [free - arrival for arrival in waiting[:length]]
    return latencies


def mistaken(arrivals: list[int], most: int, fixed: int, each: int) -> dict[str, list[int]]:
    """The latencies of servers that work in other ways, and other numbers instead of latencies."""

    def early(waiting: list[int], free: int) -> tuple[int, int]:
        start = max(free, waiting[0])
        return start, sum(arrival < start or arrival == waiting[0] for arrival in waiting[:most])

    ends = [sum(pair) for pair in zip(arrivals, solution(arrivals, most, fixed, each)[0], strict=True)]
    return {
        "full": served(arrivals, fixed, each, lambda waiting, free: (max(free, *waiting[:most]), len(waiting[:most]))),
        "blind": served(arrivals, fixed, each, lambda waiting, free: (free, len(waiting[:most]))),
        "too strict": served(arrivals, fixed, each, early),
        "unlimited": solution(arrivals, len(arrivals), fixed, each)[0],
        "ends": ends,
        "batch": (batch := [fixed + each * ends.count(end) for end in ends]),
        "waiting": [end - arrival - length for end, arrival, length in zip(ends, arrivals, batch, strict=True)],
    }


def draw(rng: Inputs) -> list[Case]:
    """Crowds and gaps. In the first two cases, all mistakes show; those of odd numbers show in the last two."""
    cases: list[Case] = []
    for n in (2 * rng.size(52, 70), 2 * rng.size(8, 14)):
        while True:
            fixed, each, most = *rng.sizes(2, 2, 6), rng.size(3, 5)
            arrivals = [rng.size(1, 9)]
            while len(arrivals) < n:
                arrivals.append(arrivals[-1] + rng.pick([0, 0, 1, 1, 2, 3, 9, 40]))
            case = arrivals, most, fixed, each
            latencies, ordered = solution(*case)[0], sorted(solution(*case)[0])
            others = mistaken(*case)
            differ = len({*map(tuple, others.values()), tuple(latencies)}) == 1 + len(others)
            differ &= ordered[-1] > ordered[-2] and ordered[n // 2] > ordered[n // 2 - 1]
            if differ and min(others["blind"]) < fixed + each:
                break
        cases.append(case)
    return [*cases, ([rng.size(3, 9)], 1, 4, 3), *(([0] * n, 1, 1, 1) for n in (5, 151))]  # 2, 4, 6, and so on


def judge(answer: Any, rng: Inputs) -> None:
    for arrivals, most, fixed, each in draw(rng):
        given = f"arrivals {arrivals[:6]}{'…' if len(arrivals) > 6 else ''}, most {most}, fixed {fixed}, each {each}"
        result = call(answer, list(arrivals), most, fixed, each)
        if not isinstance(result, tuple | list) or len(result) != 3:
            raise Incorrect("Your function should return three things.", "(latencies, p50, p99)", result)
        yours = result[0].tolist() if hasattr(result[0], "tolist") else result[0]
        if not isinstance(yours, tuple | list):
            raise Incorrect("The latencies should come first, as a list.", "a list", yours)
        expected, p50, p99 = solution(arrivals, most, fixed, each)
        same(len(yours), len(expected), f"The number of latencies, with {given},", look="one for each request")
        judge_latencies(yours, expected, mistaken(arrivals, most, fixed, each), fixed + each, given)
        judge_percentiles(result[1:], expected)
        for share, number, right in ((0.5, result[1], p50), (0.99, result[2], p99)):
            look = f"number `math.ceil({share} * n)` of the n sorted latencies, counted from 1; first p50, then p99"
            same(number, right, f"p{share * 100:.0f} of {len(expected)} latencies", dtype=False, look=look)


def judge_latencies(yours: Sequence, expected: list, others: dict[str, list], least: int, given: str) -> None:
    if near(yours, expected):
        return
    wrong_if(
        near(yours, others["full"]),
        "waits_until_full",
        "Your server waits until a batch is full, even while it has nothing else to do. It should take what is there.",
        look="a batch starts as soon as the server is free and at least one request waits",
    )
    wrong_if(
        near(yours, others["ends"]),
        "end_times",
        "You return when each answer is ready. A latency is that time minus the request's arrival.",
    )
    wrong_if(
        near(yours, others["batch"]),
        "without_waiting",
        "You return how long each request's batch takes. A latency begins when the request arrives, not when its "
        "batch starts.",
    )
    wrong_if(
        near(yours, others["waiting"]),
        "waiting_time",
        "You return how long each request waits for its batch to start. Its answer comes when that batch ends.",
    )
    wrong_if(
        near(yours, sorted(expected)),
        "sorted_in_place",
        "You return the right latencies, but sorted: they belong in the order of the requests.",
        look="`sorted(latencies)` makes a new list; `.sort()` sorts your list itself",
    )
    wrong_if(
        near(yours, others["unlimited"]),
        "no_limit",
        "Your server takes everything that waits. A batch has at most `most` requests; the others wait for the next.",
    )
    early = next((i for i, latency in enumerate(yours) if isinstance(latency, int | float) and latency < least), None)
    wrong_if(
        early is not None,
        "too_early",
        f"Request {early} has a latency below {least}, but even a batch of one takes that long: fixed + each.",
        look="n requests take fixed + n * each, from `max(free, …)` on, with the arrival of the first one that waits",
        yours=yours[early or 0],
    )
    i = next(i for i, pair in enumerate(zip(yours, expected, strict=True)) if not near(*pair))
    look = "who is in the batch: all who came by its start or right then, up to `most`; n of them take fixed + n * each"
    same(yours[i], expected[i], f"The latency of request {i}, with {given},", dtype=False, look=look)


def judge_percentiles(yours: Sequence, latencies: list[int]) -> None:
    ordered, n = sorted(latencies), len(latencies)
    wrong_if(
        n % 2 == 0 and near(yours[0], statistics.median(ordered)) and ordered[n // 2] > ordered[n // 2 - 1],
        "interpolated",
        "Your p50 lies between two latencies, so no request has it. The smallest one that half of them don't exceed "
        "is one of the latencies.",
        look="sort, and take one element; by default, `quantile` and `percentile` interpolate",
        expected=ordered[(n - 1) // 2],
        yours=yours[0],
    )


exercise = Exercise(
    title="Half of them, and one in a hundred",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Each image takes longer in a batch, but the queue gets shorter: look at p99, where the queue shows.",
    hints=(
        "Keep the time at which the server is free. The next batch starts then, or when the next request arrives, if "
        "that is later. Who has arrived by its start, up to `most`, is in it, and all of them end together.",
        "`start = max(free, waiting[0])`, `batch = [t for t in waiting if t <= start][:most]`, "
        "`free = start + fixed + each * len(batch)`; then `sorted(latencies)[math.ceil(0.99 * n) - 1]`.",
    ),
    judge=judge,
    lends=solution,
)
