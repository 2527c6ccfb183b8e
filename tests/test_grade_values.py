"""Judging from outside: an answer in another process gets the verdict that it would get here, whatever it tries.

What runs in the sandbox at a check (`tools/grade/inside/play.py`) runs here without walls, in
a thread or a process.
"""

import contextlib
import dataclasses
import functools
import inspect
import json
import os
import pickle
import re
import socket
import sys
import threading
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

import cloudpickle
import nbformat
import numpy as np
import pytest
import torch
from conftest import made_here, skip_or_fail
from test_checks import EXERCISES, OWN, right_and_wrong, tables
from test_switches import takes_long

from labcheck import answer, compare, evaluate, exercise, inputs, verdict
from labcheck.show import Foreign
from tools import course
from tools.grade import judge, sandbox
from tools.grade.inside import plain
from torchcourse_labs._spec import Spec, key

sys.path.insert(0, str(course.ROOT / "tools" / "grade" / "inside"))
import play

pytestmark = pytest.mark.usefixtures("prepared_once")


@contextlib.contextmanager
def elsewhere(answer: Any, serve: Any = play.answer_questions) -> Iterator[judge.Remote]:
    """The answer at the other end of a channel, in a thread of this process."""
    ours, theirs = socket.socketpair()
    thread = threading.Thread(target=serve, args=(plain, answer, theirs))
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
            play.answer_questions(plain, answer, theirs)
        finally:
            os._exit(0)
    theirs.close()
    with ours:
        yield judge.Remote(ours)
    os.waitpid(pid, 0)


