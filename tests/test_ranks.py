"""Answers in real processes: what each rank returned, printed, wrote, raised, and where it waited."""

import contextlib
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
from conftest import is_alive, wait_until

from labcheck import judge, rank_server, ranks, verdict
from torchcourse.distributed import stack_dumps
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
    assert result.message == "Your code raised ValueError: my own mistake (on rank 1) with a second line"
    assert 'raise ValueError("my own mistake' in result.yours
    assert [rank.status for rank in ranks.run(lambda: [][3])] == ["raised", "raised"]


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


def test_the_time_limit_says_where_each_rank_was():
    """Sending and receiving are no collectives: the ranks are asked where they are."""

    def endless(x):
        dist.recv(x, 1) if dist.get_rank() == 0 else None
        while dist.get_rank() == 1:
            pass

    outcome = ranks.run(endless, torch.ones(1), world_size=3, timeout=8)
    assert outcome[0].place.call == "recv"
    assert outcome[1].status == "running" and outcome[1].place.line in ("pass", "while dist.get_rank() == 1:")
    assert outcome[2].status == "returned" and "8 seconds" in outcome.sentence()


def test_a_stack_names_files_as_students_do(tmp_path):
    """faulthandler writes in ASCII, and students are called Jürgen. The last stack counts: one may be torn."""
    torn, whole = (
        f"Stack {stack_dumps.HEADER}\n{line}\n" for line in ("  File", r'  File "J\xfcrgen \u9673/lab.py", line 7 in f')
    )
    (tmp_path / "stack").write_text(torn + whole)
    stack = stack_dumps._read(tmp_path / "stack")
    assert stack_dumps.place(stack, lambda name: name == "Jürgen 陳/lab.py") == ("Jürgen 陳/lab.py", 7, None)


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
    with open(tmp_path / "model.pt") as file, pytest.raises(CourseError, match="could not be sent"):
        ranks.run(lambda: file.name)


def test_a_stub_is_not_attempted():
    def by_hand(x):
        raise NotImplementedError

    with pytest.raises(verdict.NotAttempted):
        ranks.judge(ranks.run(by_hand, 1))
    with pytest.raises(verdict.NotAttempted):
        ranks.observe(lambda x: None, lambda answer, x: answer(x), 1, look="")


SCRIPT = """
import sys, time
from labcheck import ranks
def endless():
    open("started", "w").close()
    while True:
        time.sleep(0.1)
ranks.run(endless, timeout=500, folder=sys.argv[1])
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.weekly)])
def test_nothing_is_left_when_the_notebook_ends(tmp_path, number):
    process = subprocess.Popen([sys.executable, "-c", SCRIPT, str(tmp_path)], stderr=subprocess.DEVNULL)
    wait_until((tmp_path / "started").exists)
    family = psutil.Process(process.pid).children(recursive=True)
    assert len(family) >= 3  # the server and two ranks
    process.send_signal(number)
    process.wait(600)
    wait_until(lambda: not any(map(is_alive, family)))


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
