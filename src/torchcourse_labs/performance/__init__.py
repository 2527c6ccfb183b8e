"""The exercises of chapter 08: what limits a step, a trace summed up, one graph, few compilations, layout, memory.

Nothing here measures time: the checks count graphs, compilations, bytes and how often something ran. What compiles is
counted by a backend that needs no compiler (`torchcourse.lectures.compiling`), where the answer is.
"""

import contextlib
import io
import itertools
import math
import re
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any
from unittest import mock

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from labcheck.answer import attempted, call
from labcheck.inputs import Inputs
from labcheck.probes import SLOW_START
from labcheck.verdict import AnswerRaised
from torchcourse.lectures import compiling
from torchcourse.memory import LiveBytes
from torchcourse_labs._spec import Mistake, Spec, changed, chapter, says  # noqa: F401 - for the tables

EXERCISES = ()  # declared below

exercise = chapter("08_performance")
Seconds = dict[str, float]
Lanes = list[list[str]]
Found = dict[str, Any]


def _close(a: Any, b: float) -> bool:
    """Tell whether two numbers are equal up to rounding; False for whatever is no number."""
    try:
        return abs(float(a) - b) <= 1e-5 + 1e-4 * abs(b)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False


def _instead(yours: Any, *_: Any) -> bool:
    return "instead" in yours


# ---------------------------------------------------------------------------------------------------------------------
# find_limit


def _step(seconds: Seconds, lanes: Lanes) -> float:
    return max(sum(seconds[name] for name in lane) for lane in lanes)


def _find_limit(seconds: Seconds, lanes: Lanes) -> tuple[str, float]:
    def step_without(removed: str | None) -> float:
        return max(sum(seconds[name] for name in lane if name != removed) for lane in lanes)

    limit = min(seconds, key=step_without)
    return limit, step_without(None) / step_without(limit)


def _slowest_lane(seconds: Seconds, lanes: Lanes) -> list[str]:
    return max(lanes, key=lambda lane: sum(seconds[name] for name in lane))


def _without_lane(seconds: Seconds, lanes: Lanes) -> float:
    """The speed-up if the whole longest lane were gone."""
    second, longest = sorted([0.0, *(_step(seconds, [lane]) for lane in lanes)])[-2:]
    return longest / second if second else math.inf


def _steps_of_lanes(new: Inputs) -> list[tuple[Seconds, Lanes]]:
    """Five steps: the longest part is hidden; a new limit appears; nothing overlaps; four lanes; the longest lane stays
    the longest. One part is best."""

    def ms(low: int, high: int) -> float:
        return new.size(low * 10, high * 10) / 10_000

    def mixed(seconds: Seconds, lanes: Lanes) -> tuple[Seconds, Lanes]:
        names = [*seconds]
        return {names[i]: seconds[names[i]] for i in new.permutation(len(names))}, lanes

    device = ["copy", "forward", "backward", "step"]
    hidden = {"load": ms(60, 70), "copy": ms(12, 18)} | {
        "forward": ms(20, 25),
        "backward": ms(52, 58),
        "step": ms(14, 20),
    }
    next_one = {"read": ms(8, 12), "decode": ms(70, 90)} | {
        "copy": ms(1, 3),
        "forward": ms(11, 16),
        "backward": ms(24, 33),
        "step": ms(4, 8),
    }
    alone = {"load": ms(12, 19), "copy": ms(1, 4), "forward": ms(5, 11), "backward": ms(21, 29), "step": ms(2, 6)}
    three = {"read": ms(70, 73), "augment": ms(26, 30), "decode": ms(31, 40), "copy": ms(41, 50)} | {
        "forward": ms(36, 42),
        "backward": ms(62, 69),
        "step": ms(13, 18),
    }
    same = {"load": ms(10, 15), "copy": ms(1, 4), "forward": ms(30, 35), "backward": ms(40, 50), "step": ms(5, 9)}
    return [
        mixed(hidden, [["load"], device]),
        mixed(next_one, [device, ["read", "decode"]]),
        mixed(alone, [["load", *device]]),
        mixed(three, [["read"], ["decode", "augment"], ["copy"], ["forward", "backward", "step"]]),
        mixed(same, [["load"], device]),
    ]


def _name_and_number(ask: Any, seconds: Seconds, lanes: Lanes) -> Found:
    result = ask(seconds, lanes)
    if not isinstance(result, tuple | list) or len(result) != 2:
        return {"instead": result}
    return {"The limit": result[0], "The speed-up": result[1]}


def _limit(
    speed_up: Callable[[float, float, float, float], Any], limit: Callable[[Seconds, Lanes], Any] | None = None
) -> Callable:
    """A wrong answer: `speed_up(step now, step without the limit, sum of all parts, time of the limit)`."""

    def wrong(seconds: Seconds, lanes: Lanes) -> tuple:
        name = limit(seconds, lanes) if limit else _find_limit(seconds, lanes)[0]
        without = _step(seconds | {name: 0.0}, lanes)
        return name, speed_up(_step(seconds, lanes), without, sum(seconds.values()), seconds[name])

    return wrong


def _most_of_its_lane(seconds: Seconds, lanes: Lanes) -> str:
    return max((seconds[name] / _step(seconds, [lane]), name) for lane in lanes for name in lane)[1]


def _least_gain(seconds: Seconds, lanes: Lanes) -> str:
    return max(seconds, key=lambda name: _step(seconds | {name: 0.0}, lanes))


def _removed_for_good(seconds: Seconds, lanes: Lanes) -> tuple[str, float]:
    now, left, best = _step(seconds, lanes), dict(seconds), ("", math.inf)
    for name in seconds:
        left[name] = 0.0
        best = min(best, (name, _step(left, lanes)), key=lambda pair: pair[1])
    return best[0], now / best[1]


def _longest(seconds: Seconds, lanes: Lanes) -> str:
    return max(seconds, key=seconds.get)


