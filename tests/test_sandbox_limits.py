"""The filter and the memory group that sandboxes share: real system calls, real memory."""

import errno
import json
import os
import subprocess
import sys

import pytest
from conftest import need

from tools import sandbox_limits

# Tries what its name says, and prints the error of each: 0 where it went well.
TRIES = """\
import ctypes, errno, json, mmap, os, platform, socket, sys
libc = ctypes.CDLL(None, use_errno=True)

def call(number, *arguments):
    ctypes.set_errno(0)
    done = libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments))
    return ctypes.get_errno() if done == -1 else 0

def tried(function, *arguments):
    try:
        function(*arguments)
    except OSError as error:
        return error.errno
    return 0

USER, NET, FILES, CHILD = 0x10000000, 0x40000000, 0x400, 17
N = json.loads(sys.argv[1])

def clone(flags):
    pid = libc.syscall(ctypes.c_long(N["clone"]), ctypes.c_long(flags), *[ctypes.c_long(0)] * 4)
    if pid == 0:
        os._exit(0)
    if pid == -1:
        return ctypes.get_errno()
    os.waitpid(pid, 0)
    return 0

found = {
    "clone": clone(CHILD), "clone-user": clone(CHILD | USER),
    "unshare-files": call(N["unshare"], FILES), "unshare-user": call(N["unshare"], USER),
    "unshare-both": call(N["unshare"], USER | NET), "clone3": call(N["clone3"], 0, 0), "setns": call(N["setns"], -1, 0),
    "keyctl": call(N["keyctl"], 0, -2, 1), "bpf": call(N["bpf"], 0, 0, 0), "io_uring": call(N["io_uring_setup"], 0, 0),
    "unix": tried(socket.socket, socket.AF_UNIX), "inet6": tried(socket.socket, socket.AF_INET6),
    "vsock": tried(socket.socket, 40, socket.SOCK_STREAM), "alg": tried(socket.socket, 38, socket.SOCK_SEQPACKET),
    "memfd": tried(os.memfd_create, "x"), "shmget": call(N["shmget"], 0, 4096, 0o1600),
    "private": tried(mmap.mmap, -1, 4096, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS),
    "shared": tried(mmap.mmap, -1, 4096),
    "processes": tried(os.waitpid, os.posix_spawn("/bin/true", ["true"], {}), 0),
}
if platform.machine() == "x86_64":
    found["x32"] = call(0x40000000 + 39)
print(json.dumps(found))
"""


def tried(shared_memory: bool) -> dict[str, int]:
    """What a program under the filter may do: name -> errno."""
    need("bubblewrap")
    program = sandbox_limits.seccomp(shared_memory=shared_memory)
    if program is None:
        pytest.skip("no filter for this machine")
    numbers = json.dumps(sandbox_limits.MACHINES[os.uname().machine])
    with sandbox_limits.open_program(program) as fd:
        # An IPC namespace of its own: what shmget leaves ends with it.
        words = ["bwrap", "--dev-bind", "/", "/", "--unshare-ipc", "--seccomp", str(fd), "--"]
        done = subprocess.run(
            [*words, sys.executable, "-c", TRIES, numbers], pass_fds=[fd], capture_output=True, text=True, timeout=120
        )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("shared_memory", [True, False])
def test_the_filter(shared_memory: bool):
    """No new user namespace by any way, no kernel interface without use; and what programs need goes on."""
    found = tried(shared_memory)
    expected = dict.fromkeys(found, 0)
    expected |= dict.fromkeys(("clone-user", "unshare-user", "unshare-both", "setns", "keyctl", "bpf"), errno.EPERM)
    expected |= dict.fromkeys(("clone3", "io_uring", "x32"), errno.ENOSYS)
    expected |= dict.fromkeys(("vsock", "alg"), errno.EAFNOSUPPORT)
    if not shared_memory:
        expected |= {"memfd": errno.EPERM, "shmget": errno.EPERM, "shared": errno.ENOMEM}
    assert found == {name: expected[name] for name in found}


SHARING = """\
import torch
from torch.utils.data import DataLoader
if __name__ == "__main__":
    torch.multiprocessing.set_sharing_strategy("{strategy}")
    batches = list(DataLoader(torch.arange(8.0), batch_size=4, num_workers=1, multiprocessing_context="{start}"))
    print(torch.cat(batches).sum().item())
"""


@pytest.mark.parametrize(("strategy", "start"), [("file_descriptor", "fork"), ("file_system", "fork")])
def test_workers_hand_over_their_batches(tmp_path, strategy: str, start: str):
    """DataLoader workers share memory in /dev/shm, which stays allowed."""
    need("bubblewrap")
    program = sandbox_limits.seccomp(shared_memory=False)
    if program is None:
        pytest.skip("no filter for this machine")
    script = tmp_path / "script.py"
    script.write_text(SHARING.format(strategy=strategy, start=start))
    with sandbox_limits.open_program(program) as fd:
        words = ["bwrap", "--dev-bind", "/", "/", "--tmpfs", "/dev/shm", "--seccomp", str(fd), "--"]
        done = subprocess.run(
            [*words, sys.executable, script], pass_fds=[fd], capture_output=True, text=True, timeout=300
        )
    assert done.stdout.split() == ["28.0"], done.stderr


def test_an_unknown_machine_has_no_filter():
    assert sandbox_limits.seccomp(machine="riscv64") is None
    assert sandbox_limits.seccomp(machine="aarch64") != sandbox_limits.seccomp(machine="x86_64")


