"""Judging from outside: an answer in another process gets the verdict that it would get here, whatever it tries.

What runs in the sandbox at a check (`tools/grade/inside/run_submission.py`) runs here without walls, in
a thread or a process.
"""

import contextlib
import functools
import inspect
import json
import os
import re
import socket
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import nbformat
import numpy as np
import pytest
import torch
from conftest import made_here, skip_or_fail
from support.answers import EXERCISES, module, right, wrong
from test_switches import QUICK, takes_long

from labcheck import evaluate, verdict
from labcheck.answer import RemoteAnswer, call
from labcheck.inputs import Inputs
from labcheck.show import Foreign
from tools import course
from tools.grade import judge
from tools.grade.inside import wire

sys.path.insert(0, str(course.ROOT / "tools" / "grade" / "inside"))
import run_submission


@contextlib.contextmanager
def elsewhere(answer: Any, serve: Any = run_submission.answer_questions) -> Iterator[judge.Remote]:
    """The answer at the other end of a channel, in a thread of this process."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(wire, answer, theirs))
    thread.start()
    with ours:
        yield judge.Remote(ours)
    thread.join()
    theirs.close()


@contextlib.contextmanager
def in_a_process(answer: Any) -> Iterator[judge.Remote]:
    """The answer at the other end of a channel, in a fork of this process."""
    ours, theirs = socket.socketpair()
    pid = os.fork()
    if pid == 0:
        try:
            ours.close()
            run_submission.answer_questions(wire, answer, theirs)
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        yield judge.Remote(ours)
    os.waitpid(pid, 0)


def askable(answers: list[Any], most: int) -> list[Any]:
    """Of these answers, some that have to be called, from all over the list."""
    asked = [answer for answer in answers if run_submission.can_be_asked(answer)]
    return asked[:: max(1, -(-len(asked) // most))]


# One exercise of each kind on every run; all of them weekly.
DAILY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.weekly) for name in EXERCISES]


@pytest.mark.parametrize("name", DAILY)
def test_the_verdict_is_the_same_from_outside(name):
    judge.send_probes_by_value()
    for answer in askable(right(name), 1):  # other tests show that it is correct here
        with elsewhere(answer) as remote:
            there = made_here(evaluate(name, remote, 0))
        assert there.correct, there.text
    for answer in askable([group[0] for group in wrong(name).values()], 1 if takes_long(name) else 3):
        with elsewhere(answer) as remote:
            there = evaluate(name, remote, 0)
        here = evaluate(name, answer, 0)
        assert (there.outcome, there.message) == (here.outcome, here.message), answer
        assert (there.expected, there.yours, there.look) == (here.expected, here.yours, here.look), answer


def test_an_answer_is_at_work_during_a_question_only():
    """A grader that hangs up in between has its verdict: no limit was met."""
    at_work, seen = threading.Event(), []
    serve = functools.partial(run_submission.answer_questions, at_work=at_work)
    with elsewhere(lambda: seen.append(at_work.is_set()) or 1.0, serve) as remote:
        for _ in range(3):
            assert remote.observe(call) is not None
            assert not at_work.is_set()
    assert seen == [True] * 3


class Tape(RemoteAnswer):
    """An answer elsewhere: writes down what goes in and what comes out, or plays what came out for other inputs."""

    def __init__(self, answer: Any, replies: dict[str, list] | None = None) -> None:
        self.answer, self.replies = answer, replies
        self.sent: list[bytes] = []
        self.heard: dict[str, list] = {}

    def observe(self, probe: Any, *args: Any, **options: Any) -> Any:
        if self.replies is not None:
            replies = self.replies.get(probe.__name__)
            if not replies:
                raise judge.Lost
            return judge.Remote.understood(*replies.pop(0))
        self.sent.append(cloudpickle.dumps((probe, args, options)))
        reply = run_submission.reply_to(wire, probe, self.answer, args, options)
        self.heard.setdefault(probe.__name__, []).append(reply)
        return judge.Remote.understood(*reply)


def codes_of(thing: Any) -> list[bytes]:
    """What a pickle of this function, or of this class with its methods, contains: the code of those of some length."""
    functions = vars(thing).values() if isinstance(thing, type) else [thing]
    codes = [each.__code__.co_code for each in functions if inspect.isfunction(each)]
    return [code for code in codes if len(code) > 40]


@pytest.mark.parametrize("name", DAILY)
def test_what_goes_in_tells_no_result_and_what_came_out_is_worth_nothing(name):
    """Neither inputs nor probes hold a solution; replies to other inputs are refused, all of them, probes' included."""
    judge.send_probes_by_value()
    for answer in askable(right(name), 1):
        tape = Tape(answer)
        try:
            EXERCISES[name].judge(tape, Inputs(1))
        except verdict.NotHere as lacks:
            skip_or_fail(str(lacks))
        secret = [getattr(module(name), each, None) for each in ("solution", "judge", "explain", "afterward")]
        for thing in secret:
            for code in codes_of(thing):
                assert code in cloudpickle.dumps(thing), "it would be seen"
                assert not any(code in block for block in tape.sent), thing
        with pytest.raises((Exception, judge.Lost)):
            EXERCISES[name].judge(Tape(None, tape.heard), Inputs(2))


