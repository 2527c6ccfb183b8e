"""What comes of executing one notebook: a row of the report."""

from dataclasses import dataclass, field


@dataclass
class Number:
    """A number that a notebook recorded, or should have recorded, and its range."""

    name: str
    value: float | None
    low: float | None = None
    high: float | None = None

    @property
    def verdict(self) -> str:
        """in range, out of range, missing, or no range."""
        if self.value is None:
            return "missing"
        if self.low is None or self.high is None:
            return "no range"
        return "in range" if self.low <= self.value <= self.high else "out of range"  # NaN is out of range


@dataclass
class CellError:
    """The cell at which a notebook stopped, and why. Texts are free of ANSI colors."""

    number: int  # counted over code cells, from 1
    id: str
    source: str
    name: str
    message: str
    traceback: list[str] = field(default_factory=list)


@dataclass
class Result:
    """One row of the report."""

    chapter: str
    kind: str  # lecture or solution
    device: str  # cpu, cuda, mps, ...
    origin: str = "real"  # of the data: real or synthetic
    seconds: float = 0.0
    cpu_seconds: float = 0.0
    mib: float = 0.0
    kilobytes: float = 0.0
    budget: dict[str, float] | None = None  # seconds and mib, scaled to this machine
    numbers: list[Number] = field(default_factory=list)
    error: CellError | None = None
    failures: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    page: str | None = None  # relative to the report

    @property
    def key(self) -> str:
        """How budgets and ranges of course.toml are keyed."""
        return f"{self.device}.{self.origin}"

    @property
    def judged_seconds(self) -> float:
        """What is compared with the budget, which is wall time on two idle cores. On a busy machine, wall time also
        counts other programs; when a notebook uses several cores, processor time is more than wall time."""
        return min(self.seconds, self.cpu_seconds)

    @property
    def status(self) -> str:
        """failed, over budget, or passed."""
        if self.failures:
            return "failed"
        return "over budget" if any(note.startswith("over budget") for note in self.notes) else "passed"
