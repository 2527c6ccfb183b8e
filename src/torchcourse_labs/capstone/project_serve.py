"""A server that survives its users: good requests get classes, nonsense gets a 4xx and a sentence."""

import io
import socketserver
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import torch
from torch import Tensor

from labcheck.authoring import AnswerRaised, Exercise, Inputs, call, observe, same, wrong_if
from torchcourse_labs.beyond_python._shared import quietly
from torchcourse_labs.capstone._exported import Small
from torchcourse_labs.capstone._requests import ask


def serve(answer: Callable, exported: bytes, classes: tuple, images: Tensor) -> dict[str, Any]:
    """A probe: make the server, twice since two must fit beside each other, and ask the first one."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "model.pt2")
        path.write_bytes(exported)
        given = path, classes, tuple(images.shape[1:])
        started: list[Any] = []
        with mock.patch.object(socketserver.BaseServer, "serve_forever", lambda self, *_: started.append(self)):
            server = call(answer, *given, may_return_none=True)
        for each in started:
            each.server_close()
        if started or not isinstance(server, socketserver.BaseServer):
            return {"instead": "a server that runs" if started else f"an object of type {type(server).__name__}"}
        try:
            call(answer, *given).server_close()
        except AnswerRaised:
            server.server_close()
            return {"address": ("127.0.0.1", server.server_address[1])}
        return {"address": server.server_address[:2]} | ask(server, images)


def example(rng: Inputs) -> tuple[Small, bytes, tuple, Tensor]:
    """A model, the file of its exported program, names of classes, and images."""
    model, images = Small(rng.randn(10, 36)).eval(), rng.images(6, 1, 6, 6)
    classes = tuple(f"class {number}" for number in rng.permutation(100)[:10].tolist())
    file = io.BytesIO()
    with quietly():
        shapes = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(model, (images[:2],), dynamic_shapes=shapes), file)
    return model, file.getvalue(), classes, images


def judge(answer: Any, rng: Inputs) -> None:
    model, exported, classes, images = example(rng)
    seen = observe(answer, serve, exported, classes, images)
    wrong_if(
        "instead" in seen,
        "no_server",
        "`make_server` should return a server that does not run yet: the caller calls its `serve_forever`.",
        look="return the ThreadingHTTPServer itself",
        yours=seen.get("instead"),
    )
    wrong_if(
        "one" not in seen or seen["address"][0] not in ("127.0.0.1", "::1"),
        "address",
        "Your server should listen on this machine only, at any free port, so that a second one can start beside it.",
        look='`("127.0.0.1", 0)`',
        yours=f"{seen['address'][0]}, port {seen['address'][1]}",
    )
    right = [classes[i] for i in model(images).argmax(1)]
    for reply, expected in ((seen["one"], right[:1]), (seen["many"], right)):
        images_sent = f"{len(expected)} image{'s' if len(expected) > 1 else ''}"
        wrong_if(
            reply["status"] != 200 or reply["found"].get("classes") != expected,
            "good_request",
            f"A valid request with {images_sent} does not get the right classes.",
            look="try it in a cell of your own. The program takes bytes as they are; its logits are [B, classes]",
            expected=f'status 200, {{"classes": {expected}}}',
            yours=f"status {reply['status']}, {reply['text']}",
        )
    wrong_if(seen["after"]["status"] != 200, "dead_afterward", "After bad requests, your server no longer answers.")
    bad = seen["bad"]
    first = next((name for name, reply in bad.items() if not 400 <= reply["status"] < 500), None)
    wrong_if(
        first,
        "not_refused",
        f"A request with {first} should get a status from 400 to 499.",
        look="which line sees this request first, and what does it do?",
        yours=f"status {bad[first]['status']}, {bad[first]['text']}" if first else "",
    )
    wrong_if(
        seen["beside"]["status"] == 0,
        "one_at_a_time",
        "While one client is slow to send its request, your server answers nobody else.",
        look="`ThreadingHTTPServer`: a thread for each request",
    )
    look = "compare Content-Length with 1,000,000 before you read the body; 0 stands for no answer"
    same(seen["longest"]["status"], 200, "The status for a good request of exactly 1,000,000 bytes", look=look)
    same(seen["too long"]["status"], 413, "The status for a request that announces 1,000,001 bytes", look=look)
    same(seen["elsewhere"]["status"], 404, "The status for an address other than /classify", look="`self.path`")
    said = {name: reply["found"].get("error") for name, reply in bad.items()}
    mute = next((name for name, text in said.items() if not isinstance(text, str) or len(text) < 10), None)
    wrong_if(
        mute,
        "mute",
        f'A refusal should say why, in JSON: {{"error": "a sentence"}}. A request with {mute} gets another answer.',
        yours=bad[mute]["text"] if mute else "",
    )


exercise = Exercise(
    title="A server that survives its users",
    minutes=50,
    difficulty=4,
    points=5,
    seconds=60,
    takeaway="Check every request before the model sees it. Nonsense gets a 4xx and a sentence, never a crash.",
    hints=(
        "Two parts: a function that turns a body into classes or raises ValueError with a sentence, and a handler that "
        "turns the first into status 200 and the second into 400. "
        '`torch.tensor(json.loads(body)["images"])` fails with KeyError, TypeError, ValueError or RuntimeError for '
        "most bad input; shape, dtype and range are yours to check.",
        '`self.send_response(status)`, `self.send_header("Content-Length", str(len(body)))`, `self.end_headers()`, '
        '`self.wfile.write(body)`. The server: `ThreadingHTTPServer(("127.0.0.1", 0), Handler)`.',
    ),
    judge=judge,
)