# ---------------------------------------------------------------------------------------------------------------------
# Plain data


VALUES = [
    None,
    ...,
    {"open": (..., [...])},
    True,
    7,
    -(10**300),
    2.5,
    float("inf"),
    "a text, an ü",
    b"bytes",
    1 + 2j,
    torch.Size([2, 3]),
    [1, (2, [3.0, {"a": None, 2: "b"}])],
    range(2, 9, 3),
    torch.float16,
    torch.device("cpu"),
    torch.arange(6).reshape(2, 3).t(),
    torch.tensor(3.0),
    torch.zeros(0, 3),
    np.zeros((0, 3)),
    [torch.ones(2), np.arange(3), torch.zeros(0), torch.arange(4)],
    torch.from_numpy(np.array([])),
    torch.ones(3).expand(2, 3),
    torch.arange(9)[8::5],
    torch.tensor([True, False]),
    torch.ones(2, dtype=torch.bfloat16),
    torch.randn(2, dtype=torch.complex64),
    torch.ones(2, requires_grad=True),
    np.arange(3.0),
    np.float32(2),
    np.bool_(True),
]


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_plain_data_arrives_as_it_was(value):
    document, block = wire.pack(value)
    made = wire.unpack(json.loads(json.dumps(document)), block)
    assert type(made) is type(value)
    if isinstance(value, torch.Tensor):
        assert made.dtype == value.dtype and made.requires_grad == value.requires_grad
        assert torch.equal(made, value)
    elif isinstance(value, np.ndarray):
        assert made.dtype == value.dtype and np.array_equal(made, value)
    elif isinstance(value, list) and isinstance(value[0], torch.Tensor):  # each has its own numbers
        assert [each.tolist() for each in made] == [each.tolist() for each in value]
    else:
        assert made == value


@pytest.mark.parametrize(
    ("chapter", "name", "first", "outcome", "message"),
    [
        ("01_tensors", "view_or_copy", "...", "not attempted", "Write your answer"),
        ("01_tensors", "view_or_copy", '"view"', "incorrect", '"x[[1, 2]]" is still open.'),
        ("11_cluster", "why_failed", "...", "not attempted", "Write your answer"),
    ],
)
def test_dots_of_a_lab_are_open_outside_too(chapter, name, first, outcome, message):
    """As in the notebook: neither wrong nor answered by the message. first: what replaces the first dots."""
    cells = {cell.id: cell.source for cell in nbformat.read(course.ROOT / "labs" / f"{chapter}.ipynb", 4).cells}
    space = {"torch": torch}
    exec(cells[f"answer-{name}"].replace("...", first, 1), space)
    answer = space[re.search(r"(\w+)\)$", cells[f"check-{name}"])[1]]
    ours, theirs = socket.socketpair()
    with ours, theirs:
        run_submission.serve(wire, theirs, name, answer, theirs, threading.Event())
        said, block = wire.receive(ours)
    verdict = judge.judged(name, wire.unpack(said["value"], block), [1])
    assert (verdict["outcome"], message in verdict["message"]) == (outcome, True), verdict


def test_other_objects_arrive_as_one_line():
    for value in (torch.nn.Linear(2, 2), lambda: 1, object(), 10**2000, slice(1)):
        made = wire.unpack(*wire.pack(value))
        assert isinstance(made, Foreign) and made.text


def test_what_is_too_large_or_too_deep_is_not_packed():
    deep: list = []
    for _ in range(1000):
        deep = [deep]
    for value in (deep, torch.zeros(10**8), torch.zeros([1] * 100_000)):
        with pytest.raises(ValueError):
            wire.pack(value)


GARBAGE = [
    ({"tensor": ["float32", [10**9, 10**9], False]}, b"1234"),
    ({"tensor": ["float32", [-1], False]}, b"1234"),
    ({"tensor": ["float32", [2], False]}, b"1234"),
    ({"tensor": ["__class__", [1], False]}, b"1234"),
    ({"array": ["object", [1], False]}, bytes(8)),
    # What would crash this process, keep it busy where no alarm comes through, or fill its memory.
    ({"tensor": ["float32", [1] * 100_000, False]}, b"1234"),
    ({"array": ["float32", [1] * 100_000, False]}, b"1234"),
    ({"tensor": ["float32", [1] * 100_000, False], "kind": "sparse"}, b""),
    ({"tensor": ["float32", [9_999_999] * 900_000, False]}, b"1234"),
    ({"list": [{"tensor": ["float32", [1000], False], "at": [0, 4000]}] * 2}, bytes(4000)),
    ({"list": [{"list": [None] * 50_000}] * 3}, b""),
    ({"dict": [[{"list": []}, 1]]}, b""),
    ({"range": [0, 10**9, 0]}, b""),
    ({"unknown": 1}, b""),
    ({}, b""),
    ([1, 2], b""),
    ({"list": 7}, b""),
    ({"complex": []}, b""),
    ({"list": [None] * (wire.PARTS + 1)}, b""),
    ({"tuple": [None] * (wire.PARTS + 1)}, b""),
    ({"size": [1] * (wire.PARTS + 1)}, b""),
    ({"dict": [[number, None] for number in range(wire.PARTS + 1)]}, b""),
    ({"range": [0, wire.NUMBERS + 1, 1]}, b""),
    ({"tensor": ["float32", [wire.NUMBERS + 1], False], "kind": "meta"}, b""),
    ({"tensor": ["float32", [wire.NUMBERS, 2], False], "kind": "sparse"}, b""),
    ({"array": ["float32", [0, wire.NUMBERS + 1], False]}, b""),
    (functools.reduce(lambda inside, _: {"list": [inside]}, range(wire.DEEPEST + 2), None), b""),
]


