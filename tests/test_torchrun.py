"""`%%torchrun`: real processes. What is shown, what is explained, and that nothing keeps running.

Each start of torchrun takes seconds: so the cells here import PyTorch only where they need it, and one cell shows much.
"""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import textwrap
from types import SimpleNamespace

import psutil
import pytest
import torch
from conftest import is_alive, wait_until
from IPython.core.error import UsageError

from torchcourse import distributed
from torchcourse.distributed import launcher, magic
from torchcourse.distributed.rank import Job
from torchcourse.errors import CourseError

pytestmark = [pytest.mark.skipif(os.name != "posix", reason="%%torchrun needs Linux or macOS")]


@pytest.fixture(autouse=True)
def folder(tmp_path, tmp_path_factory, monkeypatch):
    """The notebook's folder, and a temporary one of its own: what is left there shows."""
    (tmp_path / "here").mkdir()
    temporary = tmp_path_factory.mktemp("t")  # short: the fork server has a socket in it
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr("tempfile.tempdir", str(temporary))
    monkeypatch.delenv("OMP_NUM_THREADS", raising=False)
    yield tmp_path / "here"
    for each in psutil.process_iter(["cmdline"]):
        mine = each.pid != os.getpid() and any(str(tmp_path) in word for word in each.info["cmdline"] or ())
        assert not (mine and is_alive(each)), f"{each} of this test is still running"
    (server,) = [child for child in psutil.Process().children() if "forkserver" in str(child.cmdline())] or [None]
    assert not server or not any(map(is_alive, server.children(recursive=True)))
    # `import torch._dynamo` makes a folder for code that nobody has compiled yet, the fork server one for its socket.
    left = [path.name for path in temporary.iterdir() if not path.name.startswith(("torchinductor", "pymp-"))]
    assert left == [], "left in the temporary folder"


def run(line, cell):
    """What the cell shows, and the sentence of its error (None if it has none)."""
    shown, sentence = io.StringIO(), None
    with contextlib.redirect_stdout(shown):
        try:
            magic.torchrun(line, textwrap.dedent(cell))
        except (CourseError, UsageError) as error:
            sentence = str(error)
    return shown.getvalue(), sentence


