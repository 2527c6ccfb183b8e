"""Answers in real processes: what each rank returned, printed, wrote, raised, and where it waited."""

import contextlib
import faulthandler
import os
import signal
import subprocess
import sys
from multiprocessing import connection

import nbclient
import nbformat
import psutil
import pytest
import torch
import torch.distributed as dist
from conftest import wait_until

from labcheck import judge, rank_server, ranks, verdict
from torchcourse.distributed import places
from torchcourse.errors import CourseError

pytestmark = pytest.mark.skipif(os.name != "posix", reason="several processes need Linux or macOS")


def add_up(tensor):
    print("über", dist.get_rank())
    dist.all_reduce(tensor)
    return {"sum": tensor, "rank": dist.get_rank(), "here": os.environ["RANK"]}


def test_every_rank_returns_and_prints():
    outcome = ranks.run(add_up, torch.ones(3), world_size=3)
    assert outcome.ok and outcome.sentence() == "" and len(outcome) == 3
    for number, rank in enumerate(outcome):
        assert rank.value["sum"].tolist() == [3.0] * 3
        assert rank.value["rank"] == number == int(rank.value["here"])
        assert rank.printed == f"über {number}\n"


def test_ranks_draw_different_numbers_by_the_seed():
    first, second = ranks.run(torch.rand, 4, seed=7).values
    assert not torch.equal(first, second) and torch.equal(second, ranks.run(torch.rand, 4, seed=8)[0].value)


def test_exception_on_one_rank():
    def wrong(x):
        if dist.get_rank() == 1:
            raise ValueError("my own mistake\nwith a second line")
        dist.all_reduce(x)

    outcome = ranks.run(wrong, torch.ones(1))
    assert not outcome.ok and outcome.failed.rank == 1
    assert outcome[0].status == "stopped" and outcome[0].place.call == "all_reduce"
    with pytest.raises(verdict.AnswerRaised, match="second line") as caught:
        ranks.judge(outcome)
    result = judge._error_result("x", caught.value.error)
    assert result.message == "Your code raised ValueError: my own mistake (on rank 1)"
    assert 'raise ValueError("my own mistake' in result.yours


def test_an_error_that_all_ranks_share_belongs_to_each():
    outcome = ranks.run(lambda: [][3])
    assert [rank.status for rank in outcome] == ["raised", "raised"]


def test_hang_names_rank_and_call():
    def forgets(x):
        if dist.get_rank() == 0:
            dist.all_reduce(x)
        return 1

    outcome = ranks.run(forgets, torch.ones(1), timeout=300)  # noticed long before the limit
    assert outcome.failed.rank == 0 and outcome.failed.status == "waiting" and outcome[1].value == 1
    assert outcome[0].place.call == "all_reduce" and outcome[0].place.line == "dist.all_reduce(x)"
    with pytest.raises(verdict.Incorrect, match=r"all-reduce .* rank 1 has already left your function") as caught:
        ranks.judge(outcome)
    assert "`dist.all_reduce(x)`" in caught.value.yours and "rank 1: left after 0 collectives" in caught.value.yours


def test_a_hang_is_noticed_in_calls_that_do_not_wait_and_where_errors_are_swallowed():
    def forgets(x):
        if dist.get_rank() == 0:
            for _ in range(2):
                with contextlib.suppress(Exception):
                    dist.all_reduce(x, async_op=True).wait()

    outcome = ranks.run(forgets, torch.ones(1), timeout=300)
    assert [rank.status for rank in outcome] == ["waiting", "returned"] and "async_op=True" in outcome.details()


def test_a_message_that_never_comes_ends_at_the_time_limit():
    """Sending and receiving are no collectives: the ranks are asked where they are."""
    outcome = ranks.run(lambda x: dist.recv(x, 1 - dist.get_rank()), torch.ones(1), timeout=3)
    assert outcome[0].place.call == outcome[1].place.call == "recv"
    assert "3 seconds" in outcome.sentence() and "`recv`" in outcome.sentence()


def test_time_limit():
    def endless():
        while dist.get_rank() == 1:
            pass

    outcome = ranks.run(endless, timeout=8)
    assert outcome[1].status == "running" and outcome[1].place.line in ("pass", "while dist.get_rank() == 1:")
    assert outcome[0].status == "returned" and "8 seconds" in outcome.sentence()


def test_a_line_is_found_in_any_folder(tmp_path):
    """faulthandler writes names in ASCII, and students are called Jürgen."""
    code = compile("def wait(dump):\n    dump()", "/home/Jürgen 陳/lab.py", "exec")
    names = {}
    exec(code, names)
    with open(tmp_path / "stack", "w") as file:
        names["wait"](lambda: faulthandler.dump_traceback(file))
    stack = places._read(tmp_path / "stack")
    assert places.place(stack, lambda name: name == "/home/Jürgen 陳/lab.py")[:2] == ("/home/Jürgen 陳/lab.py", 2)


