"""The network interface by which processes on one machine reach each other."""

import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager


def loopback() -> str:
    """The network interface by which a machine reaches itself, "lo" or "lo0"; "" where there is none.

    Ranks that are all on one machine need no other. Without GLOO_SOCKET_IFNAME, gloo looks up the machine's own name,
    which may be unknown, belong to another machine, or take a minute to look up.
    """
    return next((name for _, name in socket.if_nameindex() if name in ("lo", "lo0")), "")


@contextmanager
def on_loopback() -> Iterator[None]:
    """Process groups made in this block use the loopback interface, whatever GLOO_SOCKET_IFNAME says.

    It may name the network of a cluster's nodes, which this machine does not have. The change is for this block only:
    what the process starts later, such as a job on several machines, must not inherit it.
    """
    before = {name: value for name, value in os.environ.items() if name == "GLOO_SOCKET_IFNAME"}
    os.environ["GLOO_SOCKET_IFNAME"] = loopback()
    try:
        yield
    finally:
        del os.environ["GLOO_SOCKET_IFNAME"]
        os.environ.update(before)