def test_lines_come_at_once_and_whole(folder):
    class Screen(io.StringIO):
        def write(self, text):
            if "waiting" in text:
                (folder / "go").touch()  # nobody would, if lines came at the end only
            return super().write(text)

    cell = """
        import os, pathlib, subprocess, sys, time
        print("waiting ✓ ünïcode 漢字")
        while not pathlib.Path("go").exists():
            time.sleep(0.05)
        print(os.environ["RANK"] * 10_000)
        print("threads", os.environ["OMP_NUM_THREADS"], __name__, sys.argv, file=sys.stderr)
        print("10 %\\r20 %\\r30 %")
        subprocess.run(["echo", "from a child"])
        print("no newline at the end", end="")
    """
    screen = Screen()
    with contextlib.redirect_stdout(screen):
        magic.torchrun("-n 2", textwrap.dedent(cell))
    (folder / "go").unlink()
    threads = max(1, len(os.sched_getaffinity(0)) // 2) if hasattr(os, "sched_getaffinity") else os.cpu_count() // 2
    lines = screen.getvalue().splitlines()
    for rank in "01":
        mine = [line.removeprefix(f"[rank {rank}] ") for line in lines if line.startswith(f"[rank {rank}] ")]
        mine.remove("from a child")
        said = f"threads {threads} __main__ ['cell.py']"
        assert mine == ["waiting ✓ ünïcode 漢字", rank * 10_000, said, "30 %", "no newline at the end"]
    assert len(lines) == 12 and list(folder.iterdir()) == []


def test_a_notebook_finds_what_was_printed():
    magics = {}
    shell = SimpleNamespace(register_magic_function=lambda f, magic_kind: magics.update(f=f))
    distributed.load_ipython_extension(shell)
    for world_size in (2, 1):
        with contextlib.redirect_stdout(io.StringIO()) as screen:
            magics["f"](f"-n {world_size}", "import os\nprint('rank', os.environ['RANK'])")
        assert distributed.printed == screen.getvalue().splitlines() and len(distributed.printed) == world_size


def test_the_rank_that_failed_first_is_shown(folder):
    """The other one loses its connection, and is done long before."""
    cell = """
        import time
        from torchcourse import distributed
        import torch.distributed as dist

        def look_up(table):
            return table["ä"]

        try:
            with distributed.setup() as me:
                if me.rank == 1:
                    look_up({})
                dist.barrier()
        finally:
            time.sleep(3 * me.rank)
    """
    shown, sentence = run("--nproc-per-node 2 train.py", cell)
    start = shown.index("Traceback (most recent call last):")
    # Line 1 is the magic, line 2 the empty one of this test.
    assert shown[start:].splitlines()[1] == '  File "train.py", line 13, in <module>'
    assert "    look_up({})" in shown and '    return table["ä"]' in shown and "KeyError: 'ä'" in shown
    assert shown.count("Traceback") == 1 and "barrier" not in shown and "/site-packages/" not in shown
    assert sentence.startswith("Rank 1 failed in line 8 with KeyError: 'ä'.") and "rank 0" in sentence
    assert shown.startswith("Written to train.py")
    assert (folder / "train.py").read_text().startswith("# torchrun --nproc-per-node 2 train.py\n")
    assert [file.name for file in folder.iterdir()] == ["train.py"]


def test_time_limit_says_where_each_rank_was():
    """... and ends ranks that do not listen to SIGTERM."""
    cell = """
        import os, signal, time
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        print("here", os.getpid(), flush=True)
        if os.environ["RANK"] == "1":
            time.sleep(10_000)
    """
    shown, sentence = run("-n 2 --timeout 4", cell)
    assert "rank 0 had finished" in shown and "rank 1 was in line 7: time.sleep(10_000)" in shown
    assert "4 seconds" in sentence
    pids = [int(line.split()[-1]) for line in shown.splitlines() if "here" in line]
    assert len(pids) == 2 and not any(psutil.pid_exists(pid) for pid in pids)


def test_a_process_that_dies_is_named_and_not_the_one_that_lost_its_connection():
    cell = """
        import os, signal, torch, torch.distributed as dist
        from torchcourse import distributed
        with distributed.setup() as me:
            if me.rank == 1 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
                os.kill(os.getpid(), signal.SIGKILL)
            dist.all_reduce(torch.ones(1))
    """
    shown, sentence = run("-n 2 --max-restarts 1", cell)
    assert sentence is None, shown
    (news,) = [line for line in shown.splitlines() if line.startswith("[torchrun]")]
    assert "rank 1 ended without an exception" in news
    _, sentence = run("-n 2", cell)
    assert "Rank 1 ended without an exception: signal SIGKILL" in sentence and "rank 0" in sentence


def test_a_cell_that_is_meant_to_run_out_of_time():
    slow = "import time; print('here', flush=True); time.sleep(10_000)"
    shown, sentence = run("-n 2 --timeout 6 --expect-timeout", slow)
    assert sentence is None and "here" in shown and "The cell was stopped after 6 seconds." in shown
    for cell, said in (("print(1)", "meant to run out of time"), ("1 / 0", "ZeroDivisionError")):
        assert said in run("-n 2 --expect-timeout", cell)[1], "another end is not taken for it"


SCRIPT = """
from torchcourse import distributed
from torchcourse.distributed import magic
for cell in range(2):
    try:
        magic.torchrun("-n 2", f'''
import os, signal, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open("started{cell}" + os.environ["RANK"], "w").close()
while True:
    time.sleep(1)
''')
    except magic.Interrupted:
        print("Interrupted")
"""


def test_nothing_is_left_of_a_notebook(folder):
    """Not of a cell that is interrupted, and nothing at all where the notebook is killed."""
    process = subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    notebook, warmed = psutil.Process(process.pid), set()
    for cell, number in enumerate([signal.SIGINT, signal.SIGKILL]):
        wait_until(lambda cell=cell: all((folder / f"started{cell}{rank}").exists() for rank in range(2)))
        family = {process for process in notebook.children(recursive=True) if is_alive(process)}
        # A launcher, two ranks, a helper of multiprocessing; where they are forked, the fork server.
        assert len(family) == (5 if sys.platform == "linux" else 4) and warmed <= family
        if number == signal.SIGINT and sys.platform == "linux":
            warmed = set(notebook.children())
        process.send_signal(number)
        left = family if number == signal.SIGKILL else family - warmed
        wait_until(lambda left=left: not any(map(is_alive, left)))
    out, _ = process.communicate(timeout=600)
    wait_until(lambda: not [name for name in os.listdir(os.environ["TMPDIR"]) if name.startswith("torchrun")])
    assert b"Interrupted" in out


SIGNALED = """
import os, signal, subprocess, sys
from torchcourse import distributed
from torchcourse.distributed import watcher

def signaled(*_, **__):
    os.kill(os.getpid(), signal.SIGTERM)

def popen(*_, **__):
    signaled()
    return type("Child", (), {"wait": signaled})()

def end_all():
    if not ended:
        ended.append(True)
        signaled()
    print("all ended", flush=True)

ended, watcher.end_all, subprocess.Popen = [], end_all, popen
watcher.watch("no folder", [])
"""


def test_a_watcher_ends_everything_whenever_a_signal_comes():
    """At the start, while it looks, and in the middle of the ending: its notebook is dead, too, for the pipe ended."""
    command = [sys.executable, "-c", SIGNALED]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=600)
    assert done.stdout.startswith("all ended") and done.returncode == 1, done.stderr


