"""The limits that sandboxes share: real system calls, real memory."""

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


def test_an_unknown_machine_has_no_filter():
    assert sandbox_limits.seccomp(machine="riscv64") is None
    assert sandbox_limits.seccomp(machine="aarch64") != sandbox_limits.seccomp(machine="x86_64")


# ---------------------------------------------------------------------------------------------------------------- files


def test_a_course_among_programs_is_hidden(tmp_path, monkeypatch: pytest.MonkeyPatch):
    """Wherever it lies in what is shown: there is the package, and no copy of it with solutions."""
    need("bubblewrap")
    course, installed = tmp_path / "lib" / "course", tmp_path / "lib" / "python3.11" / "site-packages"
    package, labs = course / "src" / "torchcourse", course / "src" / "torchcourse_labs"
    secret = [course / "course.toml", course / "solutions" / "slope.ipynb", labs / "slope.py"]
    for file in (package / "training.py", *secret, installed / labs.name / "slope.py", installed / "numpy" / "core.py"):
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch()
    system = sandbox_limits.programs()
    monkeypatch.setattr(sandbox_limits, "programs", lambda: [tmp_path / "lib"])
    binds = {path: path for path in (*system, tmp_path / "lib", package)}
    sandbox_limits.hide(binds, course, sandbox_limits.copies(package), *sandbox_limits.copies(labs))
    words = ["bwrap", "--dev", "/dev", *sandbox_limits.mounts(binds), "find", str(tmp_path), "-type", "f"]
    done = subprocess.run(words, capture_output=True, text=True)
    assert {*done.stdout.split()} == {str(package / "training.py"), str(installed / "numpy" / "core.py")}, done.stderr


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
        assert group.kills >= 1


def test_within_the_limit_nothing_happens(group: sandbox_limits.MemoryGroup):
    assert filled(group, "memfd", 128) == (128, 0)
    assert not group.kills


def test_a_group_ends_with_what_is_inside(group: sandbox_limits.MemoryGroup):
    with subprocess.Popen([*group.prefix, "sh", "-c", "echo; sleep 1000"], stdout=subprocess.PIPE) as inside:
        assert inside.stdout.readline()
        group.remove()
        assert inside.wait(60) < 0
    assert group.place is None or not group.place.exists()


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
