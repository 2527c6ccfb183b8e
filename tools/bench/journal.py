"""What a measurement has so far, kept on the disk: one that was stopped, or ran out of time, goes on where it was.

A part of the benchmark asks its journal for time, hands in every value as it comes, and makes its result from what is
in there, be it everything or not.
"""

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from tools.bench.quiet import LIMIT, Reading, Turns, read, take_turns


class Journal:
    """Values by name, and a deadline.

    path: the file that keeps them; None keeps them in memory only.
    minutes: until the time is over; None means for ever, 0 that nothing new is begun.
    head: what the values depend on (device, versions, day). A file with another head is begun anew.
    """

    def __init__(self, path: Path | None = None, minutes: float | None = None, head: dict[str, Any] | None = None):
        self.path, self.head = path, head or {}
        self.deadline = None if minutes is None else time.monotonic() + 60 * minutes
        self.facts: dict[str, Any] = {}
        self.values: dict[str, list[tuple[float, Any]]] = {}  # of turns: (share that others used, result)
        self.cut = False  # whether something was left out because the time was over
        if path and path.exists():
            content = json.loads(path.read_text())
            if content["head"] == self.head:
                self.facts = content["facts"]
                self.values = {name: [tuple(turn) for turn in some] for name, some in content["values"].items()}

    @property
    def over(self) -> bool:
        """Whether the time is up."""
        return self.deadline is not None and time.monotonic() >= self.deadline

    def once(self, name: str, function: Callable[[], Any]) -> Any:
        """The value that was found before, else what `function` returns now, else (the time is over) None.

        A dict with "error" is returned, but not kept: the next run tries again.
        """
        if name in self.facts:
            return self.facts[name]
        if self.over:
            self.cut = True
            return None
        value = function()
        if not (isinstance(value, dict) and "error" in value):
            self.facts[name] = value
            self._write()
        return value

    def turns(
        self,
        contestants: dict[str, Callable[[], Any]],
        repeats: int,
        extra: int | None = None,
        say: Callable[[str], None] = lambda line: None,
        clocks: Callable[[], Reading] = read,
    ) -> dict[str, Turns]:
        """`quiet.take_turns`, with the turns of earlier runs counted in."""
        known = {name: Turns() for name in contestants}
        for name, turn in known.items():
            for share, result in self.values.get(name, []):
                (turn.kept if share <= LIMIT else turn.rejected).append((share, result))
        return take_turns(contestants, repeats, extra, clocks=clocks, say=say, known=known, journal=self)

    def add(self, name: str, share: float, result: Any) -> None:
        """Keep the result of a turn."""
        self.values.setdefault(name, []).append((share, result))
        self._write()

    def _write(self) -> None:
        if self.path:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            new = self.path.with_suffix(".new")
            new.write_text(json.dumps({"head": self.head, "facts": self.facts, "values": self.values}))
            new.replace(self.path)  # whole or not at all, also when the process is killed