@pytest.mark.parametrize("document, block", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused(document, block):
    with pytest.raises(wire.Garbage):
        wire.unpack(document, block)


def test_texts_are_cut():
    for value in ("x" * 10**6, b"x" * 10**6):
        assert len(wire.unpack(*wire.pack(value))) == wire.TEXT
    assert len(wire.unpack({"foreign": "x" * 10**6}, b"").text) <= wire.TEXT


@pytest.mark.parametrize("lengths", [(wire.LONGEST + 1, 0), (2, wire.LARGEST)])
def test_a_message_that_is_too_large_is_not_read(lengths):
    """Its head says so: not a byte more is taken."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(wire.HEAD.pack(*lengths) + b"{}")
        with pytest.raises(wire.Garbage):
            wire.receive(ours, 60)
        assert ours.recv(2) == b"{}"


def test_names_of_types_lead_nowhere_else():
    assert isinstance(wire.unpack({"dtype": "nn"}, b""), Foreign)


# ---------------------------------------------------------------------------------------------------------------------
# A process that does not play by the rules


def says(*replies: bytes) -> Any:
    """A process that sends these bytes to whatever it is asked."""

    def serve(_: Any, answer: Any, channel: socket.socket) -> None:
        for reply in replies:
            wire.receive(channel)
            channel.sendall(reply)
        channel.close()

    return serve


def message(document: Any, block: bytes = b"") -> bytes:
    text = json.dumps(document).encode()
    return wire.HEAD.pack(len(text), len(block)) + text + block


TRICKS = {
    "nothing": says(),
    "no JSON": says(message(1)[:-1] + b"{"),
    "too large": says(wire.HEAD.pack(2**31, 2**31)),
    "half a message": says(message({"value": 1})[:-2]),
    "a list": says(message([1])),
    "an unknown word": says(message({"verdict": "correct"})),
    "deep": says(wire.HEAD.pack(200_000, 0) + b"[" * 200_000),
    "a raised SystemExit": says(message({"raised": [["SystemExit"], "", None]})),
    "a raised class of our own": says(message({"raised": [["Incorrect", "Lost"], "", None]})),
    "raised by nobody": says(message({"raised": [[], "", None]})),
    "not attempted": says(message({"not attempted": True})),
    "a thousand answers": says(message({"value": None}), message({"value": None}) * 1000),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_forged_words_give_nothing(trick):
    with elsewhere(None, TRICKS[trick]) as remote:
        verdict = judge.judged("accuracy", remote, [1, 2])
    assert verdict["outcome"] != "correct"


def test_an_answer_that_patches_its_process_patches_only_that(tmp_path):
    """Every function that the verdict could rely on is replaced there. Here nothing has changed."""

    def accuracy(logits, labels):
        import json as text

        from labcheck import answer, compare, exercise

        compare.same = answer.call = compare.near = lambda *a, **k: None
        torch.Tensor.all = torch.Tensor.any = lambda *a, **k: True
        torch.allclose = torch.isclose = torch.equal = lambda *a, **k: True
        text.dumps = lambda *a, **k: '{"value": 1.0}'
        for each in exercise.EXERCISES.values():
            object.__setattr__(each, "judge", lambda *a: None)
        return 0.123

    with in_a_process(accuracy) as remote:
        assert judge.judged("accuracy", remote, [1])["outcome"] != "correct"
    with elsewhere(lambda logits, labels: (logits.argmax(1) == labels).float().mean().item()) as remote:
        assert judge.judged("accuracy", remote, [1])["outcome"] == "correct"


def test_seeds_and_expected_results_do_not_travel(monkeypatch):
    """What goes in are the arguments of the answer, and the code that calls it."""
    sent = []
    real = wire.send
    monkeypatch.setattr(
        wire, "send", lambda channel, document, block=b"": (sent.append(block), real(channel, document, block))
    )
    seed = 1234567890123
    with elsewhere(lambda n, fraction, s: (torch.arange(n), torch.arange(0))) as remote:
        evaluate("split_indices", remote, seed)
    assert sent and not any(str(seed).encode() in block or seed.to_bytes(6, "little") in block for block in sent)


@pytest.fixture(autouse=True)
def back_to_the_folder():
    folder = Path.cwd()
    yield
    os.chdir(folder)
