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
    "lists that are nested too deeply": b'{"images": ' + 100_000 * b"[",
    "a list instead of an object": b"[1, 2, 3]",
    "an object without `images`": b'{"pictures": []}',
    "an empty list of images": b'{"images": []}',
    "images of the wrong size": b'{"images": [[[[0, 1], [2, 3]]]]}',
    "rows of unequal length": b'{"images": [[[[0, 1], [2]]]]}',
    "text in place of images": b'{"images": "a seven"}',
}
PIXELS = {"a pixel of 256": 256, "a pixel of -1": -1, "a pixel of 0.5": 0.5, "a pixel that is text": "255"}
LENGTHS = {"no Content-Length": "", "a Content-Length of -1": -1, "a Content-Length that is not a number": "many"}
LENGTHS |= {"a Content-Length of ²": "²"}  # "²".isdigit() is true, and int("²") raises


def request(port: int, body: bytes, target: str = "/classify", length: Any = None, method: str = "POST") -> dict:
    """The status and the JSON of the answer; 0 and why, where there is none. length "": none is announced."""
    line = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    try:
        line.putrequest(method, target)
        if length != "":
            line.putheader("Content-Length", str(len(body) if length is None else length))
        line.endheaders(body)
        reply = line.getresponse()
        text = reply.read(100_000).decode("utf-8", "replace")
    except (OSError, http.client.HTTPException) as problem:
        return {"status": 0, "found": {}, "text": f"no answer ({type(problem).__name__})"}
    finally:
        line.close()
    found = {}
    with contextlib.suppress(ValueError):
        found = json.loads(text)
    return {"status": reply.status, "found": found if isinstance(found, dict) else {}, "text": text[:200]}


def as_body(images: Tensor, pixel: Any = None) -> bytes:
    rows = images.tolist()
    if pixel is not None:
        rows[1][0][2][3] = pixel
    return json.dumps({"images": rows}).encode()


def nonsense(port: int, images: Tensor) -> dict[str, dict]:
    """The answers to nonsense, until one gets none: the server may be dead, and the others would only wait."""
    bodies = BAD | {name: as_body(images, pixel) for name, pixel in PIXELS.items()}
    bodies |= {"one image in place of a list": as_body(images[0]), "flattened images": as_body(images.flatten(1))}
    requests = {name: (body, {}) for name, body in bodies.items()}
    requests |= {name: (b"", {"length": length}) for name, length in LENGTHS.items()}
    requests |= {"GET in place of POST, as a browser sends it,": (b"", {"method": "GET"})}
    replies = {}
    for name, (body, options) in requests.items():
        replies[name] = request(port, body, **options)
        if replies[name]["status"] == 0:
            break
    return replies


def ask(server: Any, images: Tensor) -> dict[str, Any]:
    """Start the server in a thread, ask it good and bad questions, and stop it."""
    port, noise, good = server.server_address[1], io.StringIO(), as_body(images[:1])
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    with contextlib.redirect_stderr(noise), contextlib.redirect_stdout(noise):
        thread.start()
        try:
            seen = {"one": request(port, good), "many": request(port, as_body(images)), "bad": nonsense(port, images)}
            seen["longest"] = request(port, good.ljust(LONGEST))
            seen["too long"] = request(port, b"", length=LONGEST + 1)
            seen["elsewhere"] = request(port, good, "/classify/elsewhere")
            seen["after"] = seen["beside"] = request(port, good)
            if seen["after"]["status"] == 200:
                with contextlib.suppress(OSError), socket.create_connection(("127.0.0.1", port), PATIENCE) as slow:
                    slow.sendall(b"POST /classify HTTP/1.1\r\n")
                    seen["beside"] = request(port, good)
                    slow.shutdown(socket.SHUT_WR)
                    slow.makefile("rb").read()  # a later error would appear in the notebook
        finally:
            server.shutdown()
            server.server_close()
            thread.join(PATIENCE)
    return seen
