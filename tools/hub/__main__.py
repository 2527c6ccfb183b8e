"""A JupyterHub for a class on this machine: students log in and have their own copy of the course, without solutions.

    python -m tools.hub                       start; Ctrl-C stops the hub and every student's server
    python -m tools.hub --ip 0.0.0.0          let others in, not only this machine
    python -m tools.hub update                hand out a new version of the course while the hub runs

Students' files, the course's repository and the log stay in the folder --state (build/hub) from one start to the next.
"""

import argparse
import fcntl
import importlib.util
import os
import resource
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from tools import npm, sandbox_limits
from tools.course import ROOT, chapters
from tools.hub import sandbox
from tools.hub.publish import publish, pull_path
from tools.hub.settings import BOARD, Settings
from torchcourse.place import default_root

CONFIG = ROOT / "hub" / "jupyterhub_config.py"
ADMIN = "instructor"
SHORTEST = 16  # characters of a password that a person chooses; see login.py
PATIENCE = 120  # seconds for the hub to answer


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    options = arguments(argv)
    state = options.state.expanduser().resolve()
    try:
        state.mkdir(parents=True, exist_ok=True)
        (state / "lock").touch()
    except OSError as error:
        raise SystemExit(
            f"The hub cannot use {state} ({error.strerror}): choose another folder with --state."
        ) from None
    if options.what == "update":
        print(published(publish(state)))
        print(f"The link, after the address of your hub:\n  {pull_path(state)}")
        return 0
    need_packages()
    os.umask(0o077)  # students' work is private, also on this machine
    state.chmod(0o700)
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))  # a class has many connections
    with alone(state):
        settings = choose(options, state)
        changed = publish(state)
        return serve(settings, published(changed))


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
    add("--memory", type=float, default=4, metavar="GIB", help="memory for each student, 0 for no limit (4)")
    add("--board", action="store_true", help="a page that shows you, live and without names, how the class is doing")
    add("--threads", type=int, default=threads(), help=f"of PyTorch per student (default here: {threads()})")
    options = parser.parse_args(argv)
    if options.password is not None and (len(options.password) < SHORTEST or not options.password.isascii()):
        raise SystemExit(
            f"Choose a password of at least {SHORTEST} characters, such as a few words without accents, or omit it."
        )
    return options


