"""Answers that work on the probe instead of the exercise, for real: in a process like that of a submission.

A probe watches an answer in the answer's own process, so what it reports can be forged. What is compared with a result
that never entered cannot: none of these forgeries replaces knowing it. And what gets through is noted for a person.
"""

import socket
import subprocess
import sys
import tempfile
import textwrap

import pytest

from labcheck import exercise
from tools import course
from tools.grade import judge
from tools.grade.in_sandbox import wire
from tools.grade.review import signs

INSIDE = course.ROOT / "tools" / "grade" / "in_sandbox"
exercise.load_chapters()

# Forged is what the probe sees, or what it says.
NO_POINTS = {
    "events of the optimizer": (
        "train_step",
        """
        def train_step(model, images, labels, optimizer):
            optimizer.events[:] = ["zero_grad", "forward", "backward", "step"]
            return 1.5
        """,
    ),
    "the probe's variables, from the stack": (
        "repair_training",
        """
        import sys
        def repair_training(*args):
            frame = sys._getframe()
            while frame:
                for value in list(frame.f_locals.values()):
                    if isinstance(value, dict):
                        value.update({key: True for key in value})
                frame = frame.f_back
            return [0.0]
        """,
    ),
    "what compares, in the answer's process": (
        "evaluate_model",
        """
        import torch
        from labcheck import probes
        probes.changes = lambda *a: []
        compare.same = compare.equal = lambda *a, **k: True
        torch.equal = torch.allclose = lambda *a, **k: True
        def evaluate_model(model, batches):
            return 0.5, 0.5
        """,
    ),
    "what packs the reply": (
        "accumulate_epoch",
        """
        import wire
        wire.pack = lambda value: (None, b"")
        def accumulate_epoch(*args):
            return 0.0
        """,
    ),
    "a collective that does nothing": (
        "average_gradients",
        """
        import torch.distributed as dist
        def average_gradients(model):
            dist.all_reduce = dist.all_gather = lambda *a, **k: None
        """,
    ),
}
# Right in what it computes, in a way that the exercise rules out; forged is the observation of that.
NOTED = {
    "layers that are shown in float16 and used in float32": (
        "safe_loss",
        """
        import torch
        import torch.nn.functional as F
        def safe_loss(encoder, head, images, labels):
            with torch.autocast("cpu", dtype=torch.float16):
                head(encoder(images) * 0)
            encoder[1]._forward_hooks.clear()
            head._forward_hooks.clear()
            features = encoder(images)
            logits = head(features / features.square().mean(dim=1, keepdim=True).sqrt())
            return F.cross_entropy(logits, labels) + 0.01 * logits.logsumexp(dim=1).square().mean()
        """,
        "changes PyTorch's hooks",
    ),
}


# A fresh process for each answer, as in grading: forks of one that has never used autograd, whose threads no fork has.
SERVER = """
import os, socket, sys
sys.path.insert(0, sys.argv[1])
import run_submission, wire
import labcheck
listening = socket.socket(fileno=int(sys.argv[2]))
while True:
    channel, _ = listening.accept()
    if os.fork() == 0:
        (name, source), _ = wire.receive(channel)
        cell = {"__name__": "__main__"}
        exec(compile(source, "<cell>", "exec"), cell)
        run_submission.answer_questions(cell[name], channel)
        os._exit(0)
    channel.close()
"""


@pytest.fixture(scope="module")
def server(tmp_path_factory):
    """The address of a server of answers."""
    with tempfile.TemporaryDirectory() as folder, socket.socket(socket.AF_UNIX) as listening:
        listening.bind(address := f"{folder}/answers")
        listening.listen()
        words = [sys.executable, "-c", SERVER, str(INSIDE), str(listening.fileno())]
        with subprocess.Popen(words, pass_fds=[listening.fileno()]) as process:
            yield address
            process.kill()


@pytest.fixture
def verdict(server):
    """What the grader says about a cell with an answer."""

    def ask(name: str, source: str) -> dict:
        judge.send_probes_by_value()
        with socket.socket(socket.AF_UNIX) as channel:
            channel.connect(server)
            wire.send(channel, [name, textwrap.dedent(source)])
            return judge.judged(name, judge.Remote(channel), [1])

    return ask


@pytest.mark.parametrize("attack", NO_POINTS)
def test_forged_observations_replace_no_result(attack, verdict):
    name, source = NO_POINTS[attack]
    said = verdict(name, source)
    assert said["outcome"] != "correct", said


@pytest.mark.parametrize("attack", NOTED)
def test_what_gets_through_is_noted(attack, verdict):
    """How a result came about is watched where the answer is. The table says so, and a person reads the cell."""
    name, source, note = NOTED[attack]
    said = verdict(name, source)
    assert said["outcome"] != "correct" or said["watched"]
    assert any(note in each for each in signs([textwrap.dedent(source)], []))