# --------------------------------------------------------------------------------------------------------------- memory

MIB = 2**20
# Fill memory in one of three ways, 32 MiB at a time, and say how far it went.
FILL = """\
import mmap, os, sys
way, most, held = sys.argv[1], int(sys.argv[2]), []
memory = open("/dev/shm/torchcourse-test-" + str(os.getpid()), "wb") if way == "file" else None
if memory:
    os.unlink(memory.name)
if way == "memfd":
    memory = open(os.memfd_create("x"), "wb")
for size in range(32, most + 1, 32):
    if memory:
        memory.write(bytes(32 * 2**20))
        memory.flush()
    else:
        held.append(b"x" * (32 * 2**20))
    print(size, flush=True)
"""


def filled(group: sandbox_limits.MemoryGroup, way: str, mib: int) -> tuple[int, int]:
    """How many MiB a program could fill in a group, and its exit status."""
    words = [*group.prefix, sys.executable, "-c", FILL, way, str(mib)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=300)
    return int((done.stdout.split() or ["0"])[-1]), done.returncode


@pytest.fixture
def group():
    made = sandbox_limits.MemoryGroup.make(256 * MIB)
    if made is None:
        pytest.skip("the system grants no memory group")
    with made:
        yield made


@pytest.mark.parametrize("way", ["private", "memfd", "file"])
def test_all_memory_counts(group: sandbox_limits.MemoryGroup, way: str):
    """Shared memory and files in memory end a program like memory of its own."""
    held, status = filled(group, way, 512)
    assert held < 256 and status != 0
    if group.place:
        assert group.kills >= 1 and 200 * MIB < group.peak <= 256 * MIB


def test_within_the_limit_nothing_happens(group: sandbox_limits.MemoryGroup):
    assert filled(group, "memfd", 128) == (128, 0)
    if group.place:
        assert group.kills == 0 and 128 * MIB <= group.peak <= 256 * MIB


def test_a_group_ends_with_what_is_inside(group: sandbox_limits.MemoryGroup):
    """Removing it ends its processes, also those that were put in later."""
    inside = subprocess.Popen([*group.prefix, "sh", "-c", "echo; sleep 1000"], stdout=subprocess.PIPE)
    assert inside.stdout.readline()
    waiting = [inside]
    if group.place:
        waiting.append(subprocess.Popen(["sleep", "1000"]))
        group.add(waiting[-1].pid)
    try:
        group.remove()
        assert all(process.wait(60) < 0 for process in waiting)
        assert group.place is None or not group.place.exists()
    finally:
        for process in waiting:
            process.kill()
        inside.stdout.close()


@pytest.fixture
def old_group(group: sandbox_limits.MemoryGroup, monkeypatch: pytest.MonkeyPatch):
    """A group as an earlier program made it, and the function that looks for left ones."""
    monkeypatch.setattr(sandbox_limits.time, "time", lambda: 1e9)
    made = sandbox_limits.MemoryGroup.make(256 * MIB)
    monkeypatch.undo()
    if made.place is None:
        pytest.skip("systemd keeps the groups, and removes them itself")
    with made:
        yield made, sandbox_limits._maker.__wrapped__


def test_a_group_that_a_killed_program_left_is_removed(group: sandbox_limits.MemoryGroup, old_group):
    """Not one with a process in it, and not a new one."""
    old, look = old_group
    with subprocess.Popen([*old.prefix, "cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as inside:
        inside.stdin.write(b"inside\n")
        inside.stdin.flush()
        assert inside.stdout.readline()
        look()
        assert old.place.is_dir()
        inside.stdin.close()
    look()
    assert not old.place.exists() and group.place.is_dir()


def test_nothing_is_granted(monkeypatch: pytest.MonkeyPatch):
    """Where no way holds a limit there is None, not a group that does nothing."""
    monkeypatch.setattr(sandbox_limits, "_maker", lambda: None)
    assert sandbox_limits.MemoryGroup.make(MIB) is None


def test_no_group_leaves_the_job_of_a_cluster(monkeypatch: pytest.MonkeyPatch):
    """systemd's scopes lie outside of it: neither the job's limits nor its end would reach them."""
    monkeypatch.setattr(sandbox_limits.Path, "exists", lambda path: True)
    monkeypatch.setattr(sandbox_limits.shutil, "which", lambda program: program)
    monkeypatch.delenv("SLURM_JOB_ID", raising=False)
    assert sandbox_limits._with_systemd(MIB) is not None
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    assert sandbox_limits._with_systemd(MIB) is None


def test_what_others_may_not_read_is_found(tmp_path):
    """Root's sandboxes run as other users: private data would not be there for them."""
    folder = tmp_path / "data" / "mnist"
    folder.mkdir(parents=True)
    (folder / "train").write_text("images")
    for path, mode in ((tmp_path / "data", 0o755), (folder, 0o755), (folder / "train", 0o644)):
        path.chmod(mode)
    assert sandbox_limits.hidden_from_others(tmp_path / "data") is None
    (folder / "train").chmod(0o600)
    assert sandbox_limits.hidden_from_others(tmp_path / "data") == folder / "train"
    folder.chmod(0o700)
    assert sandbox_limits.hidden_from_others(tmp_path / "data") == folder
    assert sandbox_limits.hidden_from_others(tmp_path / "nowhere") is None
