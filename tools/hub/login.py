"""Who may come in: one password for the class, a longer one for the instructor, and a limit on wrong ones.

A wrong password counts for the address that it came from, for the name that it was for, and for the hub as a whole.
Right ones do not count, so a class behind one address can log in all at once.
"""

import ipaddress
import time
from collections.abc import Callable, Hashable

from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from tornado.web import HTTPError

FROM_INSIDE = "127.0.0.2"  # where connections from sandboxes come from, see spawner.py


class Allowance:
    """How many wrong passwords each key may have: `burst` of them, then one every `seconds`.

    It keeps one number for each key: when its allowance will be whole again.
    """

    def __init__(self, burst: int, seconds: float, clock: Callable[[], float] = time.monotonic):
        self.burst, self.seconds, self.clock = burst, seconds, clock
        self.whole: dict[Hashable, float] = {}

    def wait(self, key: Hashable) -> float:
        """Seconds until another password of this key is looked at; 0 for now."""
        owed = self.whole.get(key, 0) - self.clock()
        return max(0.0, owed - (self.burst - 1) * self.seconds)

    def spend(self, key: Hashable) -> None:
        """A password of this key was wrong."""
        now = self.clock()
        if len(self.whole) >= 1000:
            self.whole = {key: whole for key, whole in self.whole.items() if whole > now}
        self.whole[key] = max(now, self.whole.get(key, 0)) + self.seconds


class ClassPassword(SharedPasswordAuthenticator):
    """JupyterHub's shared password, with a limit on wrong ones. Every way to hand in a password leads through here."""

    def __init__(self, **settings):
        super().__init__(**settings)
        # The last one also bounds what the others keep: none remembers more than a few minutes of it.
        self.addresses, self.names, self.all = Allowance(30, 2), Allowance(15, 10), Allowance(300, 0.2)

    async def authenticate(self, handler, data: dict | None) -> dict | None:
        """The user whose name and password these are, or None. Raises HTTPError 429 after too many wrong ones."""
        given = data if isinstance(data, dict) else {}
        name, password = (given[key] if isinstance(given.get(key), str) else "" for key in ("username", "password"))
        name = self.normalize_username(name)
        keys = ((self.addresses, origin(handler)), (self.names, name), (self.all, ""))
        if wait := max(allowance.wait(key) for allowance, key in keys):
            raise HTTPError(429, reason=f"Too many wrong passwords. Try again in {int(wait) + 1} s")
        # JupyterHub's comparison takes ASCII only, and so does the hub's command line.
        found = None
        if password.isascii() and self.validate_username(name):
            found = await super().authenticate(handler, {"username": name, "password": password})
        if found is None:
            for allowance, key in keys:
                allowance.spend(key)
        return found


def origin(handler) -> str:
    """The address that a request came from; of an IPv6 address, the network of one customer.

    Only what the hub's own proxy has added at the end of X-Forwarded-For is true: everything else may be the visitor's
    invention. Raises HTTPError 403 for a request from a sandbox: its author has logged in already.
    """
    connection = handler.request.connection.stream.socket.getpeername()
    if connection and connection[0] == FROM_INSIDE:
        raise HTTPError(403, reason="Log in with your browser")
    forwarded = handler.request.headers.get("X-Forwarded-For", "").rpartition(",")[2].strip()
    try:
        address = ipaddress.ip_address(forwarded)
    except ValueError:
        return ""
    address = getattr(address, "ipv4_mapped", None) or address
    return str(address) if address.version == 4 else str(ipaddress.ip_network((address, 64), strict=False))