def test_a_rank_is_like_a_new_process(folder, monkeypatch):
    """Forked or not, it has its own environment, folder, and random numbers, and what it leaves behind is finished."""
    cell = """
        import atexit, os, random, sys, __main__
        import numpy, torch
        print("drawn", random.random(), numpy.random.rand(), torch.rand(1).item())
        print(os.environ["MINE"], os.getcwd(), sys.path[0], __main__.__file__ == __file__, "run" in globals())
        half = open("half" + os.environ["RANK"], "w")
        half.write("whole")
        atexit.register(print, "leaving")
    """
    seen = []
    for mine in ("first", "second"):
        monkeypatch.setenv("MINE", mine)
        shown, sentence = run("-n 2", cell)
        assert sentence is None, shown
        lines = [line.partition("] ")[2] for line in shown.splitlines()]
        assert lines.count("leaving") == 2 and f"{mine} {folder} {folder} True False" in lines
        seen += [number for line in lines if line.startswith("drawn") for number in line.split()[1:]]
        assert [(folder / f"half{rank}").read_text() for rank in range(2)] == ["whole"] * 2
    assert len(set(seen)) == 12


@pytest.mark.gpu
def test_ranks_train_on_the_device_they_have():
    """Forks use the GPU, and where there is one for two ranks, they share it.

    PyTorch's launcher asks CUDA how many GPUs there are, and the forks of a process that has asked cannot use it. A
    PyTorch that is built for CUDA says so without a GPU, too.
    """
    cell = """
        import torch, torch.distributed as dist
        from torch.nn.parallel import DistributedDataParallel
        from torchcourse import distributed
        with distributed.setup() as me:
            mine = torch.full((3,), me.rank + 1.0, device=me.device)
            dist.all_reduce(mine)
            model = DistributedDataParallel(torch.nn.Linear(3, 1).to(me.device))
            model(torch.full((1, 3), float(me.rank), device=me.device)).sum().backward()
            print(mine.device.type, mine.tolist(), model.module.weight.grad.tolist())
        print("asked before:", torch.cuda._is_in_bad_fork())
    """
    shown, sentence = run("-n 2", cell)
    assert sentence is None, shown
    assert shown.count("asked before: False") == 2, shown
    kind = "cuda" if torch.cuda.is_available() else "cpu"
    for rank in range(2):
        assert f"[rank {rank}] {kind} [3.0, 3.0, 3.0] [[0.5, 0.5, 0.5]]" in shown.splitlines(), shown


@pytest.mark.parametrize("shared", ["1", "0"], ids=["a store for each attempt", "torchrun's own store"])
def test_restarts_are_visible(monkeypatch, shared):
    """Both ways to a group that does not find the addresses of the dead: by what the magic sets, and by `setup()`."""
    monkeypatch.setenv("TORCH_DISABLE_SHARE_RDZV_TCP_STORE", shared)
    cell = """
        import os
        attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
        print("attempt", attempt, os.environ["TORCH_DISABLE_SHARE_RDZV_TCP_STORE"])
        from torchcourse import distributed
        with distributed.setup() as me:
            if me.rank == 1:
                9 // attempt
    """
    shown, sentence = run("-n 2 --max-restarts 1", cell)
    assert sentence is None, shown
    lines = shown.splitlines()
    assert "rank 1 failed with ZeroDivisionError" in lines[2] and "restart 1 of 1" in lines[2]
    for attempt, two in ((0, lines[:2]), (1, lines[3:])):
        assert sorted(two) == [f"[rank {rank}] attempt {attempt} {shared}" for rank in range(2)]


