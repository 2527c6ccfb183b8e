"""Repeats that nobody disturbed: contestants take turns, and a turn in which others used the processor is taken again.

One slow spell of the machine then hits every contestant, not one, and what other programs do is seen and not guessed:
the system's busy time minus that of this program and its children is theirs.
"""

import os
import re
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import psutil

if TYPE_CHECKING:
    from tools.bench.journal import Journal

LIMIT = 0.12  # share of the processor that others may use before a turn counts as disturbed


class Reading(NamedTuple):
    """Three clocks at one moment, all in seconds; busy and own are summed over cores."""

    wall: float
    busy: float  # the whole system at work, time stolen by other virtual machines included
    own: float  # this process, its children, theirs


def read() -> Reading:
    """The three clocks now."""
    times = psutil.cpu_times()
    # guest time is part of user time already, and waiting for a disk is not work.
    idle = times.idle + getattr(times, "iowait", 0) + getattr(times, "guest", 0) + getattr(times, "guest_nice", 0)
    return Reading(time.perf_counter(), sum(times) - idle, own_time())


def own_time() -> float:
    """CPU seconds of this process and its descendants, those that ended included."""
    me = psutil.Process()
    total = 0.0
    for process in [me, *me.children(recursive=True)]:
        try:
            total += sum(process.cpu_times()[:4])  # user, system, and the same of children that have ended
        except psutil.NoSuchProcess:
            continue
    return total


def foreign(before: Reading, after: Reading, cores: int | None = None) -> float:
    """Share of the machine's processor time that others used between two readings, 0 to 1."""
    cores = cores or os.cpu_count() or 1
    used = (after.busy - before.busy) - (after.own - before.own)
    return min(1.0, max(0.0, used / max(1e-9, (after.wall - before.wall) * cores)))


@dataclass
class Turns:
    """What one contestant did in its turns."""

    kept: list[tuple[float, object]] = field(default_factory=list)  # (foreign share, result) of quiet turns
    rejected: list[tuple[float, object]] = field(default_factory=list)  # disturbed ones
    error: str | None = None  # why there are none

    def wanted(self, repeats: int, extra: int) -> bool:
        """Whether another turn is wanted: it works, too few turns were quiet, and it has not had all of them yet."""
        return not self.error and len(self.kept) < repeats and len(self.kept) + len(self.rejected) < repeats + extra

    def best(self, repeats: int) -> list[tuple[float, object]]:
        """The quiet turns; where they are too few, the least disturbed of the others with them."""
        spare = sorted(self.rejected, key=lambda turn: turn[0])
        return (self.kept + spare)[: max(repeats, len(self.kept))]

    def results(self, repeats: int) -> list:
        """What the turns of `best` returned."""
        return [result for _, result in self.best(repeats)]

    def summary(self, repeats: int) -> dict:
        """How quiet it was, for the record: repeats, rejected, foreign (the worst share that counts), disturbed."""
        counted = self.best(repeats)
        return {
            "repeats": len(counted),
            "rejected": len(self.kept) + len(self.rejected) - len(counted),
            "foreign": short(max((share for share, _ in counted), default=0.0)),
            "disturbed": len(self.kept) < repeats,
        }


def take_turns(
    contestants: dict[str, Callable[[], object]],
    repeats: int = 5,
    extra: int | None = None,
    limit: float = LIMIT,
    clocks: Callable[[], Reading] = read,
    say: Callable[[str], None] = lambda line: None,
    known: dict[str, Turns] | None = None,
    journal: "Journal | None" = None,
) -> dict[str, Turns]:
    """Each contestant's turns, A B C A B C ..., until each has `repeats` quiet ones or `extra` further rounds are over.

    A contestant that raises an exception is out; its `error` says why, and the others go on.
    known: turns that were taken before. journal: is told every turn, and ends the game when its time is over.
    """
    extra = repeats if extra is None else extra
    turns = known or {name: Turns() for name in contestants}
    for number in range(repeats + extra):
        missing = [name for name, turn in turns.items() if turn.wanted(repeats, extra)]
        if not missing:
            break
        for name in missing:
            if journal and journal.over:
                journal.cut = True
                return turns
            before = clocks()
            try:
                result = contestants[name]()
            except Exception as error:  # whatever a library throws: it is its row of the table, not our end
                turns[name].error = sentence(error)
                say(f"{name} failed: {turns[name].error}")
                continue
            share = foreign(before, clocks())
            (turns[name].kept if share <= limit else turns[name].rejected).append((share, result))
            if journal:
                journal.add(name, share, result)
            note = "" if share <= limit else f", rejected: others used {share:.0%} of the processor"
            say(f"round {number + 1}: {name} {result:,.0f}{note}" if isinstance(result, float) else f"{name}{note}")
    return turns


def sentence(error: Exception) -> str:
    """An error in one line, without the folders of this machine: it may be recorded."""
    name = "" if isinstance(error, RuntimeError) else f"{type(error).__name__}: "
    return re.sub(r"(/[\w.~+-]+)+/", "", f"{name}{error}".splitlines()[0])


def last_words(log: str) -> str:
    """Of a process that failed: the line that names the error. What is said after it (hints, tear-down) is no cause."""
    lines = [line for line in log.splitlines() if line.strip() and not line[0].isspace()]
    named = [line for line in lines if re.match(r"(\[rank\d+\]: ?)?[\w.]*(Error|Exception|Interrupt)\b", line)]
    return sentence(RuntimeError((named or lines or ["it said nothing"])[-1]))


def median_range(values: list[float]) -> dict[str, float]:
    """median, low and high of the repeats."""
    return {"median": short(statistics.median(values)), "low": short(min(values)), "high": short(max(values))}


def short(value: float) -> float:
    """Four digits: what a measurement is worth."""
    return float(f"{value:.4g}")
