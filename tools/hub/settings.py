"""What the command line hands to hub/jupyterhub_config.py: one object, through one environment variable."""

import json
import os
from dataclasses import asdict, dataclass
from pathlib import Path

VARIABLE = "TORCHCOURSE_HUB"
ADMIN = "instructor"  # the instructor's name at the login
BOARD = "board"  # the service's name
REPORT = f"custom:{BOARD}:report"  # the scope of students' tokens that opens the door for reports


@dataclass(frozen=True)
class Settings:
    """The choices of one start."""

    state: Path  # homes, repository, database and log
    data: Path  # the data sets; shown to students read-only
    proxy: Path  # the command configurable-http-proxy
    ip: str
    port: int
    hub_port: int  # between hub and servers, on loopback
    proxy_port: int  # between hub and proxy, on loopback
    password: str
    admin_password: str
    memory_gib: float  # per student
    board_port: int  # between students' kernels and the board of the class, on loopback; 0 without a board

    def environment(self) -> dict[str, str]:
        """The environment variable that carries these settings."""
        return {VARIABLE: json.dumps(asdict(self), default=str)}

    @classmethod
    def from_environment(cls) -> "Settings":
        """The settings of the start that this process belongs to."""
        values = json.loads(os.environ[VARIABLE])
        return cls(**values | {name: Path(values[name]) for name in ("state", "data", "proxy")})
