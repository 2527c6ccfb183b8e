"""Sum up a trace: the share of the time with useful work, and the time that each name has to itself."""

import itertools
from collections.abc import Sequence
from typing import Any

from labcheck.authoring import Exercise, Inputs, call, near, same, wrong_if

Event = dict[str, Any]


def event(name: str, ts: float, dur: float, tid: int) -> Event:
    return {"name": name, "ts": ts, "dur": dur, "tid": tid}


# A CPU (row 1) that works, and waits inside other events, and two streams of a GPU (7, 13): name, start, end, row.
TRACE = (
    ("step", 0, 190, 1),
    *(("next batch", 4, 64, 1), ("forward", 70, 140, 1), ("linear", 74, 104, 1), ("gemm", 80, 96, 1)),
    *(("linear", 108, 130, 1), ("relu", 110, 118, 1), ("synchronize", 150, 185, 1)),
    ("step", 230, 380, 1),
    *(("forward", 236, 300, 1), ("linear", 240, 262, 1), ("relu", 266, 290, 1), ("synchronize", 310, 372, 1)),
    ("synchronize", 420, 520, 1),
    *(("gemm", 85, 125, 7), ("relu", 140, 160, 7), ("gemm", 245, 290, 7), ("copy", 330, 352, 7), ("gemm", 395, 470, 7)),
    *(("copy", 20, 50, 13), ("gemm", 118, 150, 13), ("copy", 300, 318, 13), ("relu", 440, 462, 13)),
)


def trace(rng: Inputs) -> list[Event]:
    """TRACE at another time, faster or slower, in any order."""
    start, unit = rng.size(300, 900), rng.size(2, 9) / 2
    events = [event(name, start + unit * ts, unit * (end - ts), tid) for name, ts, end, tid in TRACE]
    return [events[i] for i in rng.permutation(len(events))]


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


def span(events: list[Event]) -> float:
    return max(each["ts"] + each["dur"] for each in events) - min(each["ts"] for each in events)


def covered(events: list[Event]) -> float:
    """How long something runs."""
    return solution(events, set())[0] * span(events)


def judge(answer: Any, rng: Inputs) -> None:
    half, waits, long = rng.size(5, 40), {"synchronize", "next batch"}, trace(rng)
    # one name before, and one after the event around them
    filled = [event("forward", 0, half, 4), event("step", 0, 2 * half, 4), event("linear", half, half, 4)]
    gap = [event("forward", 100, half, 1), event("copy", 120 + half, 60, 7), event("forward", 130 + half, 20, 1)]
    cases = {
        "a trace with one event": ([event("forward", rng.size(1, 9), rng.size(5, 90) / 2, 1)], waits),
        "a trace with one wait": ([event("synchronize", 5, rng.size(5, 90), 3)], waits),
        "a wait with a copy inside": ([event("next batch", 0, 90, 2), event("copy", 20, half, 2)], waits),
        "a step that two events inside fill": (filled, waits),
        "two rows, after a gap in both": (gap, waits),
        "a long trace": (long, waits),
        "a long trace without waits": (trace(rng), set()),
    }
    results = {what: call(answer, *case) for what, case in cases.items()}
    for what, result in results.items():
        wrong_if(
            not (isinstance(result, tuple | list) and len(result) == 2 and isinstance(result[1], dict)),
            "form",
            "Return two values, a number and a dictionary.",
            yours=result,
        )
        missing = sorted({each["name"] for each in cases[what][0]} - result[1].keys())
        wrong_if(
            missing,
            "missing",
            f"Your dictionary lacks {missing}: it should have every name of the trace, waits included.",
        )
    name_mistakes(*results["a long trace"], long, waits)  # where different mistakes give different numbers
    for what, (share, own) in results.items():
        right, times = solution(*cases[what])
        look = "the pieces of time in which some innermost event is not a wait; and the whole time, gaps included"
        same(share, right, f"In {what}, the busy share", dtype=False, look=look)
        for name, time in times.items():
            look = "only what is directly inside takes time away; a name may occur more than once, events in any order"
            same(own[name], time, f'In {what}, the own time of "{name}" in microseconds', dtype=False, look=look)
        same(sorted(map(str, own)), sorted(times), f"For {what}, the list of names in your dictionary")


def name_mistakes(share: Any, own: dict, events: list[Event], waits: set[str]) -> None:
    right, times = solution(events, waits)
    total, waiting = sum(times.values()), sum(times[name] for name in waits)
    working = [each for each in events if each["name"] not in waits]
    durations = [sum(each["dur"] for each in group) for group in (events, working)]

    def share_is(*busy: float) -> bool:
        return not near(share, right) and any(near(share, time / span(events)) for time in busy)

    wrong_if(
        share_is(total, total - waiting, *durations),
        "counted_twice",
        "Some time counts twice in your busy share: where two rows work at the same time, or one event is inside "
        "another, it counts once.",
        expected=right,
        yours=share,
    )
    wrong_if(
        share_is(covered(events), covered(working)),
        "waits_count",
        "Waiting counts as work in your busy share. Where a wait is inside another event, the row waits.",
        expected=right,
        yours=share,
    )
    wrong_if(
        share_is(span(events) - waiting, covered(events) - waiting),
        "waits_subtracted",
        "You subtract the waiting time. While one row waits, another may work; and in a gap, nothing works.",
        expected=right,
        yours=share,
    )
    whole = {name: sum(each["dur"] for each in events if each["name"] == name) for name in times}
    wrong_if(
        all(near(own[name], whole[name]) for name in times),
        "whole_durations",
        "The own times in your dictionary are whole durations: an event's own time is shorter if others are inside it.",
    )


exercise = Exercise(
    title="Where the time went",
    minutes=10,
    difficulty=2,
    points=2,
    takeaway="Own times add up to what a row did; whole durations count the same microsecond again on every level.",
    hints=(
        "Between two neighboring times at which something starts or ends, nothing changes. Which event of a row is the "
        "innermost one there?",
        "Collect all starts and ends, sort them, and go through the pieces between neighbors. In a piece, of the "
        "events of a row that cover it, the shortest is the innermost.",
        "For each piece: a dictionary row → name, filled from the longest event to the shortest, so that the innermost "
        "name remains. Each of these names gets the piece's length; the piece is busy if one of them is no wait.",
    ),
    judge=judge,
    lends=solution,
)