def askable(answers: list[Any], most: int) -> list[Any]:
    """Of these answers, some that have to be called, from all over the list."""
    asked = [answer for answer in answers if play.can_be_asked(answer)]
    return asked[:: max(1, -(-len(asked) // most))]


def name_of(thing: Any) -> str:
    """Of a function or class, or of the one that it is in."""
    return f"{thing.__module__}.{thing.__qualname__.partition('.')[0]}".removeprefix("torchcourse.checks.")


def ours(things: Any, but: Collection[str] = ()) -> set[str]:
    """The functions and classes of the chapters' checks that these things lead to, but not by way of `but`."""
    found, seen, todo = set(), {}, [things]
    while todo:
        thing = todo.pop()
        thing = getattr(thing, "__func__", thing)  # of a method
        if id(thing) in seen:
            continue
        seen[id(thing)] = thing  # kept, so that no other one gets its id
        if isinstance(thing, (list, tuple, set)):
            todo += thing
        elif isinstance(thing, dict):
            todo += thing.values()
        elif isinstance(thing, functools.partial):
            todo += [thing.func, thing.args, thing.keywords]
        elif isinstance(thing, type) or inspect.isfunction(thing):
            name = name_of(thing)
            if thing.__module__ not in sandbox.CHAPTERS or name in but:
                continue
            found.add(name)
            todo += [dict(vars(thing))]
            if not isinstance(thing, type):
                codes, names = [thing.__code__], set()
                while codes:
                    names |= {*codes[-1].co_names}
                    codes += [each for each in codes.pop().co_consts if inspect.iscode(each)]
                todo += [thing.__globals__.get(name) for name in names]
                todo += [thing.__defaults__, thing.__kwdefaults__, inspect.getclosurevars(thing).nonlocals]
    return found


# On both sides: the class of a model that goes in, a word, and lines that any answer could write.
SHARED = {"capstone._Exported", "capstone._word", "checkpointing._sum", "checkpointing._train", "performance._Block"}


def assert_no_reference(name: str, sent: list[list[bytes]]) -> None:
    """With a probe travels all that it uses. None of it is a part of a right answer, or of what makes a verdict."""
    spec, questions = EXERCISES[name].spec, [pickle.loads(each) for (each,) in sent]
    traveled = ours(questions)
    # What judges knows the names of what it sends; functions that `ranks.measure` sends are arguments of its own.
    sends = {name_of(each) for probe, args, _ in questions for each in (probe, *args) if inspect.isfunction(each)}
    if spec:
        assert not traveled & ours([spec.solution, spec.also_right])
    whens = [each.when for each in (*spec.mistakes, *spec.habits)] if spec else []
    judging = ours([spec.draw, spec.measure, whens] if spec else EXERCISES[name].judge, but=sends)
    assert not traveled & judging - SHARED


@pytest.mark.parametrize("name", list(EXERCISES))
def test_the_verdict_is_the_same_from_outside(name, monkeypatch):
    judge.send_checks_by_value()
    sent, send = [], plain.send
    monkeypatch.setattr(plain, "send", lambda to, *what: (sent.append(what), send(to, *what)))
    right, wrong = right_and_wrong(name, tables(OWN))
    for answer in askable(right, 1):  # other tests show that it is correct here
        with elsewhere(answer) as remote:
            there = made_here(evaluate(name, remote, 0))
        assert there.correct, there.text
    few, spec = takes_long(name), EXERCISES[name].spec
    told = {id(mistake.wrong[0]): key(mistake.problem) for mistake in spec.mistakes} if few and spec else {}
    for answer in askable(wrong, 1 if few else 3):
        with elsewhere(answer) as remote:
            there = evaluate(name, remote, 0)
        if id(answer) in told:  # tests/test_specs.py judges it here
            assert there.misconception == told[id(answer)], there.text
            continue
        here = evaluate(name, answer, 0)
        assert (there.outcome, there.message) == (here.outcome, here.message), answer
        assert (there.expected, there.yours, there.look) == (here.expected, here.yours, here.look), answer
    assert_no_reference(name, [question for document, *question in sent if document is None])


def test_an_answer_is_at_work_during_a_question_only():
    """A grader that hangs up in between has its verdict: no limit was met."""
    at_work, seen = threading.Event(), []
    serve = functools.partial(play.answer_questions, at_work=at_work)
    with elsewhere(lambda: seen.append(at_work.is_set()) or 1.0, serve) as remote:
        for _ in range(3):
            assert remote.observe(answer.call) is not None
            assert not at_work.is_set()
    assert seen == [True] * 3


class Tape(answer.RemoteAnswer):
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
        reply = play.reply_to(plain, probe, self.answer, args, options)
        self.heard.setdefault(probe.__name__, []).append(reply)
        return judge.Remote.understood(*reply)


def without_wrong_solutions(name: str) -> Spec:
    """The specification, quicker to prepare."""
    spec = EXERCISES[name].spec
    return dataclasses.replace(spec, mistakes=[mistake for mistake in spec.mistakes if mistake.when])


def code_of(answer: Any) -> bytes:
    """What a pickle of this answer contains, if it is a function of some length."""
    code = getattr(answer, "__code__", None)
    return code.co_code if code and len(code.co_code) > 40 else b"no code"


@pytest.mark.parametrize("name", [name for name, each in EXERCISES.items() if each.spec and not each.spec.takes_value])
def test_what_goes_in_tells_no_result_and_what_came_out_is_worth_nothing(name):
    """Neither inputs nor probes hold a solution; replies to other inputs are refused, all of them, probes' included."""
    judge.send_checks_by_value()
    spec = without_wrong_solutions(name)
    right = Tape(spec.solution)
    try:
        spec(right, inputs.Inputs(1))
    except verdict.NotHere as lacks:
        skip_or_fail(str(lacks))
    assert code_of(spec.solution) in cloudpickle.dumps(spec.solution) + b"no code"  # it would be seen
    for answer in (spec.solution, *spec.also_right):
        assert not any(code_of(answer) in block for block in right.sent)
    with pytest.raises((Exception, judge.Lost)):
        spec(Tape(None, right.heard), inputs.Inputs(2))


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
    document, block = plain.pack(value)
    made = plain.unpack(json.loads(json.dumps(document)), block)
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
        play.serve(plain, theirs, name, answer, theirs, threading.Event())
        said, block = plain.receive(ours)
    verdict = judge.judged(name, plain.unpack(said["value"], block), [1])
    assert (verdict["outcome"], message in verdict["message"]) == (outcome, True), verdict


def test_other_objects_arrive_as_one_line():
    for value in (torch.nn.Linear(2, 2), lambda: 1, object(), 10**2000, slice(1)):
        made = plain.unpack(*plain.pack(value))
        assert isinstance(made, Foreign) and made.text


def test_what_is_too_large_or_too_deep_is_not_packed():
    deep: list = []
    for _ in range(1000):
        deep = [deep]
    for value in (deep, torch.zeros(10**8), torch.zeros([1] * 100_000)):
        with pytest.raises(ValueError):
            plain.pack(value)


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
    ({"list": [None] * (plain.PARTS + 1)}, b""),
    ({"tuple": [None] * (plain.PARTS + 1)}, b""),
    ({"size": [1] * (plain.PARTS + 1)}, b""),
    ({"dict": [[number, None] for number in range(plain.PARTS + 1)]}, b""),
    ({"range": [0, plain.NUMBERS + 1, 1]}, b""),
    ({"tensor": ["float32", [plain.NUMBERS + 1], False], "kind": "meta"}, b""),
    ({"tensor": ["float32", [plain.NUMBERS, 2], False], "kind": "sparse"}, b""),
    ({"array": ["float32", [0, plain.NUMBERS + 1], False]}, b""),
    (functools.reduce(lambda inside, _: {"list": [inside]}, range(plain.DEEPEST + 2), None), b""),
]


@pytest.mark.parametrize("document, block", GARBAGE, ids=range(len(GARBAGE)))
def test_garbage_is_refused(document, block):
    with pytest.raises(plain.Garbage):
        plain.unpack(document, block)


def test_texts_are_cut():
    for value in ("x" * 10**6, b"x" * 10**6):
        assert len(plain.unpack(*plain.pack(value))) == plain.TEXT
    assert len(plain.unpack({"foreign": "x" * 10**6}, b"").text) <= plain.TEXT


@pytest.mark.parametrize("lengths", [(plain.LONGEST + 1, 0), (2, plain.LARGEST)])
def test_a_message_that_is_too_large_is_not_read(lengths):
    """Its head says so: not a byte more is taken."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        theirs.sendall(plain.HEAD.pack(*lengths) + b"{}")
        with pytest.raises(plain.Garbage):
            plain.receive(ours, 60)
        assert ours.recv(2) == b"{}"


def test_names_of_types_lead_nowhere_else():
    assert isinstance(plain.unpack({"dtype": "nn"}, b""), Foreign)


# ---------------------------------------------------------------------------------------------------------------------
# A process that does not play by the rules


def says(*replies: bytes) -> Any:
    """A process that sends these bytes to whatever it is asked."""

    def serve(_: Any, answer: Any, channel: socket.socket) -> None:
        for reply in replies:
            plain.receive(channel)
            channel.sendall(reply)
        channel.close()

    return serve


def message(document: Any, block: bytes = b"") -> bytes:
    text = json.dumps(document).encode()
    return plain.HEAD.pack(len(text), len(block)) + text + block


TRICKS = {
    "nothing": says(),
    "no JSON": says(message(1)[:-1] + b"{"),
    "too large": says(plain.HEAD.pack(2**31, 2**31)),
    "half a message": says(message({"value": 1})[:-2]),
    "a list": says(message([1])),
    "an unknown word": says(message({"verdict": "correct"})),
    "deep": says(plain.HEAD.pack(200_000, 0) + b"[" * 200_000),
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

        compare.same = engine.mistake = answer.call = compare.equal = lambda *a, **k: None
        torch.Tensor.all = torch.Tensor.any = lambda *a, **k: True
        torch.allclose = torch.isclose = torch.equal = lambda *a, **k: True
        text.dumps = lambda *a, **k: '{"value": 1.0}'
        for exercise in exercise.EXERCISES.values():
            object.__setattr__(exercise, "judge", lambda *a: None)
        return 0.123

    with in_a_process(accuracy) as remote:
        assert judge.judged("accuracy", remote, [1])["outcome"] != "correct"
    with elsewhere(lambda logits, labels: (logits.argmax(1) == labels).float().mean().item()) as remote:
        assert judge.judged("accuracy", remote, [1])["outcome"] == "correct"


def test_seeds_and_expected_results_do_not_travel(monkeypatch):
    """What goes in are the arguments of the answer, and the code that calls it."""
    sent = []
    real = plain.send
    monkeypatch.setattr(
        plain, "send", lambda channel, document, block=b"": (sent.append(block), real(channel, document, block))
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
