"""Who may come in: one password for the class, a longer one for the instructor.

There is no limit on wrong passwords, because anyone could use it up to lock others out: a class shares one address,
and anyone can try any name. So the right password always works, and its length is what makes guessing hopeless.
"""

from jupyterhub.authenticators.shared import SharedPasswordAuthenticator
from tornado.web import HTTPError

FROM_INSIDE = "127.0.0.2"  # where connections from sandboxes come from, see spawner.py


class ClassPassword(SharedPasswordAuthenticator):
    """JupyterHub's shared password. Every way to enter a password leads through here."""

    async def authenticate(self, handler, data: dict | None) -> dict | None:
        """The user whose name and password these are, or None.

        Raises HTTPError 403 for a request from a sandbox: its author has logged in already.
        """
        if handler.request.connection.stream.socket.getpeername()[0] == FROM_INSIDE:
            raise HTTPError(403, reason="Log in with your browser")
        given = data if isinstance(data, dict) else {}
        name, password = (given[key] if isinstance(given.get(key), str) else "" for key in ("username", "password"))
        # JupyterHub's comparison takes ASCII only, and so does the hub's command line.
        if not (password.isascii() and self.validate_username(self.normalize_username(name))):
            return None
        return await super().authenticate(handler, {"username": name, "password": password})
