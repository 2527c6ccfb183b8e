"""Judging from outside: an answer in another process gets the verdict that it would get here, whatever it tries.

What runs in the sandbox at a check (`tools/grade/in_sandbox/run_submission.py`) runs here without a sandbox, in
a thread or a process.
"""

import contextlib
import functools
import inspect
import json
import socket
import sys
import threading
from collections.abc import Iterator
from typing import Any

import cloudpickle
import numpy as np
import pytest
import torch
from conftest import made_here, skip_or_fail
from support.answers import EXERCISES, module, right, wrong

from labcheck import evaluate, verdict
from labcheck.answer import RemoteAnswer, call
from labcheck.inputs import Inputs
from labcheck.show import Foreign
from tools import course
from tools.grade import judge
from tools.grade.in_sandbox import wire

sys.path.insert(0, str(course.ROOT / "tools" / "grade" / "in_sandbox"))
import run_submission


@contextlib.contextmanager
def elsewhere(answer: Any, serve: Any = run_submission.answer_questions) -> Iterator[judge.Remote]:
    """The answer at the other end of a channel, in a thread of this process."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(answer, theirs))
    thread.start()
    with ours:
        yield judge.Remote(ours)
    thread.join()
    theirs.close()


def askable(answers: list[Any], most: int) -> list[Any]:
    """Of these answers, some that have to be called, from all over the list."""
    asked = [answer for answer in answers if run_submission.can_be_asked(answer)]
    return asked[:: max(1, -(-len(asked) // most))]


# A few of different kinds on every run (a value, an order, training, layers, half precision); all of them weekly.
QUICK = ("slope", "split_indices", "repair_training", "residual_block", "scaled_step")
DAILY = [pytest.param(name, marks=() if name in QUICK else pytest.mark.weekly) for name in EXERCISES]


@pytest.mark.parametrize("name", DAILY)
def test_the_verdict_is_the_same_from_outside(name):
    judge.send_probes_by_value()
    for answer in askable(right(name), 1):  # other tests show that it is correct here
        with elsewhere(answer) as remote:
            there = made_here(evaluate(name, remote, 0))
        assert there.correct, there.text
    for answer in askable([group[0] for group in wrong(name).values()], 2):
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
        reply = run_submission.reply_to(probe, self.answer, args, options)
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
    True,
    -(10**300),
    2.5,
    float("inf"),
    b"bytes",
    torch.Size([2, 3]),
    [1, (2, [3.0, {"a": None, 2: "b"}])],
    range(2, 9, 3),
    torch.float16,
    torch.device("cpu"),
    torch.arange(6).reshape(2, 3).t(),
    torch.zeros(0, 3),
    [torch.ones(2), np.arange(3), torch.zeros(0), torch.arange(4)],
    torch.arange(9)[8::5],
    torch.ones(2, dtype=torch.bfloat16),
    torch.randn(2, dtype=torch.complex64),
    torch.ones(2, requires_grad=True),
    np.arange(3.0),
    np.float32(2),
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
    ({"tensor": ["float32", [2], False]}, b"1234"),
    ({"tensor": ["__class__", [1], False]}, b"1234"),
    ({"array": ["object", [1], False]}, bytes(8)),
    # What would crash this process, keep it busy where no alarm comes through, or fill its memory.
    ({"tensor": ["float32", [1] * 100_000, False]}, b"1234"),
    ({"tensor": ["float32", [9_999_999] * 900_000, False]}, b"1234"),
    ({"list": [{"tensor": ["float32", [1000], False], "at": [0, 4000]}] * 2}, bytes(4000)),
    ({"dict": [[{"list": []}, 1]]}, b""),
    ({"range": [0, 10**9, 0]}, b""),
    ({"unknown": 1}, b""),
    ({}, b""),
    ({"list": [None] * (wire.PARTS + 1)}, b""),
    ({"size": [1] * (wire.PARTS + 1)}, b""),
    ({"dict": [[number, None] for number in range(wire.PARTS + 1)]}, b""),
    ({"range": [0, wire.NUMBERS + 1, 1]}, b""),
    ({"meta": ["float32", [wire.NUMBERS + 1]]}, b""),
    ({"meta": ["float32", [wire.NUMBERS, 2]]}, b""),
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


# ---------------------------------------------------------------------------------------------------------------------
# A process that does not play by the rules


def says(*replies: bytes) -> Any:
    """A process that sends these bytes to whatever it is asked."""

    def serve(answer: Any, channel: socket.socket) -> None:
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
    "an unknown word": says(message({"verdict": "correct"})),
    "a raised SystemExit": says(message({"raised": [["SystemExit"], "", None]})),
    "a raised class of our own": says(message({"raised": [["Incorrect", "Lost"], "", None]})),
    "not attempted": says(message({"not attempted": True})),
    "a thousand answers": says(message({"value": None}), message({"value": None}) * 1000),
}


@pytest.mark.parametrize("trick", TRICKS)
def test_forged_words_give_nothing(trick):
    with elsewhere(None, TRICKS[trick]) as remote:
        verdict = judge.judged("accuracy", remote, [1, 2])
    assert verdict["outcome"] != "correct"


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
