"""What users send to a server of images, sense and nonsense, and what comes back."""

import contextlib
import http.client
import io
import json
import socket
import threading
from typing import Any

from torch import Tensor

LONGEST, PATIENCE = 1_000_000, 15.0  # bytes of a request, seconds for an answer
BAD = {
    "a body that is not JSON": b"images, please",
    "bytes that are no text": b'{"images": [[[[\xff\xfe]]]]}',
    "lists that are nested too deeply": b'{"images": ' + 100_000 * b"[",
    "a list instead of an object": b"[1, 2, 3]",
    "an object without `images`": b'{"pictures": []}',
    "an empty list of images": b'{"images": []}',
    "images of the wrong size": b'{"images": [[[[0, 1], [2, 3]]]]}',
    "rows of unequal length": b'{"images": [[[[0, 1], [2]]]]}',
    "text in place of images": b'{"images": "a seven"}',
    "no images, but null": b'{"images": null}',
    "an empty body": b"",
}
PIXELS = {"a pixel of 256": 256, "a pixel of -1": -1, "a pixel of 0.5": 0.5, "a pixel that is text": "255"}
LENGTHS = {"no Content-Length": "", "a Content-Length of -1": -1, "a Content-Length that is not a number": "many"}
LENGTHS |= {"a Content-Length of ²": "²"}  # "²".isdigit() is true, and int("²") raises


def request(
    port: int, body: bytes, target: str = "/classify", length: int | str | None = None, method: str = "POST"
) -> dict[str, Any]:
    """The status and the JSON of the answer; "none" and why, where there is no answer. length "": none is announced."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        line.putrequest(method, target)
        line.putheader("Content-Type", "application/json")
        if length != "":
            line.putheader("Content-Length", str(len(body) if length is None else length))
        line.endheaders(body)
        reply = line.getresponse()
        text = reply.read(100_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as problem:
        return {"status": "none", "found": {}, "text": type(problem).__name__}
    finally:
        line.close()
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    return {"status": reply.status, "found": found if isinstance(found, dict) else {}, "text": text[:200]}


def as_body(images: Tensor) -> bytes:
    return json.dumps({"images": images.tolist()}).encode()


def with_pixel(images: Tensor, value: Any) -> bytes:
    rows = images[:2].tolist()
    rows[1][0][2][3] = value
    return json.dumps({"images": rows}).encode()


def ask(server: Any, images: Tensor) -> dict[str, Any]:
    """Start the server in a thread, ask it good and bad questions, and stop it."""
    host, port = server.server_address[:2]
    noise, one = io.StringIO(), images[:1]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
        thread.start()
        try:
            seen = {"host": host, "one": request(port, as_body(one)), "many": request(port, as_body(images))}
            bodies = BAD | {"one image in place of a list of images": as_body(one[0])}
            bodies |= {"flattened images": as_body(images.flatten(1))}
            bodies |= {name: with_pixel(images, value) for name, value in PIXELS.items()}
            bad = seen["bad"] = {}
            for name, body in bodies.items():
                bad[name] = request(port, body)
                if bad[name]["status"] == "none":
                    break  # it may be dead: the others would only wait
            else:
                bad |= {name: request(port, b"", length=length) for name, length in LENGTHS.items()}
                bad["GET in place of POST, as a browser sends it,"] = request(port, b"", method="GET")
            seen["longest"] = request(port, as_body(one).ljust(LONGEST))
            seen["too long"] = request(port, b"", length=LONGEST + 1)
            seen["elsewhere"] = request(port, as_body(one), "/classify/elsewhere")
            seen["after"] = seen["beside"] = request(port, as_body(one))
            if seen["after"]["status"] == 200:
                with socket.create_connection(("127.0.0.1", port), PATIENCE) as slow:
                    slow.sendall(b"POST /classify HTTP/1.1\r\n")
                    seen["beside"] = request(port, as_body(one))
        finally:
            server.shutdown()
            server.server_close()
            thread.join(PATIENCE)
    return seen
