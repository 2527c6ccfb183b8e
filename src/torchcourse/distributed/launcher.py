"""Starts the ranks of a cell: PyTorch's own elastic launcher, set up as `torchrun --standalone` sets it up.

`import torch` takes seconds, and an optimizer imports as much again. On Linux, one process does it once for the whole
notebook: the "fork server" of Python's multiprocessing. Everything that a cell needs is forked from it:

    notebook ─ fork server ─ launcher (one for each cell) ─ ranks

A rank is like any new process, except that `torch` is imported already: a variable that a library reads while it is
loaded has to be set before the first cell. macOS's own libraries do not survive a fork: there all processes are new.
"""

import contextlib
import multiprocessing
import os
import shutil
import signal
import sys
import tempfile
import threading
from multiprocessing.process import BaseProcess

from torch.distributed.elastic.multiprocessing import DefaultLogsSpecs
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.launcher import LaunchConfig, elastic_launch

from torchcourse.distributed.rank import Job, run
from torchcourse.distributed.watcher import adopt_orphans, end_all

METHOD = "fork" if sys.platform == "linux" else "spawn"
STOP = signal.SIGUSR1  # ends a launcher and all below it; PyTorch's launcher has handlers of its own for the usual ones


def start(job: Job) -> BaseProcess:
    """Start the launcher of a job, and with the first one the fork server."""
    # The server listens on a socket below the temporary folder, and the path of a socket has at most 107 bytes.
    short = len(tempfile.gettempdir()) <= 107 - len("/pymp-xxxxxxxx/listener-xxxxxxxx")
    context = multiprocessing.get_context("forkserver" if METHOD == "fork" and short else "spawn")
    context.set_forkserver_preload(["torchcourse.preload"])
    process = context.Process(target=launch, args=(job,))
    process.start()
    return process


def launch(job: Job) -> None:
    """Run a job on its ranks, and again after a failure, as often as it allows."""
    os.setsid()  # an interrupt is for the notebook
    if not os.path.exists(job.scratch):  # it was interrupted while the fork server began
        return
    log = os.open(f"{job.scratch}/launcher.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    os.dup2(log, 1)
    os.dup2(log, 2)
    # LaunchConfig asks how many GPUs there are. Forks of a process that has asked CUDA for anything cannot use it; with
    # these variables the answer is "none", and CUDA is not asked.
    os.environ |= {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "PYTORCH_NVML_BASED_CUDA_CHECK": "1"}
    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=job.ranks,
        max_restarts=job.max_restarts,
        run_id="cell",
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",  # the machine's own name may lead nowhere
        logs_specs=DefaultLogsSpecs(log_dir=f"{job.scratch}/logs"),
        start_method=METHOD,
    )
    os.environ.clear()
    os.environ.update(job.environment)
    notebook = multiprocessing.parent_process()

    def end(*_: object) -> None:
        """Leave nothing running, and no file where nobody else can remove it."""
        end_all()
        if not notebook.is_alive():
            shutil.rmtree(job.scratch, ignore_errors=True)
        os._exit(0)

    def end_with_notebook() -> None:
        notebook.join()
        os.kill(os.getpid(), STOP)

    adopt_orphans()
    # A handler runs in the main thread: PyTorch's launcher, which runs there, cannot start ranks again meanwhile.
    signal.signal(STOP, end)
    threading.Thread(target=end_with_notebook, daemon=True).start()
    with contextlib.suppress(ChildFailedError):  # the rank has written down why, or the log says that it has not
        elastic_launch(config, run)(job)
    end()