@pytest.mark.parametrize("name", ["torchcourse.distributed.launcher.METHOD", "tempfile.tempdir"])
def test_where_no_fork_server_can_run_new_processes_are_started(name, monkeypatch, tmp_path):
    long = tmp_path / ("x" * 80)  # a folder in which no socket can be
    long.mkdir()
    monkeypatch.setattr(name, "spawn" if "METHOD" in name else str(long))
    shown, sentence = run("-n 1", "import os; print(os.environ['WORLD_SIZE'])")
    assert sentence is None and shown == "[rank 0] 1\n"


def test_what_cannot_run_is_said_and_not_started(monkeypatch, folder):
    def refuse(*_, **__):
        raise AssertionError("a process was started")

    monkeypatch.setattr(launcher, "start", refuse)
    shown, sentence = run("-n 2", "x = 1\nfor i in range(3)\n    print(i)\n")
    assert shown.splitlines()[:2] == ['  File "cell.py", line 3', "    for i in range(3)"]
    assert "in line 3" in sentence and "nothing was started" in sentence
    assert "notebook" in run("-n 2", "!ls")[1]
    wrong = {"": "nproc-per-node", "-n 0": "not a number of processes", "-n 2 train": "does not end in .py"}
    for line, words in wrong.items():
        assert words in run(line, "print(1)")[1]
    assert list(folder.iterdir()) == []


def test_a_stack_becomes_a_place():
    stack = """Thread 0x00007f (most recent call first):
  File "/usr/lib/python3.12/threading.py", line 331 in wait

Current thread 0x00008f (most recent call first):
  File "/x/site-packages/torch/distributed/distributed_c10d.py", line 3000 in all_reduce
  File "/x/site-packages/torch/distributed/c10d_logger.py", line 83 in wrapper
  File "cell.py", line 2 in average
  File "cell.py", line 4 in <module>
"""
    source = "# torchrun\n    reduce(gradient)\n\naverage()"
    run = magic._Run(Job("cell.py", "", source, 2, 0, "", {}), 1, False)
    assert run._place(stack) == "in line 2: reduce(gradient)   (waiting in `all_reduce`)"
    assert run._place("") == "not yet in your code"


BOOM = "failed in line 3 with ValueError: boom."
DIED = "failed (exitcode: -11) local_rank: 0 (pid: 7) of fn: run"


@pytest.mark.parametrize(
    ("failures", "log", "sentence"),
    [
        ({0: ("boom", 5.0), 1: ("boom", 4.0)}, "", f"All 2 ranks {BOOM}"),
        ({1: ("boom", 5.0)}, "", f"Rank 1 {BOOM} torchrun then stopped rank 0."),
        (  # one lost the other, and was quicker to say so
            {0: ("Connection closed by peer [127.0.0.1]:7", 4.0), 1: ("boom", 5.0)},
            "",
            f"Rank 1 {BOOM} After that, rank 0 failed with ValueError: Connection closed by peer.",
        ),
        ({1: ("boom", 5.0)}, DIED, "Rank 0 ended without an exception: signal SIGSEGV. After that, rank 1 failed"),
        ({}, "no module", "The launcher could not run the cell"),
    ],
)
def test_what_is_said_of_ranks_that_failed(tmp_path, failures, log, sentence):
    run = magic._Run(Job("cell.py", "", "", 2, 0, str(tmp_path), {}), 1, False)
    (tmp_path / "launcher.log").write_text(log)
    for rank, (message, moment) in failures.items():
        report = {"rank": rank, "time": moment, "type": "ValueError", "message": message, "line": 3, "traceback": "T"}
        (tmp_path / f"0-{rank}.failed").write_text(json.dumps(report))
    (tmp_path / "0-0.pid").touch()
    with pytest.raises(CourseError) as caught, contextlib.redirect_stdout(io.StringIO()):
        run._explain()
    assert str(caught.value).startswith(sentence)
