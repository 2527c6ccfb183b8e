"""Several processes on one machine: workers of a DataLoader, and ranks that exchange tensors."""

from __future__ import annotations

import gc
import os
import socket
import tempfile
import threading
import warnings
from datetime import timedelta
from pathlib import Path

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, Dataset

from torchcourse import distributed
from torchcourse.commands.doctor.finding import Answer
from torchcourse.place import LONGEST_TMPDIR

WORKERS_LIMIT = 10  # seconds: where processes are not forked, each worker imports PyTorch first
RANKS_LIMIT = 5  # seconds
PORT = 29500  # where torchrun meets, unless told otherwise


class Squares(Dataset):
    """The smallest data set that shows whether workers deliver: item i is a tensor full of i²."""

    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.full((1000,), index**2, device="cpu")


def workers() -> Answer:
    """Do two worker processes deliver the batches of a DataLoader?"""
    if (length := len(tempfile.gettempdir())) > LONGEST_TMPDIR:
        found = f"they wait forever: the temporary folder's path has {length} characters, too many for their sockets"
        fix = "Set TMPDIR=/tmp, or to any folder with a short path. The course's notebooks do so themselves."
        return False, found, fix
    problem, right = "", False
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # "more workers than cores": they only have to prove that they can
            loader = DataLoader(Squares(), batch_size=2, num_workers=2, timeout=WORKERS_LIMIT)
            right = sum(int(batch[:, 0].sum()) for batch in loader) == 140
    except (RuntimeError, OSError) as error:
        lines = str(error).strip().splitlines()
        problem = lines[-1] if lines[0].startswith("Caught ") else lines[0]  # a worker's own traceback, or a sentence
    if problem:
        gc.collect()  # ends the workers, which hang on the error: now, and not in the middle of something else
        return False, f"two workers failed: {problem}", _workers_fix(problem.lower())
    fix = "" if right else "Restart the kernel."
    return right, "two of them deliver" if right else "two of them deliver wrong values", fix


def _workers_fix(problem: str) -> str:
    if any(word in problem for word in ("bus error", "shm", "shared memory", "no space")):
        return "`num_workers=0` in every DataLoader, or give the container a larger /dev/shm."
    if "open files" in problem:
        return "Raise the limit of open files with `ulimit -n 4096`, or `num_workers=0` in every DataLoader."
    return "Restart the kernel. If it happens again, `num_workers=0` in every DataLoader."


def host_name() -> Answer:
    """Does this machine know its own name? torchrun tells its ranks to meet there."""
    if os.environ.get("PET_LOCAL_ADDR"):  # torchrun --local-addr
        return True, "PET_LOCAL_ADDR says where ranks meet", ""
    family = socket.AF_INET6 if socket.has_dualstack_ipv6() else socket.AF_INET
    with socket.create_server(("", 0), family=family, dualstack_ipv6=family == socket.AF_INET6) as server:
        try:
            socket.create_connection((socket.getfqdn(), server.getsockname()[1]), timeout=2).close()
        except OSError as error:
            found = f"this machine cannot be reached by its own name ({error.strerror or error})"
            return False, found, "Set PET_LOCAL_ADDR=127.0.0.1, else torchrun waits for minutes; MASTER_ADDR likewise."
    return True, "this machine reaches itself by name", ""


def ports(told: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> Answer:
    """Can a process listen on this machine, and are there ports enough?"""
    try:
        with socket.create_server(("127.0.0.1", 0)) as server:
            socket.create_connection(server.getsockname(), timeout=2).close()
    except OSError as error:
        fix = "Something forbids connections within this machine: a firewall, or a sandbox without loopback."
        return False, f"no program can listen on 127.0.0.1 ({error.strerror or error})", fix
    found = "free ones can be had"
    if told.is_file():
        low, high = (int(word) for word in told.read_text().split())
        found = f"free ones from {low} to {high}"
        if high - low < 1000:
            return None, f"{found}: few", "Many ranks may run out of them: tell the administrator of this machine."
    if not _free(PORT):
        fix = "`torchrun --standalone` and `%%torchrun` choose a free one; else say `--master-port`."
        return None, f"{found}; {PORT}, torchrun's own, is taken", fix
    return True, found, ""


def _free(port: int) -> bool:
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def gloo() -> Answer:
    """Do two ranks exchange a tensor? Each is a thread here, with a process group of its own."""
    if not (dist.is_available() and dist.is_gloo_available()):
        return None, "this PyTorch is built without it", "Chapter 06 needs another build of PyTorch, or Linux."
    wish = os.environ.get("GLOO_SOCKET_IFNAME")
    interfaces = [name for _, name in socket.if_nameindex()]
    if wish and wish not in interfaces:
        fix = f"The course ignores it. Your own scripts need one that this machine has: {', '.join(interfaces)}."
        return None, f"GLOO_SOCKET_IFNAME is {wish}, which is not an interface of this machine", fix
    try:
        with distributed.on_loopback():  # as `%%torchrun` does
            sums = _exchange()
    except (RuntimeError, OSError) as error:
        problem = str(error).strip().splitlines()[0]
        return False, f"two ranks could not exchange a tensor: {problem}", _gloo_fix()
    if sums != [3.0, 3.0]:
        return False, f"two ranks added 1 and 2, and got {sums}", _gloo_fix()
    return True, "two ranks exchanged a tensor", ""


def _gloo_fix() -> str:
    interface = distributed.loopback() or "lo"
    return f"Set GLOO_SOCKET_IFNAME={interface} and MASTER_ADDR=127.0.0.1, then restart the kernel."


def _exchange() -> list[float]:
    """What each of two ranks has after an all-reduce of 1 and 2. Raises what a rank raised."""
    limit = timedelta(seconds=RANKS_LIMIT)
    # Not a TCPStore: it looks up names, and complains below Python where there is no name service.
    store = dist.HashStore()
    store.set_timeout(limit)
    results: list[float | BaseException] = [0.0, 0.0]

    def rank(number: int) -> None:
        try:
            group = dist.ProcessGroupGloo(store, number, 2, limit)
            value = torch.full((1,), number + 1.0, device="cpu")
            group.allreduce([value]).wait()
            results[number] = value.item()
        except Exception as error:
            results[number] = error

    ranks = [threading.Thread(target=rank, args=(number,), daemon=True) for number in range(2)]
    for thread in ranks:
        thread.start()
    for thread in ranks:
        thread.join()
    for result in results:
        if isinstance(result, Exception):
            raise result
    return results
