"""Starts a student's server in its sandbox, and keeps the sockets that lead out of it open while it runs."""

import asyncio
import contextlib
import os
import socket
import subprocess
import sys
from functools import partial
from pathlib import Path

from jupyterhub.spawner import SimpleLocalProcessSpawner

from tools import sandbox_limits
from tools.course import ROOT
from tools.hub import sandbox
from tools.hub.passwords import FROM_INSIDE
from tools.hub.sandbox_start import forward
from tools.hub.settings import Settings

AT_ONCE = {"hub": 50, "board": 4}  # connections of one student


class SandboxedSpawner(SimpleLocalProcessSpawner):
    """JupyterHub's spawner for a machine without system users, with a sandbox for each student."""

    def __init__(self, **settings):
        super().__init__(**settings)
        self._open = contextlib.ExitStack()

    async def start(self) -> tuple[str, int]:
        """Make the student's home, limits, sandbox and the sockets that lead out of it, and start the server."""
        self._open.close()
        here = Settings.from_environment()
        home = Path(self.home_dir)
        user = sandbox.settle(home)
        repositories = sorted(here.state.glob("*.git"))
        own = sandbox.furnish(here.state / "run" / self.user.name, user, repositories)
        with contextlib.ExitStack() as until_started:
            whole = int(here.memory_gib * 2**30)
            if group := sandbox_limits.MemoryGroup.make(whole):
                loop = asyncio.get_running_loop()
                self._open.callback(lambda: loop.run_in_executor(None, group.remove))
            memory = sandbox.Memory(whole, counted=group is not None)
            program = until_started.enter_context(
                sandbox_limits.open_program(sandbox_limits.seccomp(shared_memory=not memory.strict))
            )
            ports = {"hub": here.hub_port} | ({"board": here.board_port} if here.board_port else {})
            listener = until_started.enter_context(await self._ways(own, ports))
            readable = [*sandbox.PACKAGES, ROOT / "hub" / "jupyter", *repositories]
            readable += [here.data] if here.data.exists() else []
            inside = [sys.executable, "-I", str(sandbox.PLACE / "sandbox_start.py"), str(listener.fileno())]
            inside += [str(self.port), *(f"{port}={sandbox.PLACE / name}" for name, port in ports.items()), "--"]
            self.cmd = [
                *(group.prefix if group else []),
                *sandbox.arguments(home, readable, here.state, own, user, memory, program),
                *inside,
                *(sys.executable, "-m", "jupyterhub.singleuser"),
            ]
            # No file of the hub's goes along: it could be opened again by way of /proc.
            (here.state / "log").mkdir(exist_ok=True)
            log = until_started.enter_context(open(here.state / "log" / f"{self.user.name}.log", "ab"))
            self.popen_kwargs = {"pass_fds": [program, listener.fileno()], "stdin": subprocess.DEVNULL}
            self.popen_kwargs |= {"stdout": log, "stderr": log}
            return await super().start()

    async def _ways(self, own: Path, ports: dict[str, int]) -> socket.socket:
        """Open the way to the server and those to our ports; returns the socket to hand to the server's side.

        ports: by the name of the socket that leads there
        Sockets have short names only, so they are reached by way of their folder.
        """
        folder = os.open(own, os.O_PATH | os.O_DIRECTORY)
        self._open.callback(os.close, folder)
        for name in ("server", *AT_ONCE):
            (own / name).unlink(missing_ok=True)

        for name, port in ports.items():
            connect = partial(asyncio.open_connection, "127.0.0.1", port, local_addr=(FROM_INSIDE, 0))
            path = f"/proc/self/fd/{folder}/{name}"
            way = await asyncio.start_unix_server(forward(connect, AT_ONCE[name]), path)
            self._open.callback(way.close)
            os.chmod(path, 0o666)  # the folder lets no one else come here

        # Opened here, not by the student: a link in its place could lead the hub to any socket of the machine. A Unix
        # socket that listens cannot be made to connect, so it gives no way into the machine's network.
        server = f"/proc/self/fd/{folder}/server"
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(server)
        listener.listen(100)
        to_server = await asyncio.start_server(forward(lambda: asyncio.open_unix_connection(server)), "127.0.0.1", 0)
        self._open.callback(to_server.close)
        self.port = to_server.sockets[0].getsockname()[1]
        return listener

    def clear_state(self) -> None:
        """The server has ended: so do the sockets that lead to it."""
        super().clear_state()
        self._open.close()