def test_a_process_whose_stack_ends_too_soon_is_asked_again(tmp_path, monkeypatch):
    """faulthandler reads the stack of a thread that goes on meanwhile, so what it writes can be torn."""
    child = """
import signal, sys, time
thread = 'Thread 0x1 (most recent call first):\\n  File '
dumps = [
    thread + '"torn.py", line 1 in calls\\n  File "torn',
    '.py", line 2 in _start\\n' + thread + '"lab.py", line 7 in wait\\n  File "s", line 9 in _start\\n',
]
def write(*_):
    with open(sys.argv[1], "a") as file:
        file.write(dumps.pop(0) if dumps else "")
signal.signal(signal.SIGUSR1, write)
print("ready", flush=True)
time.sleep(60)
"""
    monkeypatch.setattr(places, "PATIENCE", 0.2)
    with subprocess.Popen([sys.executable, "-c", child, tmp_path / "stack"], stdout=subprocess.PIPE) as process:
        process.stdout.readline()
        (stack,) = places.stacks({process.pid: tmp_path / "stack"}, r"line \d+ in _start")
        process.kill()
    assert places.place(stack, lambda name: name in ("torn.py", "lab.py"))[:2] == ("lab.py", 7)


def test_a_process_that_dies_is_named_and_not_those_that_lose_it():
    def dies():
        if dist.get_rank() == 0:
            os._exit(3)
        dist.barrier()

    outcome = ranks.run(dies)
    assert (outcome[0].status, outcome[0].exit_code) == ("died", 3)
    assert outcome[1].status == "stopped" and outcome.failed.rank == 0
    assert ranks.run(add_up, torch.ones(1)).ok


def test_who_wrote_what(tmp_path):
    def save(folder_listing):
        if dist.get_rank() == 0:
            torch.save(torch.ones(1), "model.part")
            os.rename("model.part", "model.pt")
        with open(f"log{dist.get_rank()}.txt", "a") as log:
            log.write("x")
        dist.barrier()
        with open("model.pt", "rb"):
            return sorted(os.listdir("."))

    outcome = ranks.run(save, None, folder=tmp_path)
    assert outcome[0].wrote == ("log0.txt", "model.pt") and outcome[1].wrote == ("log1.txt",)
    assert outcome.values == [["log0.txt", "log1.txt", "model.pt"]] * 2
    assert torch.load(tmp_path / "model.pt").item() == 1


def test_what_cannot_travel_is_said(tmp_path):
    with open(tmp_path / "file", "w") as file, pytest.raises(CourseError, match="could not be sent"):
        ranks.run(lambda: file.name)


def test_a_stub_is_not_attempted():
    def by_hand(x):
        raise NotImplementedError

    with pytest.raises(verdict.NotAttempted):
        ranks.judge(ranks.run(by_hand, 1))
    with pytest.raises(verdict.NotAttempted):
        ranks.observe(lambda x: None, lambda answer, x: answer(x), 1, look="")


def below(pid):
    try:
        return psutil.Process(pid).children(recursive=True)
    except psutil.NoSuchProcess:
        return []


SCRIPT = """
import sys, time
from labcheck import judge, ranks, verdict
def endless():
    open("started", "w").close()
    while True:
        time.sleep(0.1)
ranks.run(endless, timeout=500, folder=sys.argv[1])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGINT])
def test_nothing_is_left_when_the_notebook_ends(tmp_path, number):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stderr=subprocess.DEVNULL)
    wait_until((tmp_path / "started").exists)
    family = below(process.pid)
    assert len(family) >= 3  # the server and two ranks
    process.send_signal(number)
    process.wait(600)
    wait_until(lambda: not any(member.is_running() and member.status() != "zombie" for member in family))


def test_functions_of_a_notebook(tmp_path):
    """They live in `__main__` and in no file; their lines are known to the notebook only."""
    cells = [
        "import torch.distributed as dist\nfrom labcheck import ranks\nfactor = 3",
        "def wrong(x):\n    return {1: x * factor}[dist.get_rank()]",
        "outcome = ranks.run(wrong, 2)\nprint(outcome[1].value, outcome[0].raised, outcome[0].raised.place)",
        "print(ranks._current.process.pid)",
    ]
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    value, server = ("".join(output["text"] for output in cell["outputs"]) for cell in notebook.cells[2:])
    assert value.strip() == "6 KeyError: 0 line 2: return {1: x * factor}[dist.get_rank()]"
    wait_until(lambda: not psutil.pid_exists(int(server)))


def test_ranks_see_no_gpu(monkeypatch):
    """A forked process cannot use a GPU that its parent has asked for anything, and optimizers ask."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    monkeypatch.setattr(ranks, "_current", None)  # a server that starts now
    outcome = ranks.run(lambda: os.environ["CUDA_VISIBLE_DEVICES"], world_size=1)
    ranks._stop()
    assert outcome.values == [""]


@pytest.mark.skipif(sys.platform != "linux", reason="forks this process")
def test_ranks_that_do_not_meet_are_no_fault_of_the_answer(monkeypatch):
    monkeypatch.setattr(rank_server, "loopback", lambda: "no_such_network")
    _, theirs = connection.Pipe()
    monkeypatch.setattr(ranks, "_ask", lambda request: rank_server._supervise(theirs, os.getppid(), request))
    with pytest.raises(verdict.NotHere, match=r"could not connect .*no_such_network.* Your answer is not at fault"):
        ranks.run(abs, 1)