def threads() -> int:
    """Threads of PyTorch for one student: an eighth of the cores, as a class rarely computes all at once; 1 to 4.

    Threads of several students on one core wait for one another, so more of them make all of them slower.
    """
    return min(4, max(1, (os.cpu_count() or 1) // 8))


def need_packages() -> None:
    """Raise SystemExit with the command to type where JupyterHub or nbgitpuller is missing."""
    missing = [name for name in ("jupyterhub", "nbgitpuller") if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(f"Not installed: {' and '.join(missing)}. Run `pip install -e '.[hub]'`, then this again.")


@contextmanager
def alone(state: Path) -> Iterator[None]:
    """Hold the folder of the hub; raises SystemExit if another hub holds it."""
    with open(state / "lock", "w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(
                f"A hub runs already with {state}: stop it, or choose another folder with --state."
            ) from None
        yield


def choose(options: argparse.Namespace, state: Path) -> Settings:
    """Everything that this start needs to know. Raises SystemExit where something is missing, taken or unsafe."""
    if (trouble := sandbox.trouble(state)) and os.geteuid() == 0:
        raise SystemExit(
            f"Started by root, the hub needs a sandbox for each student, and cannot make one here: {trouble} "
            "Start it as a plain user, or see hub/README.md."
        )
    settings = Settings(
        state=state,
        data=data_root(options.data),
        proxy=proxy(),
        ip=options.ip,
        port=free_port(options.ip, options.port),
        hub_port=free_port("127.0.0.1"),
        proxy_port=free_port("127.0.0.1"),
        password=options.password or secrets.token_urlsafe(9),
        admin=ADMIN,
        admin_password=secrets.token_urlsafe(24),
        start_path=pull_path(state),
        sandboxed=not trouble,
        memory_gib=options.memory,
        threads=options.threads,
        board_port=free_port("127.0.0.1") if options.board else 0,
    )
    if os.geteuid() == 0 and (hidden := sandbox_limits.hidden_from_others(settings.data)):
        raise SystemExit(f"Students could not read the data: {hidden} is private. Run `chmod -R a+rX {settings.data}`.")
    return settings


def proxy(build: Path = ROOT / "build") -> Path:
    """The command of the proxy in front of the hub. Raises SystemExit where npm cannot bring it."""
    try:
        packages = npm.fetch(ROOT / "hub" / "package.json", "the proxy configurable-http-proxy", build)
    except npm.NpmError as error:
        raise SystemExit(str(error)) from None
    return packages / ".bin" / "configurable-http-proxy"


def data_root(given: Path | None) -> Path:
    """Where the data sets lie: as told, else where notebooks look for them."""
    if chosen := given or os.environ.get("TORCHCOURSE_DATA"):
        return Path(chosen).expanduser().resolve()
    return default_root().resolve()


def free_port(ip: str, port: int = 0) -> int:
    """`port` if it is free, or any free one for 0. Raises SystemExit where it is taken."""
    family = socket.AF_INET6 if ":" in ip else socket.AF_INET
    with socket.socket(family, socket.SOCK_STREAM) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((ip, port))
        except OSError as error:
            raise SystemExit(
                f"The hub cannot listen on {ip} port {port} ({error.strerror}): choose another port with --port, "
                "0 for any free one."
            ) from None
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

    def stop(number, frame):
        nonlocal stop_asked
        stop_asked = True
        hub.terminate()

    with log.open("a") as lines:
        lines.write(f"\n--- {time.ctime()}\n")
        lines.flush()
        # In a process group of its own: Ctrl-C reaches this process alone, which stops the hub in order. Should this
        # process be killed, the kernel tells the hub to stop.
        tied = ["setpriv", "--pdeathsig", "TERM", "--"] if shutil.which("setpriv") else []
        hub = subprocess.Popen(
            [*tied, sys.executable, "-m", "jupyterhub", "--config", str(CONFIG)],
            cwd=ROOT,
            env=os.environ | settings.environment(),
            stdout=lines,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, stop)
        inside = f"http://127.0.0.1:{settings.hub_port}/hub/health"
        outside = f"http://{host(settings.ip, loopback=True)}:{settings.port}/hub/health"
        if answers(inside, hub) and answers(outside, hub):
            print(welcome(settings, news), flush=True)
        elif not stop_asked and hub.poll() is None:
            hub.terminate()
        status = hub.wait()
    if stop_asked:
        print("The hub has stopped, and every student's server with it. Their files are kept.", flush=True)
        return 0
    print(f"The hub stopped by itself (status {status}). The end of {log} says why.", file=sys.stderr)
    return 1


def answers(url: str, hub: subprocess.Popen) -> bool:
    """Wait until the hub answers; False if it ends before, or never does."""
    patience = time.monotonic() + PATIENCE
    direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    while hub.poll() is None and time.monotonic() < patience:
        try:
            with direct.open(url, timeout=5):
                return True
        except OSError:
            time.sleep(0.2)
    return False


def host(ip: str, loopback: bool = False) -> str:
    """The name to write into a link for a hub that listens on `ip`."""
    if ip in ("0.0.0.0", "::", ""):
        return "127.0.0.1" if loopback else socket.gethostname()
    return f"[{ip}]" if ":" in ip else ip


def welcome(settings: Settings, news: str) -> str:
    """What the instructor reads when the hub is up."""
    base = f"http://{host(settings.ip)}:{settings.port}"
    lab = pull_path(settings.state, f"labs/{chapters()[0].name}.ipynb")
    lines = [
        f"The hub is up: {base}",
        "This address is all that students need: it opens their own copy of the course, and updates it at each login.",
        f"Password for students: {settings.password}   (any name of lowercase letters and digits, the same each time)",
        f"Admin page {base}/hub/admin: {settings.admin}, password {settings.admin_password}",
        "",
        "For a course page, a link that does the same, and one that opens a lab (put any lab's name at the end):",
        f"  {base}{settings.start_path}",
        f"  {base}{lab}",
        "",
        news,
    ]
    if settings.board_port:
        lines.append(f"The class, live, after the login of {settings.admin}: {base}/services/{BOARD}/")
    if settings.data.exists():
        lines.append(f"Data, read-only: {settings.data}")
    else:
        lines.append(f"No data in {settings.data}: labs use synthetic images. `torchcourse data fetch` gets real ones.")
    if settings.sandboxed:
        lines.append("Each student's server runs in a sandbox, without others' files, the solutions and the network.")
    else:
        lines.append(
            "No sandbox can be made here (it takes bubblewrap 0.8, see hub/README.md), so students can read "
            "and change each other's files and yours: only for a demonstration."
        )
    if settings.ip != "127.0.0.1":
        lines.append("Passwords travel without encryption: only in a network that you trust.")
    lines.append(f"Log: {settings.state / 'hub.log'}. Ctrl-C stops the hub and every server; students' files are kept.")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
