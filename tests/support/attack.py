"""What an attacker tries from a notebook of `make hub`. All that succeeds, or is there to be seen, is in the answer.

It runs inside a student's sandbox, with only Python's own library; tests/test_hub.py says what may be in the answer.
"""

import ctypes
import json
import os
import re
import socket
import stat
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

given = json.loads(Path(__file__).with_name("given.json").read_text())


def succeeds(attempt, *arguments) -> bool:
    try:
        attempt(*arguments)
    except OSError:
        return False
    return True


def reached(family: int, address: object) -> bool:
    with socket.socket(family) as one:
        one.settimeout(5)
        return succeeds(one.connect, address)


def status(url: str, data: object = None, **headers: str) -> int:
    request = urllib.request.Request(url, data and json.dumps(data).encode(), headers)
    try:
        return urllib.request.urlopen(request).status
    except urllib.error.HTTPError as error:
        return error.code


def text(path: str) -> str:
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""


def of_processes(folder: str) -> list[str]:
    """The names of what each process has in this folder of /proc."""
    places = [f"/proc/{each}/{folder}" for each in os.listdir("/proc") if each.isdigit()]
    return [f"{place}/{name}" for place in places if succeeds(os.listdir, place) for name in os.listdir(place)]


def holds(code: str) -> bool:
    """Whether a program can hold more memory than a student has."""
    fill = f"chunk = bytes(1 << 26); [m.write(chunk) for i in range({given['too much']} // (1 << 26))]"
    code = f"import mmap, os; {code.format(size=given['too much'], fill=fill)}; print('held')"
    return "held" in subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout


hub = os.environ["JUPYTERHUB_API_URL"].removesuffix("/api")
board = os.environ["TORCHCOURSE_BOARD"]
token = {"Authorization": "token " + os.environ["JUPYTERHUB_API_TOKEN"]}
home, libc = os.path.expanduser("~"), ctypes.CDLL(None)
mounts = [line.split() for line in text("/proc/self/mountinfo").splitlines()]
sockets = [line.split() for line in text("/proc/net/tcp").splitlines()[1:]]
system = [Path("/proc", name) for name in os.listdir("/proc") if not re.fullmatch(r"\d+|self|thread-self", name)]
system += [Path(top, name) for path in system for top, folders, files in os.walk(path) for name in (*folders, *files)]
devices = {name: stat.S_IFMT(os.lstat(f"/dev/{name}").st_mode) for name in os.listdir("/dev")}
me = dict(line.split(":", 1) for line in text("/proc/self/status").splitlines())
told = [text(path) for path in of_processes("") if path.endswith(("/environ", "/cmdline"))]

found = {
    # Files.
    "homes": os.listdir(given["homes"]),
    "state": os.listdir(given["state"]),
    "project": os.listdir(given["root"]),
    "data": sorted(os.listdir(os.environ["TORCHCOURSE_DATA"])),
    "shadow": os.path.exists("/etc/shadow"),
    "written": [folder for folder in given["read-only"] if succeeds(Path(folder, "x").write_text, "x")],
    "writable mounts": [each[4] for each in mounts if "rw" in each[5].split(",")],
    "writable in proc": [str(path) for path in system if os.access(path, os.W_OK) and not path.is_symlink()],
    "devices": [name for name, kind in devices.items() if kind in (stat.S_IFCHR, stat.S_IFBLK)],
    "roots": [each for each in of_processes("root") if each.endswith(("/shadow", "/.ssh", "/boot"))],
    "files": sorted({os.readlink(each) for each in of_processes("fd") if os.path.lexists(each)}),
    # Processes, their secrets, and the kernel.
    "user": os.getuid(),
    "capabilities": int(me["CapEff"], 16),
    "no new privileges": int(me["NoNewPrivs"]),
    "namespaces": {name: os.readlink(f"/proc/self/ns/{name}") for name in ("net", "pid", "ipc", "uts", "mnt")},
    "processes": len([name for name in os.listdir("/proc") if name.isdigit()]),
    "signals": [pid for pid in given["pids"] if pid > 1000 and succeeds(os.kill, pid, 0)],
    "environment": [name for name in os.environ if name == "TORCHCOURSE_HUB" or "PASSWORD" in name],
    "secrets": [secret for secret in given["secrets"] if any(secret in each for each in told)],
    "user namespace": libc.unshare(0x10000000) == 0,
    "mount": libc.mount(b"none", home.encode(), b"tmpfs", 0, None) == 0,
    # The network and other ways out.
    "listening": [int(each[1].split(":")[1], 16) for each in sockets if each[3] == "0A"],
    "ports": [port for port in given["ports"] if reached(socket.AF_INET, ("127.0.0.1", port))],
    "addresses": [each for each in given["addresses"] if reached(socket.AF_INET, (each, given["ports"][0]))],
    "abstract": reached(socket.AF_UNIX, "\0" + given["abstract"]),
    "shared memory": [each for each in os.listdir("/dev/shm") if each == given["abstract"]],
    # The hub and its board.
    "myself": status(f"{hub}/api/user", **token),
    "others": [status(f"{hub}/api/{what}", **token) for what in ("users/alice", "users", "proxy")]
    + [status(f"{hub}/api/shutdown", {"servers": False}, **token)],
    "login": status(f"{hub}/api/users/{given['login']['username']}/tokens", {"auth": given["login"]}),
    "board": [status(board.removesuffix("report") + "counts", **token), status(board, "garbage", **token)],
    "memory": [
        holds("a = b'x' * {size}"),
        holds("f = os.memfd_create('x'); os.ftruncate(f, {size}); m = mmap.mmap(f, 0); {fill}"),
        holds("m = mmap.mmap(-1, {size}); {fill}"),
        holds("m = open('/dev/shm/x', 'wb'); {fill}"),
        holds("f = open('/dev/zero', 'r+b'); m = mmap.mmap(f.fileno(), {size}); {fill}"),
    ],
}
print(json.dumps(found))
