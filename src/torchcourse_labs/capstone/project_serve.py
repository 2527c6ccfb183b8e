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

from labcheck.authoring import AnswerRaised, Exercise, Inputs, call, observe, wrong_if
from torchcourse_labs.capstone._exported import Small, program, silent
from torchcourse_labs.capstone._requests import ask

TALL, WIDE = 6, 6


def serve(answer: Callable, exported: bytes, classes: tuple, images: Tensor) -> dict[str, Any]:
    """A probe: make the server, twice since two must fit beside each other, and ask the first one."""
    with tempfile.TemporaryDirectory() as home:
        path = Path(home, "model.pt2")
        path.write_bytes(exported)
        given = path, classes, (1, TALL, WIDE)
        started: list[Any] = []
        with mock.patch.object(socketserver.BaseServer, "serve_forever", lambda self, *_: started.append(self)):
            server = call(answer, *given, may_return_none=True)
        if started:
            started[0].server_close()
            return {"kind": "started"}
        if not isinstance(server, socketserver.BaseServer):
            return {"kind": "no server", "shown": type(server).__name__}
        try:
            call(answer, *given).server_close()
        except AnswerRaised:
            server.server_close()
            return {"kind": "one port", "port": server.server_address[1]}
        return {"kind": "a server"} | ask(server, images)


def example(rng: Inputs) -> tuple[bytes, tuple, Tensor]:
    """The file of an exported program, names of classes, and images."""
    weights, images = rng.randn(10, 36), rng.images(6, 1, TALL, WIDE)
    names = ["cat", "dog", "car", "bus", "hat", "mug", "key", "pen", "cup", "fan"]
    classes = [rng.pick(("a ", "the ", "one ")) + names[i] for i in rng.permutation(10).tolist()]
    file = io.BytesIO()
    with silent():
        shapes = ({0: torch.export.Dim("batch")},)
        torch.export.save(torch.export.export(Small(weights).eval(), (images[:2],), dynamic_shapes=shapes), file)
    return file.getvalue(), tuple(classes), images


def refusal(reply: dict[str, Any]) -> str:
    """How a bad request is not refused; "" if it is."""
    if reply["status"] == "none":
        return "gets no answer at all"
    if 400 <= reply["status"] < 500:
        return ""
    return "gets a class, as if nothing were wrong" if "classes" in reply["found"] else f"gets status {reply['status']}"


def judge(answer: Any, rng: Inputs) -> None:
    exported, classes, images = example(rng)
    seen = observe(answer, serve, exported, classes, images)
    wrong_if(
        seen["kind"] in ("started", "no server"),
        "no_server",
        "`make_server` should return a server that does not run yet: the caller calls its `serve_forever`.",
        look="return the ThreadingHTTPServer itself",
        yours="a server that runs" if seen["kind"] == "started" else f"an object of type {seen.get('shown')}",
    )
    wrong_if(
        seen["kind"] == "one port",
        "one_port",
        f"A second server cannot start beside the first: both want port {seen.get('port')}. Take any free port.",
        look='`("127.0.0.1", 0)`',
    )
    wrong_if(
        seen["host"] not in ("127.0.0.1", "::1"),
        "open_to_all",
        f"Your server listens on {seen['host']}, so every machine in your network can reach it.",
        look='`("127.0.0.1", 0)`: this machine only, any free port',
    )
    right = [classes[i] for i in program(io.BytesIO(exported))(images).argmax(1)]
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
    wrong_if(
        seen["after"]["status"] != 200,
        "dead_afterward",
        "After the bad requests, your server no longer answers good ones.",
    )
    bad = {name: refusal(reply) for name, reply in seen["bad"].items()}
    first = next((name for name, how in bad.items() if how), "")
    wrong_if(
        first,
        "not_refused",
        f"A request with {first} {bad.get(first)}: it should get a status from 400 to 499.",
        look="which line sees this request first, and what does it do?",
    )
    wrong_if(
        seen["beside"]["status"] == "none",
        "one_at_a_time",
        "While one client is slow to send its request, your server answers nobody else.",
        look="`ThreadingHTTPServer`: a thread for each request",
    )
    wrong_if(
        seen["longest"]["status"] != 200 or seen["too long"]["status"] != 413,
        "length",
        "A request of 1,000,000 bytes should get its answer, and one that announces more should get a 413 before it is "
        "read.",
        look="compare Content-Length with the limit before you read the body",
        expected="status 200 and 413",
        yours=f"status {seen['longest']['status']} and {seen['too long']['status']}",
    )
    wrong_if(
        seen["elsewhere"]["status"] != 404,
        "elsewhere",
        f"A request to an address other than /classify gets status {seen['elsewhere']['status']}, not 404.",
        look="`self.path`",
    )
    said = {name: reply["found"].get("error") for name, reply in seen["bad"].items()}
    mute = next((name for name, text in said.items() if not isinstance(text, str) or len(text) < 10), "")
    wrong_if(
        mute,
        "mute",
        f'A refusal should say why, in JSON: {{"error": "a sentence"}}. A request with {mute} gets another answer.',
        yours=seen["bad"][mute]["text"][:60] if mute else "",
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
        "turns the first into status 200 and the second into 400.",
        '`torch.tensor(json.loads(body)["images"])` fails with KeyError, TypeError, ValueError or RuntimeError for '
        "most bad input; shape, dtype and range are yours to check.",
        '`self.send_response(status)`, `self.send_header("Content-Length", str(len(body)))`, `self.end_headers()`, '
        '`self.wfile.write(body)`. The server: `ThreadingHTTPServer(("127.0.0.1", 0), Handler)`.',
    ),
    judge=judge,
)
