"""The first program inside a student's sandbox: the sockets that lead out of it, and the student's server.

The sandbox has a network of its own with nothing in it, so no student reaches the machine's ports, its abstract sockets
or another student. Unix sockets lead out and in: one that the hub listens on, one for the board of the class if there
is one, and one that was opened outside and handed over. Here they become ports of the sandbox, where server and
JupyterHub expect them.

It runs by itself, without the rest of the kit; tools/hub/spawner.py uses `forward` on the other side.

    python sandbox_start.py FD PORT OUT_PORT=OUT_SOCKET... -- COMMAND...
"""

import asyncio
import contextlib
import socket
import sys
from collections.abc import Awaitable, Callable
from functools import partial

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]
Handler = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


def forward(connect: Callable[[], Awaitable[Streams]], at_once: int = 200) -> Handler:
    """What a server of asyncio does with a connection: copy it from and to the one that `connect` opens.

    at_once: connections; more wait for one of these to end
    """
    free = asyncio.Semaphore(at_once)

    async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async with free:
            far = None
            try:
                far_reader, far = await connect()
                async with asyncio.TaskGroup() as both:
                    both.create_task(_copy(reader, far))
                    both.create_task(_copy(far_reader, writer))
            except* OSError:
                pass  # one side has gone: so does the other
            finally:
                for each in (writer, far):
                    if each:
                        each.close()

    return handle


async def _copy(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    while data := await source.read(2**16):
        sink.write(data)
        await sink.drain()
    with contextlib.suppress(OSError):
        sink.write_eof()


async def main(fd: str, port: str, *rest: str) -> int:
    """Open all ways, then run the server until it ends; returns its exit status."""
    inward = forward(lambda: asyncio.open_connection("127.0.0.1", int(port)))
    await asyncio.start_unix_server(inward, sock=socket.socket(fileno=int(fd)))
    end = rest.index("--")
    for out_port, out_socket in (way.split("=", 1) for way in rest[:end]):
        outward = forward(partial(asyncio.open_unix_connection, out_socket))
        await asyncio.start_server(outward, "127.0.0.1", int(out_port))
    server = await asyncio.create_subprocess_exec(*rest[end + 1 :])
    return await server.wait()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(*sys.argv[1:])))
