"""Sum up a trace: the share of the time with useful work, and the time that each name has to itself."""

import itertools
from collections.abc import Sequence
from typing import Any

from labcheck.authoring import Exercise, Inputs, Spec, same, wrong_if

Event = dict[str, Any]
# Short traces, each for one question: name, start, end, row.
SHORT = (
    [("synchronize", 0, 30, 3)],
    [("step", 0, 60, 1), ("synchronize", 10, 50, 1)],  # a wait inside other work
    [("next batch", 0, 90, 2), ("copy", 20, 50, 2)],  # work inside a wait
    [("gemm", 0, 60, 7), ("copy", 20, 50, 13), ("synchronize", 30, 100, 1)],  # rows at the same time
    [("forward", 0, 20, 1), ("copy", 40, 100, 7), ("forward", 50, 70, 1)],  # a gap in both rows
    [("step", 0, 60, 4), ("forward", 10, 50, 4), ("linear", 20, 30, 4)],  # three levels
    [("forward", 0, 40, 4), ("step", 0, 60, 4), ("linear", 40, 60, 4)],  # two events inside fill a step
    [("linear", 30, 60, 4), ("step", 0, 60, 4), ("forward", 0, 30, 4)],  # in any order
)
# A CPU (row 1) that works, and waits inside other events, and two streams of a GPU (7, 13).
LONG = [
    *(("step", 0, 190, 1), ("next batch", 4, 64, 1), ("forward", 70, 140, 1), ("linear", 74, 104, 1)),
    *(("gemm", 80, 96, 1), ("linear", 108, 130, 1), ("relu", 110, 118, 1), ("synchronize", 150, 185, 1)),
    *(("step", 230, 380, 1), ("forward", 236, 300, 1), ("synchronize", 310, 372, 1), ("synchronize", 420, 520, 1)),
    *(("gemm", 85, 125, 7), ("relu", 140, 160, 7), ("gemm", 245, 290, 7), ("copy", 330, 352, 7), ("gemm", 395, 470, 7)),
    *(("copy", 20, 50, 13), ("gemm", 118, 150, 13), ("copy", 300, 318, 13), ("relu", 440, 462, 13)),
]


def draw(rng: Inputs) -> list[tuple[list[Event], set[str]]]:
    """The traces above at another time, faster or slower; the long one in any order."""
    cases = []
    for rows, waits in (*((rows, {"synchronize", "next batch"}) for rows in (*SHORT, LONG)), (LONG, set())):
        start, unit = rng.size(300, 900), rng.size(2, 9) / 2
        events = [{"name": n, "ts": start + unit * a, "dur": unit * (b - a), "tid": row} for n, a, b, row in rows]
        cases.append(([events[i] for i in rng.permutation(len(events))] if rows is LONG else events, waits))
    return cases


def solution(events: Sequence[Event], waits: set[str]) -> tuple[float, dict[str, float]]:
    times = sorted({time for each in events for time in (each["ts"], each["ts"] + each["dur"])})
    longest_first = sorted(events, key=lambda each: each["dur"], reverse=True)
    own, busy = {each["name"]: 0.0 for each in events}, 0.0
    for start, end in itertools.pairwise(times):
        running = [each for each in longest_first if each["ts"] <= start and end <= each["ts"] + each["dur"]]
        innermost = {each["tid"]: each["name"] for each in running}  # the last of a row is its shortest
        for name in innermost.values():
            own[name] += end - start
        busy += (end - start) * bool({*innermost.values()} - waits)
    return busy / (times[-1] - times[0]), own


def explain(yours: Any, expected: Any, events: list[Event], waits: set[str]) -> None:
    wrong_if(
        len(yours) != 2 or not isinstance(yours[1], dict),
        "form",
        "Return two values: the busy share, a number, and the own times, a dictionary.",
        yours=yours,
    )
    (share, own), (right, times) = yours, expected
    name = {each["name"]: f"{each['name']} (a wait)" if each["name"] in waits else each["name"] for each in events}
    short = [f"{name[e['name']]} from {e['ts']:g} to {e['ts'] + e['dur']:g} in row {e['tid']}" for e in events]
    what = f"in the trace ({', '.join(short)})" if len(events) < 5 else f"in a trace with {len(events)} events"
    look = "times may be fractions; count a piece if some row's innermost event is no wait; the whole time, gaps too"
    same(share, right, f"The busy share {what}", dtype=False, look=look)
    same(sorted(map(str, own)), sorted(times), f"The list of names in the dictionary {what}")
    look = "only events directly inside, in the same row, take time away; names repeat; two events may start together"
    for name, time in times.items():
        same(own[name], time, f'The own time of "{name}", in microseconds, {what}', dtype=False, look=look)


exercise = Exercise(
    title="Where the time went",
    minutes=10,
    difficulty=2,
    points=2,
    takeaway="Own times add up to what a row did; whole durations count the same microsecond again on every level.",
    hints=(
        "Collect all starts and ends, and sort them. In a piece between two neighbors nothing changes: of a row's "
        "events that cover it, the shortest is the innermost.",
        "For each piece: a dictionary row → name, filled from the longest event to the shortest, so that the innermost "
        "name remains. Each of these names gets the piece's length; the piece is busy if one of them is no wait.",
    ),
    judge=Spec(draw=draw, solution=solution, explain=explain, dtype=False),
    lends=solution,
)
