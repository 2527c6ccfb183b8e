"""What the command line hands to hub/jupyterhub_config.py: one object, through one environment variable."""

import json
import os
from dataclasses import asdict, dataclass, fields
from pathlib import Path

VARIABLE = "TORCHCOURSE_HUB"
BOARD = "board"  # the service's name


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
    admin: str
    admin_password: str
    start_path: str  # where a student lands: the nbgitpuller link without its host
    sandboxed: bool
    memory_gib: float  # per student, 0 for no limit
    threads: int  # of PyTorch, per student
    board_port: int = 0  # between students' kernels and the board of the class, on loopback; 0 without a board

    def environment(self) -> dict[str, str]:
        """The environment variable that carries these settings."""
        return {VARIABLE: json.dumps(asdict(self), default=str)}

    @classmethod
    def from_environment(cls) -> "Settings":
        """The settings of the start that this process belongs to."""
        if VARIABLE not in os.environ:
            raise SystemExit("Start the hub with `make hub`: it chooses password, ports and folders.")
        values = json.loads(os.environ[VARIABLE])
        paths = [field.name for field in fields(cls) if field.type is Path]
        return cls(**values | {name: Path(values[name]) for name in paths})
