"""A JupyterHub for a class on this machine: students log in and have their own copy of the course, without solutions.

    python -m tools.hub                       start; Ctrl-C stops the hub and every student's server
    python -m tools.hub --ip 0.0.0.0          let others in, not only this machine
    python -m tools.hub update                hand out a new version of the course while the hub runs

Students' files, the course's repository and the log stay in the folder --state (build/hub) from one start to the next.
"""

import argparse
import contextlib
import fcntl
import os
import resource
import secrets
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from tools import npm, sandbox_limits
from tools.course import ROOT, chapters
from tools.hub import sandbox
from tools.hub.publish import publish, pull_path
from tools.hub.settings import ADMIN, BOARD, Settings
from torchcourse.errors import CourseError
from torchcourse.place import root_folder

CONFIG = ROOT / "hub" / "jupyterhub_config.py"
SHORTEST = 16  # characters of a password that a person chooses; see passwords.py
PATIENCE = 120  # seconds for the hub to answer


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = arguments(argv)
    state = options.state.expanduser().resolve()
    if options.what == "update":
        print(published(publish(state)))
        print(f"The link, after the address of your hub:\n  {pull_path(state)}")
        return 0
    os.umask(0o077)  # students' work is private, also on this machine
    hold(state)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a class has many connections
    settings = choose(options, state)
    return serve(settings, published(publish(state)))


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    """What the user asked for. Raises SystemExit with a sentence."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.hub", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("what", nargs="?", choices=("start", "update"), default="start", help="start is the default")
    word = os.environ.get("TORCHCOURSE_HUB_PASSWORD")
    add("--password", default=word, metavar="WORD", help="of all students (TORCHCOURSE_HUB_PASSWORD, else a new one)")
    add("--ip", default="127.0.0.1", help="address to listen on (default: 127.0.0.1, only this machine)")
    add("--port", type=int, default=8000, help="0 for any free one (default: 8000)")
    add("--state", type=Path, default=ROOT / "build" / "hub", metavar="DIR", help="what is kept (default: build/hub)")
    add("--data", type=Path, metavar="DIR", help="data sets, read-only for students (default: as in the notebooks)")
    add("--memory", type=float, default=4, metavar="GIB", help="memory for each student (default: 4)")
    add("--board", action="store_true", help="a page that shows you, live and without names, how the class is doing")
    options = parser.parse_args(argv)
    if options.memory <= 0:
        raise SystemExit("--memory is how many GiB each student may use: choose more than 0.")
    if options.password is not None and (len(options.password) < SHORTEST or not options.password.isascii()):
        raise SystemExit(f"Choose a password of at least {SHORTEST} characters without accents, or omit it.")
    return options


def hold(state: Path) -> None:
    """Make the folder of the hub, and lock it until this process ends. Raises SystemExit where that cannot be."""
    try:
        state.mkdir(parents=True, exist_ok=True)
        state.chmod(0o700)
        fcntl.flock(os.open(state / "lock", os.O_WRONLY | os.O_CREAT), fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise SystemExit(f"A hub runs already with {state}: stop it, or choose another folder with --state.") from None
    except OSError as error:
        raise SystemExit(f"The hub cannot use {state} ({error.strerror}): choose another with --state.") from None


def choose(options: argparse.Namespace, state: Path) -> Settings:
    """Everything that this start needs to know. Raises SystemExit where something is missing, taken or unsafe."""
    if trouble := sandbox.trouble(state):
        raise SystemExit(f"The hub needs a sandbox for each student, and cannot make one: {trouble} See hub/README.md.")
    try:
        packages = npm.fetch(ROOT / "hub" / "package.json", "the proxy configurable-http-proxy")
    except CourseError as error:
        raise SystemExit(str(error)) from None
    settings = Settings(
        state=state,
        data=root_folder(options.data).resolve(),
        proxy=packages / ".bin" / "configurable-http-proxy",
        ip=options.ip,
        port=free_port(options.ip, options.port),
        hub_port=free_port("127.0.0.1"),
        proxy_port=free_port("127.0.0.1"),
        password=options.password or secrets.token_urlsafe(9),
        admin_password=secrets.token_urlsafe(24),
        memory_gib=options.memory,
        board_port=free_port("127.0.0.1") if options.board else 0,
    )
    if os.geteuid() == 0 and (hidden := sandbox_limits.hidden_from_others(settings.data)):
        raise SystemExit(f"Students could not read the data: {hidden} is private. Run `chmod -R a+rX {settings.data}`.")
    return settings


def free_port(ip: str, port: int = 0) -> int:
    """`port` if it is free, or any free one for 0. Raises SystemExit where it is taken."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError as error:
            raise SystemExit(f"Cannot listen on {ip} port {port} ({error.strerror}): choose another --port.") from None
        return probe.getsockname()[1]


