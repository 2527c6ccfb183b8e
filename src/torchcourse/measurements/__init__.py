"""Numbers that were measured on named hardware, on a named day, by a command that anyone can repeat.

They are JSON files beside this one, `TOPIC-MACHINE.json`, and travel with the package: on Colab nothing else of the
course is on the disk. Only `make bench` and `make gpu` write them; a notebook reads them, with `load`.
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).parent


@dataclass(frozen=True)
class Measurement:
    """What one file holds."""

    topic: str
    command: str  # repeats the measurement
    date: str  # ISO, the day on which it ran
    hardware: dict[str, Any]  # "device": its name, for people; "kind": "cpu", "cuda", ...; "cores", "gib", ...
    versions: dict[str, str]  # package -> version
    results: Any  # what was measured; the tool that wrote it says in which form

    @property
    def label(self) -> str:
        """Where and when, short enough for a legend or a caption."""
        return f"{self.hardware['device']}, {self.date}"


def load(topic: str, folder: Path = FOLDER) -> list[Measurement]:
    """All recorded measurements of a topic, CPUs first, then by name of the device; an empty list if there are none.

    topic: "bench", "throughput", "cifar_gains", ...; `topics()` lists them.
    """
    found = [Measurement(**json.loads(path.read_text())) for path in sorted(folder.glob(f"{topic}-*.json"))]
    return sorted(found, key=lambda m: (m.hardware["kind"] != "cpu", m.hardware["device"]))


def topics(folder: Path = FOLDER) -> list[str]:
    """The topics of which there are measurements."""
    return sorted({path.stem.split("-")[0] for path in folder.glob("*-*.json")})