exercise(
    "find_limit",
    title="What is the limit?",
    minutes=6,
    difficulty=1,
    points=1,
    takeaway="What is hidden costs nothing, and what limits you is worth only as much as the next limit leaves.",
    hints=(
        "How long does one lane take? And how long does the step take, if all lanes run at the same time?",
        "Write a small function for the time of a step without one part. Call it for every part, and once for none.",
        "A lane takes the sum of its parts; the step takes the `max` of its lanes. The limit is the `min` over all "
        "names, by the time of the step without that part.",
    ),
    spec=Spec(
        draw=_steps_of_lanes,
        solution=_find_limit,
        measure=_name_and_number,
        dtype=False,
        mistakes="""
            lambda *given: _find_limit(*given)[0]
            lambda *given: (*_find_limit(*given), 0.1)
                Your function should return two values, a name and a number. It returned {yours[instead]}.
                when: _instead
            lambda *given: _find_limit(*given)[::-1]
                You return the two values the other way around: first the name, then the speed-up.
            lambda *given: (_slowest_lane(*given), _find_limit(*given)[1])
            lambda *given: (given[1].index(_slowest_lane(*given)), _find_limit(*given)[1])
                Your limit is a whole lane. It should be one part: the name of what to make faster.
                when: not isinstance(yours["The limit"], str)
            _limit(lambda now, without, total, part: total / (total - part), _longest)
            _limit(lambda now, without, total, part: total / (total - part))
            _limit(lambda now, without, total, part: total / without)
                You add up all parts, but the lanes run at the same time: the step takes as long as its longest lane.
                look: `sum` within a lane, `max` over the lanes
            _limit(lambda now, without, total, part: now / without, _longest)
            _limit(lambda now, without, total, part: now / (now - part), _longest)
            _limit(lambda now, without, total, part: now / part, _longest)
                Your limit is the longest part of all. Where it runs beside a longer lane it is hidden, and removing it
                makes nothing faster.
                look: which lane the part is in
            _limit(lambda now, without, total, part: now / without, _most_of_its_lane)
                Your limit is the part with the largest share of its own lane. A lane with only one part may be short.
                look: the time of the whole step without the part
            _limit(lambda now, without, total, part: now / without, lambda *given: max(given[1][0], key=given[0].get))
                Your limit is always a part of the first lane. The lanes come in any order.
                look: `max` over all lanes
            _limit(lambda now, without, total, part: now / without, _least_gain)
                Your limit is the part without which the step takes the longest. Find the one without which it takes the
                shortest.
                look: `min`, over the names
            _removed_for_good
                Your function changes `seconds`: a part that you set to 0 is still 0 when you try the next one, until
                the whole step takes no time.
                look: put the part back, or change a copy: `seconds | {{name: 0}}`
                when: says(yours, "division by zero")
            sum(seconds[name] for name in lane if name != removed)
                    → max([seconds[name] for name in lane if name != removed], default=0.0)
                You take the longest part of a lane for the time of the lane. Its parts run one after the other.
                look: `sum` within a lane, `max` over the lanes
            _limit(lambda now, without, total, part: now / without, lambda *given: _slowest_lane(*given)[0])
                Your limit is the first part of the longest lane. The limit is the part that shortens the step most.
            _limit(lambda now, without, total, part: now / (now - part))
                Without the limit another lane may be the longest, and the step cannot become shorter than that lane.
                Your speed-up is larger than what is possible.
                look: compute the step once more without the limit, with all lanes
            = (_find_limit(seconds, lanes)[0], _without_lane(seconds, lanes))
                You remove the whole longest lane. Only the limit goes; the other parts of its lane still take their
                time.
                look: compute the step once more without the limit, with all lanes
                when: len(lanes) == 1 or _close(yours["The speed-up"], _without_lane(seconds, lanes))
            _limit(lambda now, without, total, part: now / part)
                You divide the step by the time of its limit. A speed-up is the time before divided by the time after,
                and everything but the limit is still there afterward.
                look: Amdahl's law: the rest remains
            _limit(lambda now, without, total, part: without / now)
                Your speed-up is upside down: the time before divided by the time after is larger than 1.
            _limit(lambda now, without, total, part: 1 - without / now)
            _limit(lambda now, without, total, part: 100 * (1 - without / now))
            _limit(lambda now, without, total, part: now - without)
            _limit(lambda now, without, total, part: part / now)
                You return how much of the step goes away. The speed-up is the time before divided by the time after.
            _limit(lambda now, without, total, part: now / without - 1)
            _limit(lambda now, without, total, part: 100 * (now / without - 1))
                You return how much faster the step gets as a gain, which is the speed-up minus 1.
            _limit(lambda now, without, total, part: round(now / without, 2))
            _limit(lambda now, without, total, part: round(now / without, 1))
            _limit(lambda now, without, total, part: round(now / without))
                Your speed-up is rounded. Return all digits, and round where you print.
        """,
        also_right=[
            lambda seconds, lanes: (
                (limit := max(_slowest_lane(seconds, lanes), key=seconds.get)),
                _step(seconds, lanes) / _step(seconds | {limit: 0}, lanes),
            ),
            _limit(lambda now, without, total, part: torch.tensor(now) / torch.tensor(without)),
            lambda *given: [*_find_limit(*given)],
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# busy_share

Event = dict[str, Any]


def _innermost(events: Sequence[Event]) -> Iterator[tuple[float, list[str]]]:
    """Pieces of time, and in each the name of the innermost event of every row in which something runs."""
    times = sorted({time for event in events for time in (event["ts"], event["ts"] + event["dur"])})
    longest_first = sorted(events, key=lambda event: -event["dur"])
    for start, end in itertools.pairwise(times):
        running = {e["tid"]: e["name"] for e in longest_first if e["ts"] <= start and end <= e["ts"] + e["dur"]}
        yield end - start, [*running.values()]


def _span(events: Sequence[Event]) -> float:
    return max(e["ts"] + e["dur"] for e in events) - min(e["ts"] for e in events)


def _busy(events: Sequence[Event], waits: set[str]) -> float:
    return sum(time for time, names in _innermost(events) if {*names} - waits) / _span(events)


def _own(events: Sequence[Event], waits: set[str] = frozenset()) -> Seconds:
    own = dict.fromkeys((event["name"] for event in events), 0.0)
    for time, names in _innermost(events):
        for name in names:
            own[name] += time
    return own


def _busy_share(events: Sequence[Event], waits: set[str]) -> tuple[float, Seconds]:
    return _busy(events, waits), _own(events)


def _covered(events: Sequence[Event], names: set[str]) -> float:
    """How long at least one event with one of these names runs."""
    chosen = [event for event in events if event["name"] in names]
    return sum(time for time, running in _innermost(chosen) if running)


def _names(events: Sequence[Event]) -> set[str]:
    return {event["name"] for event in events}


def _rows(events: Sequence[Event]) -> dict[int, list[Event]]:
    return {tid: [event for event in events if event["tid"] == tid] for tid in {event["tid"] for event in events}}


def _row_shares(events: Sequence[Event], waits: set[str]) -> list[float]:
    return [_busy(row, waits) * _span(row) / _span(events) for row in _rows(events).values()]


def _total(events: Sequence[Event], of: set[str]) -> float:
    return sum(event["dur"] for event in events if event["name"] in of)


def _inside(inner: Event, outer: Event) -> bool:
    end, outer_end = inner["ts"] + inner["dur"], outer["ts"] + outer["dur"]
    return outer["ts"] <= inner["ts"] and end <= outer_end and inner["dur"] < outer["dur"]


def _minus(events: Sequence[Event], direct: bool, across: bool = False) -> Seconds:
    """The durations by name, without what is inside: directly or at any depth, also in other rows if `across`."""
    own = dict.fromkeys(_names(events), 0.0)
    for event in events:
        inside = [e for e in events if _inside(e, event) and (across or e["tid"] == event["tid"])]
        taken = [e for e in inside if not (direct and any(_inside(e, other) for other in inside))]
        own[event["name"]] += event["dur"] - sum(e["dur"] for e in taken)
    return own


# Wrong shares and wrong times by name: each sentence with the functions that give them.
WRONG_SHARES: dict[str, list[Callable[[Sequence[Event], set[str]], Any]]] = {
    "Your busy share is a percentage; it should be a number from 0 to 1.": [
        lambda events, waits: 100 * _busy(events, waits)
    ],
    "Your busy share is a time; divide it by the time from the first start to the last end.": [
        lambda events, waits: _busy(events, waits) * _span(events)
    ],
    "You return the share that is idle; asked for is the share that is busy.": [
        lambda events, waits: 1 - _busy(events, waits)
    ],
    "You add up the durations of all events. What runs inside another event, or beside it in another row, counts "
    "twice.": [
        lambda events, waits: _total(events, _names(events) - waits) / _span(events),
        lambda events, waits: _total(events, _names(events)) / _span(events),
        lambda events, waits: (_total(events, _names(events)) - _total(events, waits)) / _span(events),
    ],
    "You add up the rows. When two rows work at the same time, that time counts once in the busy share.": [
        lambda events, waits: sum(_row_shares(events, waits)),
        lambda events, waits: min(1.0, sum(_row_shares(events, waits))),
        lambda events, waits: sum(t for n, t in _own(events).items() if n not in waits) / _span(events),
        lambda events, waits: sum(_own(events).values()) / _span(events),
    ],
    "You take the mean over the rows. The machine is busy whenever any row works.": [
        lambda events, waits: sum(_row_shares(events, waits)) / len(_rows(events)),
        lambda events, waits: sum(_busy(row, waits) for row in _rows(events).values()) / len(_rows(events)),
    ],
    "You take the busiest row. The machine is busy whenever any row works.": [
        lambda events, waits: max(_row_shares(events, waits)),
    ],
    "Waiting counts as work in your share.": [
        lambda events, waits: _covered(events, _names(events)) / _span(events),
    ],
    "A wait inside another event still counts as work in your share: you leave the wait out, and the event around it "
    "covers the same time.": [
        lambda events, waits: _covered(events, _names(events) - waits) / _span(events),
    ],
    "You subtract all the time in which some row waits. While one row waits, another one may work.": [
        lambda events, waits: (_covered(events, _names(events)) - _covered(events, waits)) / _span(events),
        lambda events, waits: (
            sum(t for t, names in _innermost(events) if names and not {*names} & waits) / _span(events)
        ),
        lambda events, waits: (_covered(events, _names(events)) - _total(events, waits)) / _span(events),
    ],
    "You return 1 minus the share of waiting. In a gap nothing waits, but nothing works either.": [
        lambda events, waits: 1 - _covered(events, waits) / _span(events),
        lambda events, waits: 1 - _total(events, waits) / _span(events),
        lambda events, waits: 1 - sum(t for n, t in _own(events).items() if n in waits) / _span(events),
    ],
    "You divide by the last end, as if the trace had started at 0.": [
        lambda events, waits: _busy(events, waits) * _span(events) / max(e["ts"] + e["dur"] for e in events),
    ],
    "You divide by the time in which something runs or waits. Gaps in which nothing happens at all belong to the time, "
    "too.": [
        lambda events, waits: _busy(events, waits) * _span(events) / _covered(events, _names(events)),
    ],
    "You divide by the sum of all durations; divide by the time from the first start to the last end.": [
        lambda events, waits: _busy(events, waits) * _span(events) / _total(events, _names(events)),
    ],
    "Your time span ends where the last event starts, or where this event ends; another one may end later.": [
        lambda events, waits: (
            _busy(events, waits)
            * _span(events)
            / (max((e["ts"], e["ts"] + e["dur"]) for e in events)[1] - min(e["ts"] for e in events))
        ),
        lambda events, waits: (
            _busy(events, waits) * _span(events) / (max(e["ts"] for e in events) - min(e["ts"] for e in events))
        ),
    ],
    "Your time span begins or ends with the first or the last event of the list, and they come in any order.": [
        lambda events, waits: (
            _busy(events, waits) * _span(events) / ((events[-1]["ts"] + events[-1]["dur"] - events[0]["ts"]) or 1)
        ),
        lambda events, waits: (
            _busy(events, waits) * _span(events) / (max(e["ts"] + e["dur"] for e in events) - events[0]["ts"])
        ),
    ],
    "You divide own times by own times. A microsecond in which two rows work counts twice there, and a gap not at "
    "all.": [
        lambda events, waits: sum(t for n, t in _own(events).items() if n not in waits) / sum(_own(events).values()),
    ],
}
WRONG_TIMES: dict[str, list[Callable[[Sequence[Event]], Seconds]]] = {
    "Your own times are whole durations: subtract what runs inside an event.": [
        lambda events: {name: _total(events, {name}) for name in _names(events)},
    ],
    "Something inside something inside an event is subtracted from it twice. Subtract only what is directly inside.": [
        lambda events: _minus(events, direct=False),
    ],
    "You subtract events of other rows. They run at the same time, not inside.": [
        lambda events: _minus(events, direct=True, across=True),
        lambda events: _minus(events, direct=False, across=True),
    ],
    "Of events with the same name only one counts in your own times; add them up.": [
        lambda events: _own({event["name"]: event for event in events}.values()),
        lambda events: {e["name"]: e["dur"] - sum(i["dur"] for i in _children(e, events)) for e in events},
    ],
    "Your own times are shares; they should be in microseconds, as in the trace.": [
        lambda events: {name: time / _span(events) for name, time in _own(events).items()},
        lambda events: {name: time / sum(_own(events).values()) for name, time in _own(events).items()},
    ],
    "Your own times are not in microseconds, the unit of the trace.": [
        lambda events: {name: time / 1000 for name, time in _own(events).items()},
        lambda events: {name: time / 1e6 for name, time in _own(events).items()},
    ],
    "Your own times depend on the order of the list, and the events come in any order. Sort them by their start and, "
    "where starts are equal, the longest first.": [
        lambda events: _own_as_listed(events),
    ],
    "Your own times are means over the events of a name; add them up.": [
        lambda events: {name: time / sum(e["name"] == name for e in events) for name, time in _own(events).items()},
    ],
}


def _own_as_listed(events: Sequence[Event]) -> Seconds:
    """Own times by a stack for each row, from the events as the list has them."""
    own: Seconds = dict.fromkeys(_names(events), 0.0)
    stacks: dict[int, list[Event]] = {}
    for event in events:
        stack = stacks.setdefault(event["tid"], [])
        while stack and stack[-1]["ts"] + stack[-1]["dur"] <= event["ts"]:
            stack.pop()
        own[event["name"]] += event["dur"]
        if stack:
            own[stack[-1]["name"]] -= event["dur"]
        stack.append(event)
    return own


def _own_of_latest(events: Sequence[Event]) -> Seconds:
    """Own times where the innermost event is the one that started last, of several the longest."""
    own = dict.fromkeys(_names(events), 0.0)
    for row in _rows(events).values():
        for start, end in itertools.pairwise(sorted({t for e in row for t in (e["ts"], e["ts"] + e["dur"])})):
            running = [e for e in row if e["ts"] <= start and end <= e["ts"] + e["dur"]]
            if running:
                own[max(running, key=lambda e: (e["ts"], e["dur"]))["name"]] += end - start
    return own


def _start_together(events: Sequence[Event]) -> bool:
    return len({(event["ts"], event["tid"]) for event in events}) < len(events)


def _children(event: Event, events: Sequence[Event]) -> list[Event]:
    inside = [e for e in events if _inside(e, event) and e["tid"] == event["tid"]]
    return [e for e in inside if not any(_inside(e, other) for other in inside)]


def _nested(new: Inputs, tid: int, start: int, names: Sequence[str], depth: int) -> tuple[list[Event], int]:
    """An event with others inside, down to `depth` levels, and when it ends."""
    time = start + new.size(2, 9)
    events: list[Event] = []
    for _ in range(new.size(2, 3) if depth > 1 else 0):
        inside, time = _nested(new, tid, time, names, depth - 1)
        events += inside
        time += new.size(0, 5)
    time += new.size(3, 30)
    return [{"name": new.pick(names), "ts": start, "dur": time - start, "tid": tid}, *events], time


def _trace(new: Inputs) -> tuple[list[Event], set[str]]:
    """A CPU that works, and waits inside other events, and two streams of a GPU, with gaps everywhere."""
    start = time = new.size(300, 900)
    waits = {"synchronize", "next batch"}
    events: list[Event] = []
    for wait in ("next batch", "synchronize"):
        inside, end = _nested(new, 1, time + 2, ["forward", "linear", "relu"], 3)
        dur = new.size(60, 90)
        inside += [{"name": wait, "ts": end + 3, "dur": dur, "tid": 1}]
        end += 3 + dur + new.size(2, 8)
        events += [{"name": "step", "ts": time, "dur": end - time, "tid": 1}, *inside]
        time = end + new.size(40, 60)
    events.append({"name": "synchronize", "ts": time, "dur": new.size(90, 120), "tid": 1})
    for tid in (7, 13):
        at = start + new.size(20, 60)
        while at < time + 50:
            dur = new.size(15, 60)
            events.append({"name": new.pick(["gemm", "relu", "copy"]), "ts": at, "dur": dur, "tid": tid})
            at += dur + new.size(30, 90)
    return [events[i] for i in new.permutation(len(events))], waits


def _told_apart(events: Sequence[Event], waits: set[str]) -> bool:
    """Whether each known wrong share or time differs from the right one and from those with another sentence."""
    shares = [round(_busy(events, waits), 4)]
    for functions in WRONG_SHARES.values():
        shares += {round(float(function(events, waits)), 4) for function in functions}
    times = [tuple(sorted(_own(events).items()))]
    for functions in WRONG_TIMES.values():
        times += {tuple(sorted(function(events).items())) for function in functions}
    return len({*shares}) == len(shares) and len({*times}) == len(times)


def _traces(new: Inputs) -> list[tuple[list[Event], set[str]]]:
    rich = next(found for _ in range(50) if _told_apart(*(found := _trace(new))))
    quiet, _ = _trace(new)
    one = [{"name": "forward", "ts": new.size(0, 9), "dur": new.size(5, 90) / 2, "tid": 1}]
    idle = [{"name": "synchronize", "ts": 5, "dur": new.size(5, 90), "tid": 3}]
    half = new.size(5, 40)  # the outer event has no time to itself
    full = []
    for tid, outer in enumerate(("step", "epoch")):  # one name before, and one after those of the events inside
        full += [{"name": name, "ts": ts, "dur": half, "tid": tid} for name, ts in (("forward", 0), ("linear", half))]
        full.insert(2, {"name": outer, "ts": 0, "dur": 2 * half, "tid": tid})
    waiting = [
        {"name": name, "ts": ts, "dur": dur, "tid": 2} for name, ts, dur in [("next batch", 0, 90), ("copy", 20, half)]
    ]
    lone = [(one, {"synchronize"}), (idle, {"synchronize"}), (waiting, {"next batch"})]
    return [rich, (quiet, set()), *lone, (full, set())]


def _share_and_times(ask: Any, events: Sequence[Event], waits: set[str]) -> Found:
    result = ask(events, waits)
    if not isinstance(result, tuple | list) or len(result) != 2 or not isinstance(result[1], dict):
        return {"instead": result}
    share, own = result
    names = _names(events)
    return {
        "The busy share": share,
        **{f"The own time of {name}": own.get(name) for name in sorted(names)},
        "Names that are not in the trace": sorted(map(str, own.keys() - names)),
        "missing": sorted(names - own.keys()),
        "times": own,
    }


def _has_share(*functions: Callable) -> Callable:
    def when(yours: Found, expected: Found, events: Sequence[Event], waits: set[str]) -> bool:
        share = yours["The busy share"]
        wrong = not _close(share, expected["The busy share"])
        return wrong and any(_close(share, function(events, waits)) for function in functions)

    return when


def _has_times(*functions: Callable) -> Callable:
    def when(yours: Found, expected: Found, events: Sequence[Event], waits: set[str]) -> bool:
        def same_times(times: Seconds) -> bool:
            return all(_close(yours["times"].get(name), time) for name, time in times.items())

        return not same_times(expected["times"]) and any(same_times(function(events)) for function in functions)

    return when


exercise(
    "busy_share",
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
    spec=Spec(
        draw=_traces,
        solution=_busy_share,
        measure=_share_and_times,
        dtype=False,
        by_case=True,
        mistakes=[
            """
            lambda *given: _busy_share(*given)[0]
            lambda *given: _busy_share(*given)[::-1]
            lambda *given: (_busy(*given), [*_own(given[0]).items()])
                Your function should return two values, a number and a dictionary. It returned {yours[instead]}.
                when: _instead
            = (_busy(events, waits), {name: time for name, time in _own(events).items() if name not in waits})
            lambda *given: (_busy(*given), {})
                Your dictionary of own times has no {yours[missing]}; every name of the trace belongs into it, waits and
                names whose own time is 0 as well.
                when: yours["missing"]
            = (_busy(events, waits), _own([e | {"tid": 0} for e in events]))
                Your own times look at all rows at once: they add up to the time in which anything runs. Each row has an
                innermost event of its own.
                look: a loop over the rows, `event["tid"]`
                when: _close(sum(yours["times"].values()), _covered(events, _names(events))) and not
                    _close(sum(_own(events).values()), _covered(events, _names(events)))
            = (_busy(events, waits), _own_of_latest(events))
                When two events of a row start together, the shorter one is inside. Your own times take the longer one.
                look: the sort: by the start, then the longest first
                when: _start_together(events) and _close(yours["The busy share"], expected["The busy share"])
            """,
            *(
                Mistake(
                    sentence,
                    *(lambda events, waits, f=f: (f(events, waits), _own(events)) for f in functions),
                    when=_has_share(*functions),
                )
                for sentence, functions in WRONG_SHARES.items()
            ),
            *(
                Mistake(
                    sentence,
                    *(lambda events, waits, f=f: (_busy(events, waits), f(events)) for f in functions),
                    when=_has_times(*functions),
                )
                for sentence, functions in WRONG_TIMES.items()
            ),
        ],
        also_right=[
            lambda events, waits: (torch.tensor(_busy(events, waits)), Counter(_minus(events, direct=True))),
            lambda events, waits: [_busy(events, waits), _own(events)],
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# one_graph


def _exposed(x: Tensor, gain: Tensor) -> Tensor:
    x = x / x.abs().max().detach()
    bright = x.min() > 0
    root = torch.where(bright, x, 1.0).sqrt()
    return torch.where(bright, root, x) * gain


def _exposed_in_pieces(x: Tensor, gain: Tensor) -> Tensor:
    """The function that the lab gives, to be put into one graph."""
    largest = x.abs().max().item()
    print("largest:", largest)
    x = x / largest
    if x.min() > 0:
        x = x.sqrt()
    return x * gain


def _by_cond(x: Tensor, gain: Tensor) -> Tensor:
    x = x / x.abs().max().detach()
    return torch.cond(x.min() > 0, lambda x: x.sqrt(), lambda x: x.clone(), (x,)) * gain


def _by_exponent(x: Tensor, gain: Tensor) -> Tensor:
    with torch.no_grad():
        largest = torch.linalg.vector_norm(x, float("inf"))
    x = x / largest
    return gain * x ** torch.where((x > 0).all(), 0.5, 1.0)


def _reports_when_eager(x: Tensor, gain: Tensor) -> Tensor:
    if not torch.compiler.is_compiling():
        print("largest:", x.abs().max().item())
    return _exposed(x, gain)


class _Exposure(nn.Module):
    def forward(self, x: Tensor, gain: Tensor) -> Tensor:
        return _exposed(x, gain)


def _reports_aside(x: Tensor, gain: Tensor) -> Tensor:
    torch.compiler.disable(lambda x: x.abs().max().item())(x)
    return _exposed(x, gain)


def _not_compiled(x: Tensor, gain: Tensor) -> Tensor:
    return torch.compiler.disable(_exposed)(x, gain)


def _compiled_itself(x: Tensor, gain: Tensor) -> Tensor:
    return torch.compile(_exposed, backend="eager")(x, gain)


def _asks_item(x: Tensor, gain: Tensor) -> Tensor:
    largest = x.abs().max().item()
    return _exposed(x / largest, gain)


def _asks_float(x: Tensor, gain: Tensor) -> Tensor:
    return _exposed(x / float(x.abs().max()), gain)


def _asks_list(x: Tensor, gain: Tensor) -> Tensor:
    largest = max(x.abs().flatten().tolist())
    return _exposed(x / largest, gain)


def _prints(x: Tensor, gain: Tensor) -> Tensor:
    print("forward of a batch of", len(x))
    return _exposed(x, gain)


def _branches(x: Tensor, gain: Tensor) -> Tensor:
    x = x / x.abs().max().detach()
    if x.min() > 0:
        x = x.sqrt()
    return x * gain


def _branches_by_expression(x: Tensor, gain: Tensor) -> Tensor:
    x = x / x.abs().max().detach()
    return (x.sqrt() if x.min() > 0 else x) * gain


def _prints_formatted(x: Tensor, gain: Tensor) -> Tensor:
    print(f"largest: {x.abs().max().item():.3f}")
    return _exposed(x, gain)


def _breaks(x: Tensor, gain: Tensor) -> Tensor:
    torch._dynamo.graph_break()
    return _exposed(x, gain)


def _batches(new: Inputs) -> list[tuple[Tensor, Tensor, Tensor]]:
    """A bright batch, all positive; a dark one, first with negative values, one of them the largest, then with 0."""
    found = []
    for _ in range(2):
        shape = new.size(2, 4), 3, *new.sizes(2, 3, 6)
        bright = new.rand(*shape) * 100 + 60
        dark = new.rand(*shape) * 180 - 60
        dark[1] = bright[1]
        bright[0, 0, 0, 0] = bright.max() * 1e-5
        dark.view(-1)[1:3] = torch.tensor([0.0, -200.0 - new.size(0, 50)])
        if found:  # the second time, 0 is the smallest value
            dark = dark.clamp(min=0)
        found.append((bright, dark, new.rand(3, 1, 1) + 0.5))
    return found


def _inlined(answer: Callable) -> Callable:
    """A function that calls the answer: `@torch.compiler.disable` on the answer itself then counts."""

    def through(*inputs: Any) -> Any:
        return answer(*inputs)

    return through


def _ours(file: str, number: int) -> bool:
    """Tell whether this line is the call of the answer in `_inlined`."""
    code = _inlined.__code__
    return file == code.co_filename and code.co_firstlineno <= number <= code.co_firstlineno + 8


def _captured(answer: Callable, bright: Tensor, dark: Tensor, gain: Tensor) -> Found:
    """What the compiled answer computes for both batches, with gradients; graphs, and where the first one ends."""

    def results(function: Callable) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for name, images in (("bright", bright), ("dark", dark)):
            x, factor = images.clone().requires_grad_(), gain.clone().requires_grad_()
            result = call(function, x, factor, may_change=True, may_return_none=True)
            if not isinstance(result, Tensor):
                found["instead"] = result
                continue
            found[name] = result.detach()
            gradients: Sequence[Tensor | None] = (None, None)
            if result.requires_grad:
                weights = torch.linspace(0.5, 2, result.numel()).view(result.shape)
                gradients = torch.autograd.grad((result * weights).sum(), (x, factor), allow_unused=True)
            found |= {f"{name} x": gradients[0], f"{name} gain": gradients[1]}
        return found

    attempted(answer)
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
        found: Found = {"eager": results(answer)}  # errors of the answer itself are raised here
        with compiling.counting() as backend:
            try:
                found["compiled"] = results(torch.compile(_inlined(answer), backend=backend))
            except AnswerRaised as raised:
                if not isinstance(raised.error, torch._dynamo.exc.TorchDynamoException):
                    raise
            cuts = backend.breaks
            found |= {"graphs": len(backend.graphs), "again": "; ".join(backend.reasons)}
        found["cut"] = bool(cuts) or "compiled" not in found or found["graphs"] == 0
        if found["cut"]:
            broken = compiling.first_break(_inlined(answer), bright, gain)
            places = [*cuts, *([(broken.file, broken.number, broken.line)] if broken else [])]
            found["reason"] = broken.reason if broken else ""
            unknown = "@torch.compiler.disable" if "compiler.disable" in found["reason"] else "your function"
            found["line"] = next((line for *place, line in places if line and not _ours(*place)), unknown)
    return found


def _one_graph(ask: Any, bright: Tensor, dark: Tensor, gain: Tensor) -> Found:
    seen = ask.observe(_captured, bright, dark, gain)
    for ran in ("eager", "compiled"):
        if "instead" in seen.get(ran, {}):
            return {"instead": seen[ran]["instead"]}
    found = dict(seen)
    for ran, said in (("eager", ""), ("compiled", ", compiled")):
        for name in ("bright", "dark") if ran in seen else ():
            results = seen[ran]
            found[f"The result for the {name} batch{said}"] = results[name]
            found[f"The gradient of x for the {name} batch{said}"] = results[f"{name} x"]
            found[f"The gradient of gain for the {name} batch{said}"] = results[f"{name} gain"]
    found["One graph"] = not seen["cut"] and seen["graphs"] == 1
    return found


def _computes(*functions: Callable) -> Callable:
    """The results are those of a wrong function, in both batches; gradients do not matter."""

    def when(yours: Found, expected: Found, bright: Tensor, dark: Tensor, gain: Tensor) -> bool:
        def same(a: Any, b: Tensor) -> bool:
            return isinstance(a, Tensor) and a.shape == b.shape and torch.allclose(a, b, 1e-4, 1e-5, equal_nan=True)

        pairs = [(yours["eager"]["bright"], bright), (yours["eager"]["dark"], dark)]
        right = all(same(result, _exposed(x, gain)) for result, x in pairs)
        return not right and any(all(same(result, f(x, gain)) for result, x in pairs) for f in functions)

    return when


def _gradients_of(yours: Found) -> list[Any]:
    return [value for ran in ("eager", "compiled") for name, value in yours.get(ran, {}).items() if " " in name]


def _gradients_equal(*functions: Callable) -> Callable:
    def when(yours: Found, expected: Found, bright: Tensor, dark: Tensor, gain: Tensor) -> bool:
        def same_gradients(function: Callable) -> bool:
            pairs = [(yours["eager"]["bright x"], bright), (yours["eager"]["dark x"], dark)]
            return all(torch.allclose(mine, _gradient(function, x, gain), 1e-4, 1e-6) for mine, x in pairs)

        return not same_gradients(_exposed) and any(same_gradients(function) for function in functions)

    return when


def _gradient(function: Callable, images: Tensor, gain: Tensor) -> Tensor:
    x = images.clone().requires_grad_()
    result = function(x, gain)
    weights = torch.linspace(0.5, 2, result.numel()).view(result.shape)
    return torch.autograd.grad((result * weights).sum(), x)[0]


def _cut_at(*words: str) -> Callable:
    return lambda yours, *_: any(word in yours["line"] for word in words)


def _only_smallest(yours: Found, expected: Found) -> bool:
    """The result for the bright batch is wrong where its value is small, and nowhere else."""
    mine, right = yours["eager"]["bright"], expected["eager"]["bright"]
    wrong = ~torch.isclose(mine, right, 1e-3, 1e-5)
    return bool(wrong[0, 0, 0, 0]) and wrong.sum() == 1


def _by_a_factor(mine: Tensor, right: Tensor) -> bool:
    factors = (mine / right)[right != 0]
    return torch.allclose(factors, factors[0].expand_as(factors), 1e-3) and not _close(factors[0], 1.0)


def _by_gain(yours: Found, bright: Tensor, dark: Tensor, gain: Tensor) -> bool:
    pairs = [(yours["eager"][name], _exposed(x, gain)) for name, x in (("bright", bright), ("dark", dark))]
    right = [torch.allclose(mine, result, 1e-4, 1e-5) for mine, result in pairs]
    without = [torch.allclose(mine * gain, result, 1e-4, 1e-5) for mine, result in pairs]
    return sum(right) == sum(without) == 1


_exposing = lambda *places: changed(_exposed, *places)  # noqa: E731
_THROUGH_SCALE = _exposing((".detach()", ""))
_DIVIDED_ASIDE = _exposing(("x = x / x.abs().max().detach()", "x = x + (x / x.abs().max() - x).detach()"))
_BRANCHES = {
    "You brighten a batch whose smallest value is 0. Only if *all* values are above 0, it gets the root.": [
        _exposing(("x.min() > 0", "x.min() >= 0")),
    ],
    "The brightening is gone: your result is the same with and without values that are not positive.": [
        _exposing(("torch.where(bright, root, x)", "x")),
    ],
    "You take the root of every batch. A batch with values that are not positive stays as it is.": [
        _exposing(("torch.where(bright, root, x)", "x.sqrt()")),
        _exposing(("torch.where(bright, root, x)", "x.abs().sqrt()")),
        _exposing(("torch.where(bright, root, x)", "x.clamp(min=0).sqrt()")),
        _exposing(("torch.where(bright, root, x)", "root")),
    ],
    "You decide for each value; the original decides once for the whole batch.": [
        _exposing(("torch.where(bright, root, x)", "torch.where(x > 0, x.abs().sqrt(), x)")),
    ],
    "You decide for each image; the original decides once for the whole batch.": [
        _exposing(("x.min() > 0", "x.amin((1, 2, 3), keepdim=True) > 0")),
    ],
    "Your branches are swapped: the root is for the batch in which all values are positive.": [
        _exposing(("torch.where(bright, root, x)", "torch.where(bright, x, x.sqrt())")),
        _exposing(("torch.where(bright, root, x)", "torch.where(bright, x, x.abs().sqrt())")),
        _exposing(("torch.where(bright, root, x)", "torch.where(bright, x, root)")),
    ],
    "Your result is not divided by the largest absolute value of the batch.": [
        _exposing(("x / x.abs().max().detach()", "x")),
    ],
    "You divide by the largest value; the original divides by the largest absolute value, which may be a negative "
    "value's.": [
        _exposing(("x.abs().max()", "x.max()")),
        _exposing(("x.abs().max()", "x.amax()")),
    ],
    "You divide each image by a largest value of its own; the original has one for the whole batch.": [
        _exposing(("x.abs().max()", "x.abs().amax((1, 2, 3), keepdim=True)")),
        _exposing(
            ("x.abs().max()", "x.abs().amax((1, 2, 3), keepdim=True)"),
            ("x.min() > 0", "x.amin((1, 2, 3), keepdim=True) > 0"),
        ),
    ],
    "Your result is not multiplied by `gain`.": [_exposing((" * gain", ""))],
}

exercise(
    "one_graph",
    seconds=SLOW_START,
    title="One graph",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="In one graph, tensors decide inside of operations, and both branches have to be safe in backward.",
    hints=(
        "Three lines leave the world of tensors: one makes a Python number, one prints it, and one lets Python decide "
        "by it. The print may go. What did `.item()` do to the gradient?",
        "`x.abs().max().detach()` is the number as a tensor. `torch.where(condition, a, b)` computes both a and b, and "
        "picks; backward goes through both, and 0 times inf is nan.",
        "Make the input of the root safe before you take it: `torch.where(bright, x, 1.0).sqrt()`. Then pick with a "
        "second `torch.where`.",
    ),
    spec=Spec(
        draw=_batches,
        solution=_exposed,
        measure=_one_graph,
        by_case=True,
        mistakes=[
            """
            = _exposed(x, gain).tolist()
            = print(end="")
                Your function should return a tensor; it returned {yours[instead]}.
                when: _instead
            """,
            *(Mistake(sentence, *functions, when=_computes(*functions)) for sentence, functions in _BRANCHES.items()),
            """
            torch.where(bright, x, 1.0).sqrt() → x.clamp(min=1e-2).sqrt() || x.clamp(min=1e-4).sqrt()
                    || (x.clamp(min=0) + 1e-5).sqrt()
                Your root changes small positive values. Any value above 0 counts, so a floor or an eps is no way to
                keep the root safe.
                look: `torch.where` before the root
                when: _only_smallest(yours, expected)
            x.abs().max().detach() → x.abs().mean().detach() || (x.max() - x.min()).detach() || x.abs().sum().detach()
                You divide by another number than the largest absolute value of the batch.
                when: _by_a_factor(yours["eager"]["dark"], _exposed(dark, gain))
            torch.where(bright, root, x) * gain → torch.where(bright, root * gain, x)
                    || torch.where(bright, root, x * gain)
                In one of the two kinds of batches, your result is not multiplied by `gain`.
                when: _by_gain(yours, bright, dark, gain)
            torch.no_grad()(_exposed)
            = _exposed(x, gain).detach()
            = _exposed(x.detach(), gain)
                No gradient arrives at `x` or `gain`: something cuts your result off from its graph.
                look: only the largest value is a constant: `.detach()` belongs to it alone
                when: any(gradient is None for gradient in _gradients_of(yours))
            torch.where(bright, x, 1.0).sqrt() → x.sqrt() || x.abs().sqrt()
                Your results are right, but the gradient has nan in it. `torch.where` computes both branches, and
                backward multiplies the one that isn't picked by 0: 0 times inf is nan.
                look: what goes into the root where its result is not used
                when: any(gradient.isnan().any() for gradient in _gradients_of(yours))
            .detach() →
                Your results are right, but the gradient also flows through the largest value. `.item()` made it a
                number, a constant for backward.
                look: `.detach()` does for a tensor what `.item()` did for the gradient
                when: _gradients_equal(_THROUGH_SCALE)
            x = x / x.abs().max().detach() → x = x + (x / x.abs().max() - x).detach()
                Your results are right, but the division is not in the graph: the gradient is not divided.
                look: `x.data` and `no_grad` hide an operation from backward
                when: _gradients_equal(_DIVIDED_ASIDE)
            _prints, _prints_formatted
                Your function is right, but not in one graph. Printing is Python's work, so the graph ends at
                `{yours[line]}`.
                look: leave the print out
                when: _cut_at("print(")
            _not_compiled, _reports_aside
                Your function, or a part of it, is taken out of compilation. The graph ends there: `{yours[line]}`.
                look: `torch.compiler.disable`
                when: "compiler.disable" in yours["reason"] + yours["line"]
            _asks_item, _asks_float, _asks_list, _exposed_in_pieces
                Your function is right, but not in one graph. `{yours[line]}` asks for a Python number, and the graph
                ends there.
                look: keep the number as a tensor: `.detach()` instead of `.item()`
                when: _cut_at(".item()", "float(", "int(", ".tolist()", ".numpy()")
            _branches, _branches_by_expression
                Your function is right, but not in one graph. At `{yours[line]}` Python has to know which way to go, and
                that depends on the data.
                look: `torch.where` picks inside the graph
                when: _cut_at("if ", "while ", " and ", " or ", "not ", "bool(", "assert ")
            _breaks
                Your function is right, but not in one graph. PyTorch says at `{yours[line]}`: {yours[reason]}
                when: yours["cut"]
            """,
        ],
        also_right=[
            _by_cond,
            _by_exponent,
            _reports_when_eager,
            _Exposure(),
            _compiled_itself,
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# no_recompiles


class _Steady(nn.Module):
    def __init__(self, width: int, backend: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.register_buffer("calls", torch.zeros(()))
        self.compiled = torch.compile(self.compute, backend=backend, dynamic=True)

    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        return self.compiled(x, torch.tensor(-1.0 if mirror else 1.0))

    def compute(self, x: Tensor, sign: Tensor) -> Tensor:
        self.calls += 1
        warm = (self.calls / 5).clamp(max=1)
        return (x - x.mean(dim=0)) * self.scale * warm * sign


class _Flips(_Steady):
    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        result = super().forward(x, False)
        return result.flip(1) if mirror else result


class _Restless(nn.Module):
    """The module that the lab gives."""

    def __init__(self, width: int, backend: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.calls = 0
        self.compiled = torch.compile(self.compute, backend=backend, dynamic=False)

    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        return self.compiled(x, mirror)

    def compute(self, x: Tensor, mirror: bool) -> Tensor:
        self.calls += 1
        x = (x - x.mean(dim=0)) * self.scale * min(1.0, self.calls / 5)
        return -x if mirror else x


class _CountsOutside(nn.Module):
    def __init__(self, width: int, backend: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.calls = 0
        self.compiled = torch.compile(lambda x: (x - x.mean(dim=0)) * self.scale, backend=backend)

    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        self.calls += 1
        factor = min(1.0, self.calls / 5)
        return self.compiled(x) * (-factor if mirror else factor)


class _Marks(_Steady):
    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        torch._dynamo.mark_dynamic(x, 0)
        return super().forward(x, mirror)


class _Pads(nn.Module):
    """One size for all: the padding takes no part in the mean."""

    def __init__(self, width: int, backend: Any) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.ones(width))
        self.calls = 0
        self.compiled = torch.compile(self.compute, backend=backend, dynamic=False)

    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        self.calls += 1
        factor = torch.tensor(min(1.0, self.calls / 5) * (-1 if mirror else 1))
        padded = F.pad(x, (0, 0, 0, 64 - len(x)))
        return self.compiled(padded, torch.tensor(float(len(x))), factor)[: len(x)]

    def compute(self, x: Tensor, rows: Tensor, factor: Tensor) -> Tensor:
        return (x - x.sum(dim=0) / rows) * self.scale * factor


class _OneForEachSign(_Steady):
    """A Python flag has two values: two compilations, if the size is dynamic from the start."""

    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        return self.compiled(x, mirror)

    def compute(self, x: Tensor, mirror: bool) -> Tensor:
        self.calls += 1
        x = (x - x.mean(dim=0)) * self.scale * (self.calls / 5).clamp(max=1)
        return -x if mirror else x


class _NumberOfWholeType(_CountsOutside):
    """`min(1, 5 / 5)` is an int, and torch.tensor makes an int64 tensor of it."""

    def __init__(self, width: int, backend: Any) -> None:
        super().__init__(width, backend)
        self.compiled = torch.compile(lambda x, f: (x - x.mean(dim=0)) * self.scale * f, backend=backend)

    def forward(self, x: Tensor, mirror: bool) -> Tensor:
        self.calls += 1
        factor = min(1, self.calls / 5)
        return self.compiled(x, torch.tensor(-factor if mirror else factor))


class _CutSteady(_Steady):
    def compute(self, x: Tensor, sign: Tensor) -> Tensor:
        x = x * sign
        torch._dynamo.graph_break()
        x = x - x.mean(dim=0)
        torch._dynamo.graph_break()
        self.calls += 1
        return x * self.scale * (self.calls / 5).clamp(max=1)


def _calls(new: Inputs) -> list[tuple[int, list[Tensor], list[bool], Tensor]]:
    found = []
    for _ in range(2):
        width = new.size(2, 5)
        sizes = new.sizes(10, 6, 64)  # never the width: PyTorch would take equal sizes for one and the same
        flags = [False, True] if new.size(0, 1) else [True, False]
        flags += [bool(new.size(0, 1)) for _ in range(6)] + flags
        found.append((width, [new.randn(size, width) + 1 for size in sizes], flags, new.rand(width) + 0.5))
    return found


@contextlib.contextmanager
def _no_compiler() -> Iterator[None]:
    """`torch.compile` without a backend uses none that takes seconds and needs a compiler."""
    real = torch.compile
    with mock.patch.object(torch, "compile", lambda *args, **options: real(*args, **{"backend": "eager"} | options)):
        yield


def _stepped(answer: Callable, width: int, batches: list[Tensor], flags: list[bool], scale: Tensor) -> Found:
    """What the module returns call by call, the gradient of its parameter, and what was compiled."""
    attempted(answer)
    results: list[Any] = []
    ran: list[bool] = []
    changed_batch, uncompiled = False, 0
    with compiling.counting() as backend, warnings.catch_warnings(action="ignore"), _no_compiler():
        model = call(answer, width, _noting(backend, ran), may_change=True)
        if not isinstance(model, nn.Module):
            return {"instead": model}
        parameters = [*model.parameters()]
        if [tuple(p.shape) for p in parameters] != [(width,)]:
            return {"parameters": [(name, tuple(p.shape)) for name, p in model.named_parameters()]}
        start = parameters[0].detach().clone()
        with torch.no_grad():
            parameters[0].copy_(scale)
        for x, mirror in zip(batches, flags, strict=True):
            given, before = x.clone(), len(ran)
            results.append(call(model, given, mirror, may_change=True))
            changed_batch = changed_batch or not torch.equal(given, x)
            uncompiled += len(ran) == before
            if len(results) == 1:
                first = len(backend.graphs)
        whole = [result for result in results if isinstance(result, Tensor) and result.requires_grad]
        if len(whole) == len(results):
            sum(
                (result * torch.linspace(0.5, 2, result.numel()).view(result.shape)).sum() for result in whole
            ).backward()
        return {
            "results": [result.detach() if isinstance(result, Tensor) else result for result in results],
            "gradient": parameters[0].grad,
            "start": start,
            "graphs": len(backend.graphs),
            "in the first call": first,
            "outside": _outside(backend),
            "reasons": backend.reasons,
            "changed": changed_batch,
            "uncompiled": uncompiled,
        }


def _noting(backend: compiling.CountingBackend, ran: list[bool]) -> Callable:
    """The backend; each run of what it compiled adds to `ran`."""

    def noting(graph: torch.fx.GraphModule, inputs: list[Any]) -> Callable:
        run = backend(graph, inputs)
        return lambda *args: (ran.append(True), run(*args))[1]

    return noting


def _outside(backend: compiling.CountingBackend) -> str:
    """What the graphs lack: the mean, which is some reduction over the rows, or the scale."""
    nodes = [node for graph in backend.graphs for node in graph.graph.nodes]
    if not any(re.search("mean|sum|norm|mm|mul_?mat|matmul|linear|einsum|reduce", str(node.target)) for node in nodes):
        return "mean"
    leaves = [node.meta.get("example_value") for node in nodes if node.op in ("placeholder", "get_attr")]
    return "" if any(isinstance(leaf, nn.Parameter) for leaf in leaves) else "scale"


def _ten_calls(ask: Any, width: int, batches: list[Tensor], flags: list[bool], scale: Tensor) -> Found:
    seen = ask.observe(_stepped, width, batches, flags, scale)
    if "results" not in seen:
        return seen
    found = dict(seen)
    found["The scale at the start"] = seen["start"]
    for number, (result, x) in enumerate(zip(seen["results"], batches, strict=True), 1):
        found[f"The result of call {number}, a batch of {len(x)},"] = result
    found["The gradient of the scale"] = seen["gradient"]
    found["At most two compilations"] = 1 <= seen["graphs"] <= 2
    found["calls"] = len(batches)
    found["size"] = next((reason for reason in seen["reasons"] if "size mismatch" in reason), "")
    found["Mean and scale are compiled"] = not seen["outside"] and not seen["uncompiled"]
    found["The batch is as before"] = not seen["changed"]
    return found


def _results_of(*classes: type) -> Callable:
    """The results are those of a wrong module, whatever was compiled."""

    def when(yours: Found, expected: Found, width: int, batches: list, flags: list, scale: Tensor) -> bool:
        def same(results: list[Any]) -> bool:
            return all(
                isinstance(mine, Tensor) and mine.shape == other.shape and torch.allclose(mine, other, 1e-4, 1e-5)
                for mine, other in zip(yours["results"], results, strict=True)
            )

        def of(kind: type) -> list[Tensor]:
            model = kind(width, "eager")
            model.compiled = model.compute
            with torch.no_grad():
                model.scale.copy_(scale)
                return [model(x, mirror) for x, mirror in zip(batches, flags, strict=True)]

        return not same(expected["results"]) and any(same(of(kind)) for kind in classes)

    return when


def _by_factors(yours: list, expected: list) -> bool:
    """Each result is the right one times a factor above 0, which is not always 1."""
    pairs = [(mine / right).flatten() for mine, right in zip(yours, expected, strict=True)]
    same = all(torch.allclose(each, each[0].expand_as(each), 1e-2) and each[0] >= 0 for each in pairs)
    return same and not all(_close(each[0], 1.0) for each in pairs)


_steady = lambda *places: changed(_Steady, *places)  # noqa: E731
_restless = lambda *places: changed(_Restless, *places)  # noqa: E731
_WRONG_STEPS: dict[str, list[type]] = {
    "Your counter never moves: every call gets the factor of the first one.": [
        _steady(("        self.calls += 1\n", ""), ("torch.zeros(())", "torch.ones(())")),
    ],
    "Your counter is one behind: the first call has the factor 1/5, not 0.": [
        _steady(("        self.calls += 1\n", ""), ("* warm * sign", "* warm * sign + 0 * self.calls.add_(1)")),
    ],
    "Your counter is one ahead: the first call has the factor 1/5.": [
        _steady(("torch.zeros(())", "torch.ones(())")),
    ],
    "Your factor goes on growing after the fifth call; it stays at 1.": [_steady((".clamp(max=1)", ""))],
    "The warm-up is gone: in each new module, the first calls have factors below 1.": [
        _steady(("* warm * sign", "* sign")),
    ],
    "You do not subtract the mean of the batch.": [_steady(("(x - x.mean(dim=0))", "x"))],
    "Your result does not depend on `mirror`.": [_steady(("-1.0 if mirror else 1.0", "1.0"))],
    "Where `mirror` is set, you reorder rows or columns. `RestlessStep` returns −x there.": [
        _Flips,
    ],
    "Your `mirror` works the other way around.": [_steady(("-1.0 if mirror else 1.0", "1.0 if mirror else -1.0"))],
    "You take the mean over the padding as well: only the rows of the batch count.": [
        changed(_Pads, ("x.sum(dim=0) / rows", "x.mean(dim=0)")),
    ],
    "You take the mean of all numbers; each column has a mean of its own (`dim=0`).": [
        _steady(("x.mean(dim=0)", "x.mean()")),
    ],
    "You take the mean of each row; the mean over the batch is `dim=0`.": [
        _steady(("x.mean(dim=0)", "x.mean(dim=1, keepdim=True)")),
    ],
    "Your result is not multiplied by `self.scale`.": [_steady((" * self.scale", ""))],
}

exercise(
    "no_recompiles",
    seconds=SLOW_START,
    title="Compiled once, for all",
    minutes=10,
    difficulty=3,
    points=3,
    takeaway="PyTorch compiles for what it saw: Python numbers are part of the code, tensors are data.",
    hints=(
        "Three things change from call to call: the batch size, the counter and the flag. For each, ask whether the "
        "compiled code sees a Python value or a tensor.",
        '`dynamic=False` compiles for every size. The counter may be a buffer: `self.register_buffer("calls", '
        "torch.zeros(()))`; or it may stay outside of what is compiled.",
        "Let `forward` turn the flag into a tensor before it calls the compiled function: "
        "`torch.tensor(-1.0 if mirror else 1.0)`. The factor is `(self.calls / 5).clamp(max=1)`.",
    ),
    spec=Spec(
        draw=_calls,
        solution=_Steady,
        measure=_ten_calls,
        by_case=True,
        mistakes=[
            """
            lambda width, backend: _Steady(width, backend).forward
                Your class should make an `nn.Module`; it made {yours[instead]}.
                when: _instead
            self.register_buffer("calls", torch.zeros(())) → self.calls = nn.Parameter(torch.zeros(()))
            nn.Parameter(torch.ones(width)) → torch.ones(width)
                The parameters of your module are {yours[parameters]}; there should be one, the scale, with a number for
                each of the {width} columns.
                when: "parameters" in yours
            """,
            *(Mistake(sentence, *classes, when=_results_of(*classes)) for sentence, classes in _WRONG_STEPS.items()),
            r"""
            return (x → return (x.detach() && self.scale * → self.scale.detach() *
                The scale gets no gradient: something cuts the results off from their graph.
                look: `.detach()`, `torch.no_grad()`
                when: yours["gradient"] is None
            torch.compile(self.compute, backend=backend, dynamic=True) → self.compute
            , backend=backend →
            self.compiled(x, → torch.compiler.disable(self.compute)(x,
                Nothing was compiled: your module never uses the backend.
                look: `torch.compile(..., backend=backend)`, and call what it returns
                when: yours["graphs"] == 0
            self.compiled(x, → self.compiled(x - x.mean(dim=0), && (x - x.mean(dim=0)) → x
            self.compiled( → self.scale * self.compiled( && * self.scale →
                You compute the {yours[outside]} outside of what is compiled. Mean and scale belong to the compiled
                part.
                look: what the function that you give to `torch.compile` computes
                when: yours["outside"]
            self.compiled(x, → (self.compute if mirror else self.compiled)(x,
                {yours[uncompiled]} of {yours[calls]} calls run nothing compiled.
                look: call what `torch.compile` returned in each call, whatever `mirror` says
                when: yours["uncompiled"] and yours["graphs"] <= 2
            return (x - x.mean(dim=0)) → x -= x.mean(dim=0)\n        return x
                Your module changes the batch that it gets, and the caller has lost it.
                look: what works in place: `x -= …`, `x.sub_(…)`; write `x = x - …`
                when: not yours["The batch is as before"]
            * warm → * (1 - (-self.calls / 2).exp()) || * (self.calls / 10).clamp(max=1)
                    || * (self.calls / 5).clamp(min=1)
                Your factor of the warm-up is wrong. In call n, it is n / 5, but never more than 1.
                when: _by_factors(yours["results"], expected["results"])
            _CutSteady
                The code is cut into {yours[in the first call]} graphs, each of them compiled on its own: the first call
                alone compiles {yours[in the first call]} times.
                look: what PyTorch cannot put into a graph: `print`, `.item()`, an `if` that asks a tensor
                when: yours["graphs"] > 2 and yours["in the first call"] > 1
            _restless((", dynamic=False", ""))
            _restless(("dynamic=False", "dynamic=True"))
            _restless(("dynamic=False", "dynamic=True"), ("return -x if mirror else x", "return x * mirror"),
                    ("self.compiled(x, mirror)", "self.compiled(x, torch.tensor(-1.0 if mirror else 1.0))"))
                {yours[graphs]} compilations for {yours[calls]} calls: the counter is a Python number of the module, and
                the code is compiled for one value of it.
                look: make it a tensor (a buffer), or count outside of what is compiled
                when: yours["graphs"] > 2 and any("calls ==" in each for each in yours["reasons"])
            changed(_OneForEachSign, ("_Steady", "_steady(('dynamic=True', 'dynamic=None'))"))
                {yours[graphs]} compilations for {yours[calls]} calls: the size costs two, and the flag is a Python
                value in your compiled code, so each of its values costs one more.
                look: let the compiled function get the sign as a tensor; or tell PyTorch from the start that the size
                    changes
                when: yours["graphs"] > 2 and any(re.search("== (True|False)", each) for each in yours["reasons"])
            _NumberOfWholeType
                {yours[graphs]} compilations for {yours[calls]} calls: a tensor that you make has another dtype in some
                of them. PyTorch says: {yours[reasons][1]}
                look: `torch.tensor(1)` is int64; `torch.tensor(1.0)` is float32
                when: yours["graphs"] > 2 and any("dtype mismatch" in each for each in yours["reasons"])
            dynamic=True → dynamic=False
            _Restless
                {yours[graphs]} compilations for {yours[calls]} calls, some of them only for another batch size. PyTorch
                says: {yours[size]}
                look: `dynamic=True`. With False, each size costs a compilation; without `dynamic=`, each compiled
                    function costs two, one for the first size and one for any size
                when: sum("size mismatch" in each for each in yours["reasons"]) > 1
            self.compiled(x, → self.compiled(x if self.calls % 3 else x.clone().requires_grad_(), && , dynamic=True →
                {yours[graphs]} compilations for {yours[calls]} calls; two are enough. PyTorch says: {yours[reasons]}
                when: yours["graphs"] > 2
            """,
        ],
        also_right=[
            _CountsOutside,
            _Marks,
            _Pads,
            _OneForEachSign,
            _steady((", dynamic=True", "")),
            _steady(("dynamic=True", "fullgraph=True, dynamic=True")),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# keep_layout

LAST = torch.channels_last


class _Shuffled(nn.Module):
    """The network that the lab gives, but for its layout."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, channels, 3, padding=1)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.conv3 = nn.Conv2d(channels, channels, 3, padding=1, groups=2)
        self.head = nn.Linear(channels, 10)

    def shuffle(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        x = x.reshape(batch, 2, channels // 2, height, width).transpose(1, 2)
        return x.reshape(batch, channels, height, width)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv1(x))
        x = F.relu(self.conv2(x))
        x = self.shuffle(x)
        x = F.relu(self.conv3(x))
        return self.head(x.mean((2, 3)))


class _KeepsLayout(_Shuffled):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.to(memory_format=torch.channels_last)

    def shuffle(self, x: Tensor) -> Tensor:
        return super().shuffle(x).contiguous(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.contiguous(memory_format=torch.channels_last))


class _ShufflesInPlace(_KeepsLayout):
    """Without a copy to the other layout and back: the channels lie next to each other, and there they are swapped."""

    def shuffle(self, x: Tensor) -> Tensor:
        pixels = x.permute(0, 2, 3, 1)
        return pixels.unflatten(3, (2, -1)).transpose(3, 4).flatten(3).permute(0, 3, 1, 2)


class _ShufflesByPyTorch(_Shuffled):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        for layer in self.modules():
            if isinstance(layer, nn.Conv2d):
                layer.weight.data = layer.weight.data.to(memory_format=torch.channels_last)
        self.mix = nn.ChannelShuffle(2)

    def shuffle(self, x: Tensor) -> Tensor:
        return self.mix(x).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.to(memory_format=torch.channels_last))


class _Permutes(_Shuffled):
    def forward(self, x: Tensor) -> Tensor:
        return super().forward(x.permute(0, 2, 3, 1))


class _SettlesFirst(_KeepsLayout):
    """The weights get their layout before the layers are there."""

    def __init__(self, channels: int) -> None:
        nn.Module.__init__(self)
        self.to(memory_format=torch.channels_last)
        _Shuffled.__init__(self, channels)


class _SecondHead(_KeepsLayout):
    def __init__(self, channels: int) -> None:
        super().__init__(channels)
        self.extra = nn.Linear(channels, 10)


class _Layouts(TorchDispatchMode):
    """Writes down the layouts of the images and the weights of every convolution."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def __torch_dispatch__(self, func: Callable, types: Any, args: tuple = (), kwargs: dict | None = None) -> Any:
        if func.__name__.partition(".")[0] == "convolution":
            self.seen.append((_layout(args[0]), _layout(args[1])))
        return func(*args, **(kwargs or {}))


def _layout(tensor: Tensor) -> str:
    if tensor.is_contiguous(memory_format=LAST):
        return "channels_last"
    return "ordinary" if tensor.is_contiguous() else "neither ordinary nor channels_last"


def _images_and_weights(new: Inputs) -> list[tuple[int, Tensor, dict[str, Tensor]]]:
    found = []
    for _ in range(2):
        channels = 2 * new.size(3, 5)  # not 4: two groups of two can be swapped either way
        state = {name: new.randn(*value.shape) / 2 for name, value in _Shuffled(channels).state_dict().items()}
        found.append((channels, new.randn(new.size(2, 4), 3, *new.sizes(2, 5, 9)), state))
    return found


def _laid_out(answer: Callable, channels: int, images: Tensor, state: dict[str, Tensor]) -> Found:
    model = call(answer, channels, may_change=True)
    if not isinstance(model, nn.Module):
        return {"instead": model}
    shapes = {name: tuple(value.shape) for name, value in model.state_dict().items()}
    if shapes != {name: tuple(value.shape) for name, value in state.items()}:
        return {"names": sorted(shapes.items() ^ {(name, tuple(value.shape)) for name, value in state.items()})}
    model.load_state_dict(state)
    with _Layouts() as layouts:
        logits = call(model, images, may_change=True)
    if isinstance(logits, Tensor) and logits.requires_grad:
        logits.sum().backward()
    return {
        "The logits": logits.detach() if isinstance(logits, Tensor) else logits,
        "The layouts of images and weights": layouts.seen,
        "Parameters without a gradient": [name for name, p in model.named_parameters() if p.grad is None],
        "first": next((i for i, (image, _) in enumerate(layouts.seen, 1) if image != "channels_last"), None),
    }


def _image_not_last(yours: Found, number: int | None = None) -> bool:
    return yours["first"] is not None and (number is None or yours["first"] == number)


def _has_logits_of(
    kind: type, yours: Found, expected: Found, channels: int, images: Tensor, state: dict[str, Tensor]
) -> bool:
    wrong = _laid_out(kind, channels, images, state)["The logits"]
    differs = not torch.allclose(wrong, expected["The logits"], 1e-3, 1e-3)
    return differs and torch.allclose(yours["The logits"], wrong, 1e-4, 1e-5)


_keeps = lambda *places: changed(_KeepsLayout, *places)  # noqa: E731

exercise(
    "keep_layout",
    title="Channels last, all the way",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="A layout is kept from layer to layer until one reshape copies; look at strides where it matters.",
    hints=(
        "Three things need the layout: the weights, the images, and what comes out of the shuffle. Print "
        "`x.is_contiguous(memory_format=torch.channels_last)` before each convolution.",
        "`self.to(memory_format=torch.channels_last)` after the layers are made; "
        "`x.to(memory_format=torch.channels_last)` where the images come in.",
        "In the shuffle, the second `reshape` copies into the ordinary layout. Send its result through "
        "`.contiguous(memory_format=torch.channels_last)`.",
    ),
    spec=Spec(
        draw=_images_and_weights,
        solution=_KeepsLayout,
        measure=lambda ask, channels, images, state: ask.observe(_laid_out, channels, images, state),
        by_case=True,
        mistakes=[
            """
            lambda channels: _KeepsLayout(channels).forward
                Your class should make an `nn.Module`; it made {yours[instead]}.
                when: _instead
            _SecondHead
            lambda channels: _Shuffled(2 * channels)
                Your module has other parameters than the network above. They differ in: {yours[names]}
                look: keep the layers and their names, so that trained weights still fit
                when: "names" in yours
            _Permutes
                `permute` gives the images another shape, and the convolution takes the rows for channels. channels_last
                keeps the shape [B, C, H, W] and changes only the strides.
                look: `.to(memory_format=torch.channels_last)`
                when: says(yours, "to have 3 channels, but got")
            """,
            *(
                Mistake(sentence, wrong, when=partial(_has_logits_of, wrong))
                for sentence, wrong in (
                    (
                        "Your logits are wrong: the channels are not shuffled anymore.",
                        _keeps(("super().shuffle(x)", "x")),
                    ),
                    (
                        "Your shuffle goes the other way around: the channels are 2 groups of `channels // 2`, and the "
                        "axes of these two sizes change places.",
                        changed(_ShufflesInPlace, ("(2, -1)", "(-1, 2)")),
                    ),
                )
            ),
            r"""
            super().shuffle(x) → super().shuffle(x).flip(1)
            .contiguous(memory_format=torch.channels_last)) → .contiguous(memory_format=torch.channels_last)).softmax(1)
            super().shuffle(x) → x.reshape(x.shape)[:, torch.randperm(x.shape[1])]
                Your logits are not those of the network above with the same weights: more than the layout is different.
                when: isinstance(yours["The logits"], Tensor) and yours["The logits"].shape == expected["The
                    logits"].shape and not torch.allclose(yours["The logits"], expected["The logits"], 1e-3, 1e-3)
            super().shuffle(x) → super().shuffle(x.detach()) || super().shuffle(x.data)
            super().forward(x.c → torch.no_grad()(super().forward)(x.c
                Your logits are right, but backward does not reach {yours[Parameters without a gradient]}: something
                cuts the graph.
                look: `detach`, `.data`, `no_grad`, NumPy
                when: yours["Parameters without a gradient"]
            _Shuffled
            self.to(memory_format=torch.channels_last) → pass
                    && super().forward(x.contiguous(memory_format=torch.channels_last)) → super().forward(x)
                Nothing is in channels_last: neither the weights nor the images of the first convolution.
                when: yours["The layouts of images and weights"][0] == ("ordinary", "ordinary")
            self.to(memory_format=torch.channels_last) → pass
            self.to(memory_format=torch.channels_last) → pass
                    && super().shuffle(x).contiguous(memory_format=torch.channels_last) → super().shuffle(x)
            _SettlesFirst
                The weights are in the ordinary layout, so PyTorch rearranges them in every call.
                look: `self.to(memory_format=torch.channels_last)`, after the layers are made
                when: lambda yours, *_: any(weight != "channels_last" for _, weight in yours["The layouts of images and
                    weights"])
            super().forward(x.contiguous(memory_format=torch.channels_last)) → super().forward(x)
            super().forward(x.contiguous(memory_format=torch.channels_last)) → super().forward(x)
                    && super().shuffle(x).contiguous(memory_format=torch.channels_last) → super().shuffle(x)
                The images come in the ordinary layout, and the first convolution has to rearrange them.
                look: `x = x.to(memory_format=torch.channels_last)` at the start of `forward`: the call returns a new
                    tensor
                when: _image_not_last(yours, 1)
            super().shuffle(x).contiguous(memory_format=torch.channels_last) → super().shuffle(x)
            super().shuffle(x) → super().shuffle(x.contiguous())
                    && .contiguous(memory_format=torch.channels_last)\n\n    def forward → \n\n    def forward
                Convolution {yours[first]} gets its input in the ordinary layout: the reshape before it has copied, and
                the layout is lost.
                look: `return ….contiguous(memory_format=torch.channels_last)` at the end of `shuffle`; without a memory
                    format, the layout is the ordinary one
                when: _image_not_last(yours)
            """,
        ],
        also_right=[_ShufflesInPlace, _ShufflesByPyTorch],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# spare_memory


class _Block(nn.Module):
    """Four times as wide inside, with dropout, and it counts how often it runs."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.up, self.down, self.runs = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), 0

    def forward(self, x: Tensor) -> Tensor:
        self.runs += 1
        return x + self.down(F.dropout(F.gelu(self.up(x)), 0.2, self.training))


def _spare_memory(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=False)
    return x


def _plain(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for block in blocks:
        x = block(x)
    return x


def _in_one_piece(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    return checkpoint(nn.Sequential(*blocks), x, use_reentrant=False)


def _in_pairs(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for i in range(0, len(blocks), 2):
        x = checkpoint(nn.Sequential(*blocks[i : i + 2]), x, use_reentrant=False)
    return x


def _every_other(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for i, block in enumerate(blocks):
        x = checkpoint(block, x, use_reentrant=False) if i % 2 else block(x)
    return x


def _reentrant_with_gradient(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    x = x.detach().requires_grad_()
    for block in blocks:
        x = checkpoint(block, x, use_reentrant=True)
    return x


def _by_halves(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    if len(blocks) == 1:
        return checkpoint(blocks[0], x, use_reentrant=False)
    half = len(blocks) // 2
    x = checkpoint(_by_halves, blocks[:half], x, use_reentrant=False)
    return checkpoint(_by_halves, blocks[half:], x, use_reentrant=False)


def _late_name(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    for block in blocks:
        x = checkpoint(lambda y: block(y), x, use_reentrant=False)  # noqa: B023
    return x


def _without_graph(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    with torch.no_grad():
        return _plain(blocks, x)


def _by_sequential(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    return checkpoint_sequential(list(blocks), len(blocks), x, use_reentrant=False)


def _saved_on_cpu(blocks: nn.ModuleList, x: Tensor) -> Tensor:
    with torch.autograd.graph.save_on_cpu():
        return _plain(blocks, x)


def _stacks(new: Inputs) -> list[tuple[list[Tensor], Tensor]]:
    width, found = 8, []
    for depth in (new.size(6, 9), new.size(5, 7)):
        weights = [new.randn(value.numel()) / 3 for _ in range(depth) for value in _Block(width).parameters()]
        found.append((weights, new.randn(new.size(200, 300), width)))
    return found


SEED = 1_000_003  # one that no answer sets


def _kept(answer: Callable, weights: list[Tensor], x: Tensor) -> Found:
    """Output, gradients, peak of the bytes, and how often the blocks ran; the same random numbers for every answer."""
    attempted(answer)
    blocks = nn.ModuleList(_Block(x.shape[1]) for _ in range(len(weights) // 4))
    with torch.no_grad():
        for parameter, values in zip(blocks.parameters(), weights, strict=True):
            parameter.copy_(values.view_as(parameter))
    torch.manual_seed(SEED)
    weighting = torch.linspace(0.5, 2, x.numel()).view(x.shape)
    given = x.clone()
    with warnings.catch_warnings(record=True) as told, LiveBytes() as live:
        warnings.simplefilter("always")
        result = call(answer, blocks, given, may_change=True)
        if not isinstance(result, Tensor) or result.shape != x.shape:
            return {"instead": result}
        output = result.detach().clone()
        if result.requires_grad:
            loss = (result * weighting).sum()
            del result
            try:
                loss.backward()
            except RuntimeError as error:  # what was computed a second time does not fit
                if all(module.training for module in blocks.modules()):
                    raise AnswerRaised(error) from error
    gradients = [p.grad for p in blocks.parameters()]
    flat = None if any(g is None for g in gradients) else torch.cat([g.flatten() for g in gradients])
    runs = [block.runs for block in blocks]
    training = all(module.training for module in blocks.modules())
    reentrant = any("None of the inputs have requires_grad" in str(each.message) for each in told)
    seen = {"output": output, "gradients": flat, "peak": live.peak, "runs": runs, "training": training}
    return seen | {"reentrant": reentrant, "seeded": torch.initial_seed() != SEED}


def _within_the_budget(ask: Any, weights: list[Tensor], x: Tensor) -> Found:
    seen = ask.observe(_kept, weights, x)
    if "instead" in seen:
        return seen
    enough, everything = (_kept(function, weights, x)["peak"] for function in (_spare_memory, _plain))
    return {
        "The output": seen["output"],
        "The gradients": seen["gradients"],
        "Blocks back in train mode": seen["training"],
        "No block runs more than twice": max(seen["runs"]) <= 2,
        "The memory is enough": seen["peak"] <= 1.15 * enough,
        "kB": f"{seen['peak'] / 1000:.0f} kB",
        "enough": f"{enough / 1000:.0f} kB",
        "everything": f"{everything / 1000:.0f} kB",
        "too much": seen["peak"] > 0.97 * everything,
        "runs": seen["runs"],
        "most": max(seen["runs"]),
        "ones": seen["runs"].count(1),
        "reentrant": seen["reentrant"],
        "seeded": seen["seeded"],
        "count": len(seen["runs"]),
        "never": seen["runs"].count(0),
    }


def _same_output(yours: Found, expected: Found) -> bool:
    return torch.allclose(yours["The output"], expected["The output"], 1e-4, 1e-5)


exercise(
    "spare_memory",
    seconds=SLOW_START,
    title="Memory for time",
    minutes=12,
    difficulty=3,
    points=3,
    takeaway="Checkpoint the repeated block, not the whole model: backward rebuilds a whole piece at once.",
    hints=(
        "`torch.utils.checkpoint.checkpoint(function, x, use_reentrant=False)` calls the function, forgets what is "
        "inside, and calls it again in backward. What is one piece here?",
        "One checkpoint around everything saves nothing: backward rebuilds all of it at once. One around each block "
        "rebuilds one block at a time.",
        "In a loop over the blocks: `x = checkpoint(block, x, use_reentrant=False)`.",
    ),
    spec=Spec(
        draw=_stacks,
        solution=_spare_memory,
        measure=_within_the_budget,
        by_case=True,
        rtol=1e-4,
        mistakes=r"""
            lambda *given: _spare_memory(*given).sum()
            lambda *given: [_spare_memory(*given)]
                Your function should return the output of the last block, a tensor of the shape of `x`; it returned
                {yours[instead]}.
                when: _instead
            in blocks → in blocks[::-1] || in reversed(blocks)
                The blocks do not run in their order, from the first to the last.
            in blocks → in blocks[1:] || in blocks[:-1]
                The first or the last block is missing.
                when: sum(runs == 0 for runs in yours["runs"]) == 1
            False)\n    return x → False)\n        return x
            checkpoint(block, → checkpoint(blocks[0],
                {yours[never]} of the {yours[count]} blocks never run.
                look: a `return` inside the loop; a block that is the same in each pass of the loop
                when: yours["never"]
            for block → torch.manual_seed(0)\n    for block
                You seed the random numbers, so the dropout is not that of a run without checkpoints. A checkpoint keeps
                their state by itself.
                look: `torch.manual_seed`
                when: yours["seeded"]
            x = checkpoint → y = checkpoint && return x → return y
                The outputs of some blocks are lost: no gradient reaches these blocks.
                look: each block takes the output of the one before it
                when: yours["The gradients"] is None and not _same_output(yours, expected) and not yours["never"]
            checkpoint(block, → checkpoint(block.eval(),
            return x → blocks.eval()\n    return x
                Your function leaves blocks in eval mode. They should stay in train mode, with their dropout.
                when: not yours["Blocks back in train mode"]
            use_reentrant=False → use_reentrant=True
                The output is right, but no gradient arrives at the blocks. A reentrant checkpoint builds a graph only
                if its input requires a gradient, and `x` does not.
                look: `use_reentrant=False`
                when: yours["The gradients"] is None and _same_output(yours, expected) and yours["reentrant"]
            _without_graph
            lambda *given: _spare_memory(*given).detach()
            block, x, → block, x.detach(),
                The output is right, but the graph is cut: some blocks get no gradient.
                look: `torch.no_grad()`, `.detach()`
                when: yours["The gradients"] is None and _same_output(yours, expected)
            _late_name
                The second time, every piece computes with the last block: your function looks up the name of the loop
                variable when it runs, and in backward that is the last one.
                look: hand the block itself to `checkpoint`, not a function that mentions it
                when: yours["runs"][-1] > 2 and {*yours["runs"][:-1]} == {1}
            use_reentrant=False → use_reentrant=False, preserve_rng_state=False
                The output is right, but the gradients are not: the second time, dropout drew other numbers.
                look: `preserve_rng_state`
                when: _same_output(yours, expected) and yours["The gradients"] is not None and not
                    torch.allclose(yours["The gradients"], expected["The gradients"], 1e-4, 1e-5)
            _by_halves
                Blocks run up to {yours[most]} times; twice is enough, once forward and once in backward.
                look: a checkpoint inside a checkpoint, or a second call of the block
                when: not yours["No block runs more than twice"]
            _in_one_piece
                One checkpoint around everything saves nothing: backward rebuilds all blocks at once. At its peak your
                answer holds {yours[kB]}; {yours[enough]} are enough.
                look: one checkpoint for each block
                when: yours["too much"] and {*yours["runs"]} == {2}
            _plain, _saved_on_cpu
                Your answer keeps nearly everything, {yours[kB]} at its peak; {yours[enough]} are enough.
                look: `torch.utils.checkpoint.checkpoint`
                when: yours["too much"]
            = checkpoint_sequential(blocks, 2, x, use_reentrant=False)
                The last {yours[ones]} blocks run without a checkpoint: `checkpoint_sequential` leaves out its last
                piece, and yours has several blocks. At its peak your answer holds {yours[kB]}; {yours[enough]} are
                enough.
                look: one checkpoint for each block
                when: not yours["The memory is enough"] and yours["ones"] > 1 and yours["runs"][-yours["ones"] :] ==
                    yours["ones"] * [1]
            _every_other
            for block in blocks: → x = blocks[0](x)\n    for block in blocks[1:]:
                Some blocks run without a checkpoint and keep what is inside: at its peak your answer holds {yours[kB]};
                {yours[enough]} are enough.
                when: not yours["The memory is enough"] and 1 in yours["runs"][:-1]
            _in_pairs
                Your pieces are larger than one block: at its peak your answer holds {yours[kB]}; {yours[enough]} are
                enough.
                look: one checkpoint for each block
                when: not yours["The memory is enough"]
        """,
        also_right=[_by_sequential, _reentrant_with_gradient],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# watt_hours


def _watt_hours(seconds: Tensor, watts: Tensor, images: int, longest: float) -> tuple[float, float]:
    gaps = seconds.diff()
    joules = gaps * (watts[1:] + watts[:-1]) / 2
    return joules.sum().item() / 3600 / images * 1000, (joules[gaps > longest].sum() / joules.sum()).item()


def _power_traces(new: Inputs) -> list[tuple[Tensor, Tensor, int, float]]:
    """Unequal gaps, some of them long; then none, at a later time; then two samples."""
    found = []
    for count, long_gaps in ((new.size(12, 20), 3), (new.size(8, 12), 0), (2, 0)):
        gaps = (new.rand(count - 1).double() * 96).ceil() / 64 + 0.125  # exact, as a number that computers count in
        mixed = new.permutation(count - 1)
        gaps[mixed[:long_gaps]] += 4
        if long_gaps:
            gaps[mixed[-1]] = 2.0  # not longer than `longest`
        start = new.size(20, 90) + (0 if long_gaps else 1_700_000_000)  # seconds since 1970
        seconds = start + torch.cat([torch.zeros(1, dtype=torch.float64), gaps.cumsum(0)])
        watts = 80 + 300 * new.rand(count).double()
        found.append((seconds, watts, new.size(2, 40) * 1000 + new.size(200, 900), 2.0))
    return found


def _energy(ask: Any, seconds: Tensor, watts: Tensor, images: int, longest: float) -> Found:
    result = ask(seconds, watts, images, longest)
    if not isinstance(result, tuple | list) or len(result) != 2:
        return {"instead": result}
    return {"The energy": result[0], "The unmeasured share": result[1]}


def _parts(seconds: Tensor, watts: Tensor, longest: float = 2.0) -> tuple[Tensor, Tensor]:
    """The joules of each gap, and whether it is long."""
    return seconds.diff() * (watts[1:] + watts[:-1]) / 2, seconds.diff() > longest


def _joules(seconds: Tensor, watts: Tensor) -> Tensor:
    return torch.trapezoid(watts, seconds)


# Wrong energies of the whole run in joules, and wrong shares, by sentence.
WRONG_ENERGIES: dict[str, list[Callable[[Tensor, Tensor, int], Any]]] = {
    "You take the mean of all samples times the time. The samples are not equally far apart, so a sample in a long gap "
    "must count for longer.": [
        lambda s, w, images: w.mean() * (s[-1] - s[0]),
        lambda s, w, images: torch.trapezoid(w) * (s[-1] - s[0]) / (len(w) - 1),
    ],
    "Your energy is twice too large: the mean of two samples is half their sum.": [
        lambda s, w, images: 2 * _joules(s, w)
    ],
    "You cut the long gaps to `longest`. The machine ran on in them, and all of that energy counts.": [
        lambda s, w, images: ((w[1:] + w[:-1]) / 2 * s.diff().clamp(max=2.0)).sum()
    ],
    "You let each sample last until the next one, or from the one before. Between two samples, take the mean of the "
    "two.": [
        lambda s, w, images: (s.diff() * w[:-1]).sum(),
        lambda s, w, images: (s.diff() * w[1:]).sum(),
    ],
    "Your energy leaves out the long gaps. The machine ran on in them: count them, and report their share.": [
        lambda s, w, images: (parts := _parts(s, w))[0][~parts[1]].sum()
    ],
    "You add up the watts as if the samples were one second apart.": [
        lambda s, w, images: w.sum(),
        lambda s, w, images: torch.trapezoid(w),
    ],
    "Your energy is in joules (watt-seconds): 3600 joules are one watt-hour.": [
        lambda s, w, images: _joules(s, w) * 3600
    ],
    "Your energy is 60 times too large: an hour has 3600 seconds.": [lambda s, w, images: _joules(s, w) * 60],
    "Your energy is a thousand times too small: it is in kilowatt-hours, or for one image.": [
        lambda s, w, images: _joules(s, w) / 1000
    ],
    "Your energy is for the whole run, not for a thousand images.": [
        lambda s, w, images: _joules(s, w) * images / 1000
    ],
}
WRONG_UNMEASURED: dict[str, list[Callable[[Tensor, Tensor, Tensor, Tensor, int], Any]]] = {
    "A gap of exactly `longest` is not longer than that, so it is measured.": [
        lambda gaps, joules, long, watts, images: joules[gaps >= 2.0].sum() / joules.sum()
    ],
    "Your unmeasured share is 0, but there are long gaps. Like the times, `longest` is in seconds.": [
        lambda gaps, joules, long, watts, images: 0.0
    ],
    "Your unmeasured share is a share of the time; asked for is a share of the energy.": [
        lambda gaps, joules, long, watts, images: gaps[long].sum() / gaps.sum()
    ],
    "Your unmeasured share is a share of the number of gaps; asked for is a share of the energy.": [
        lambda gaps, joules, long, watts, images: long.double().mean(),
        lambda gaps, joules, long, watts, images: long.sum(),
    ],
    "You return the share that was measured; asked for is the one that was not.": [
        lambda gaps, joules, long, watts, images: joules[~long].sum() / joules.sum()
    ],
    "Your unmeasured share is an energy; divide it by the energy of the whole run.": [
        lambda gaps, joules, long, watts, images: joules[long].sum(),
        lambda gaps, joules, long, watts, images: joules[long].sum() / 3600,
        lambda gaps, joules, long, watts, images: joules[long].sum() / 3.6 / images,
    ],
    "Your unmeasured share is a percentage; it should be a number from 0 to 1.": [
        lambda gaps, joules, long, watts, images: 100 * joules[long].sum() / joules.sum()
    ],
    "In your unmeasured share, each sample lasts until the next one, or from the one before. Between two samples, take "
    "the mean of the two.": [
        lambda gaps, joules, long, watts, images: (gaps * watts[:-1])[long].sum() / (gaps * watts[:-1]).sum(),
        lambda gaps, joules, long, watts, images: (gaps * watts[1:])[long].sum() / (gaps * watts[1:]).sum(),
    ],
}


def _with_energy(joules: Callable) -> Callable:
    """The right answer, but for its energy."""
    return lambda seconds, watts, images, longest: (
        float(joules(seconds, watts, images)) / 3.6 / images,
        _watt_hours(seconds, watts, images, longest)[1],
    )


def _with_unmeasured(share: Callable) -> Callable:
    """The right answer, but for its share."""
    return lambda seconds, watts, images, longest: (
        _watt_hours(seconds, watts, images, longest)[0],
        float(share(seconds.diff(), *_parts(seconds, watts, longest), watts, images)),
    )


def _with_short_times(seconds: Tensor, watts: Tensor, images: int, longest: float) -> tuple[float, float]:
    return _watt_hours(seconds.float(), watts, images, longest)


def _part_of(functions: list[Callable], name: str, at: int) -> Callable:
    """One part of the result is wrong as one of these functions has it, whatever the other part is."""

    def when(yours: Found, expected: Found, *case: Any) -> bool:
        wrong = not _close(yours[name], expected[name])
        return wrong and any(_close(yours[name], function(*case)[at]) for function in functions)

    return when


exercise(
    "watt_hours",
    title="What a thousand images cost",
    minutes=8,
    difficulty=2,
    points=2,
    takeaway="Energy is the area under the power: each sample counts for as long as it lasts.",
    hints=(
        "Between two samples power is about the mean of the two. For how long?",
        "`seconds.diff()` has the gaps, `(watts[1:] + watts[:-1]) / 2` the mean power in each. Watts times seconds are "
        "joules, and 3600 joules are a watt-hour.",
        "`joules[gaps > longest].sum() / joules.sum()` is the share that was not measured.",
    ),
    spec=Spec(
        draw=_power_traces,
        solution=_watt_hours,
        measure=_energy,
        dtype=False,
        mistakes=[
            """
            lambda *given: _watt_hours(*given)[0]
                Your function should return two values, the energy and the unmeasured share. It returned
                {yours[instead]}.
                when: _instead
            lambda *given: _watt_hours(*given)[::-1]
                You return the two values the other way around: first the energy, then the unmeasured share.
            _with_short_times
                You round the times to float32, which has seven digits: too few for seconds since 1970.
                look: `.float()`, `torch.float32`
                when: _part_of([_with_short_times], "The energy", 0)
            """,
            *(
                Mistake(sentence, *wrong, when=_part_of(wrong, name, at))
                for at, name, made, table in (
                    (0, "The energy", _with_energy, WRONG_ENERGIES),
                    (1, "The unmeasured share", _with_unmeasured, WRONG_UNMEASURED),
                )
                for sentence, functions in table.items()
                for wrong in [[made(function) for function in functions]]
            ),
        ],
        by_case=True,
        also_right=[
            lambda seconds, watts, images, longest: (
                sum(
                    (t1 - t0) * (p0 + p1) / 7.2
                    for t0, t1, p0, p1 in zip(seconds, seconds[1:], watts, watts[1:], strict=False)
                )
                / images,
                sum(
                    (t1 - t0) * (p0 + p1) / 2
                    for t0, t1, p0, p1 in zip(seconds, seconds[1:], watts, watts[1:], strict=False)
                    if t1 - t0 > longest
                )
                / torch.trapezoid(watts, seconds),
            ),
        ],
    ),
)


# ---------------------------------------------------------------------------------------------------------------------
# Answers that the lab lends to students who have not solved the exercise yet

borrowed_limit, borrowed_share, borrowed_memory = _find_limit, _busy_share, _spare_memory