def published(changed: list[str]) -> str:
    """What became of the course's repository. changed: as from `publish`"""
    if not changed:
        return "The course has not changed since it was last handed out."
    news = f"A new version of the course is handed out ({len(changed)} files): students get it at their next login."
    labs = [line.removeprefix("M  labs/")[:2] for line in changed if line.startswith("M  labs/")]
    if labs:
        news += f" Whoever worked in lab {' or '.join(labs)} keeps their copy: tell them to rename it for the new one."
    return news


def serve(settings: Settings, news: str) -> int:
    """Run the hub until a signal comes; returns its exit status, 0 if it was told to stop."""
    log = settings.state / "hub.log"
    stop_asked = False

    def stop(*_: object) -> None:
        nonlocal stop_asked
        stop_asked = True
        hub.terminate()

    with log.open("a") as lines:
        lines.write(f"\n--- {time.ctime()}\n")
        lines.flush()
        # In a process group of its own: Ctrl-C reaches this process alone, which stops the hub in order. Should this
        # process be killed, the kernel tells the hub to stop.
        hub = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "--", sys.executable, "-m", "jupyterhub", "--config", str(CONFIG)],
            cwd=ROOT,
            env=os.environ | settings.environment(),
            stdout=lines,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        if answers(settings, hub):
            print(welcome(settings, news), flush=True)
        else:
            hub.terminate()
        status = hub.wait()
    if stop_asked:
        print("The hub has stopped, and every student's server with it. Their files are kept.", flush=True)
        return 0
    print(f"The hub stopped by itself (status {status}). The end of {log} says why.", file=sys.stderr)
    return 1


def answers(settings: Settings, hub: subprocess.Popen) -> bool:
    """Wait until the hub answers through its proxy; False if it ends before, or never does."""
    patience = time.monotonic() + PATIENCE
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while hub.poll() is None and time.monotonic() < patience:
        with contextlib.suppress(OSError), direct.open(f"http://{settings.ip}:{settings.port}/hub/health", timeout=5):
            return True
        time.sleep(0.2)
    return False


def welcome(settings: Settings, news: str) -> str:
    """What the instructor reads when the hub is up."""
    base = f"http://{socket.gethostname() if settings.ip == '0.0.0.0' else settings.ip}:{settings.port}"
    lines = [
        f"The hub is up: {base}",
        "This address is all that students need: it opens their own copy of the course, and updates it at each login.",
        f"Password for students: {settings.password}   (any name of lowercase letters and digits, the same each time)",
        f"Admin page {base}/hub/admin: {ADMIN}, password {settings.admin_password}",
        "",
        "For a course page, a link that does the same, and one that opens a lab (put any lab's name at the end):",
        f"  {base}{pull_path(settings.state)}",
        f"  {base}{pull_path(settings.state, f'labs/{chapters()[0].name}.ipynb')}",
        "",
        news,
    ]
    if settings.board_port:
        lines.append(f"The class, live, after the login of {ADMIN}: {base}/services/{BOARD}/")
    if settings.data.exists():
        lines.append(f"Data, read-only: {settings.data}")
    else:
        lines.append(f"No data in {settings.data}: labs use synthetic images. `torchcourse data fetch` gets real ones.")
    lines.append("Each student's server runs in a sandbox, without others' files, the solutions and the network.")
    if settings.ip != "127.0.0.1":
        lines.append("Passwords travel without encryption: only in a network that you trust.")
    lines.append(f"Log: {settings.state / 'hub.log'}. Ctrl-C stops the hub and every server; students' files are kept.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
