"""The course on a GPU machine: say what is there, execute, test, measure.

    python -m tools.gpu                          everything
    python -m tools.gpu run tests ddp            some parts, see PART below
    python -m tools.gpu look                     only say what is here and what is missing
    python -m tools.gpu --minutes 4 --within 9   time limits: for each part, for everything together
    python -m tools.gpu --quick                  try the whole way, on any device; its numbers mean nothing

It needs a CUDA device and PyTorch, and no network. Packages that are missing come from build/wheelhouse (`make
wheelhouse` where there is a network) into an environment of this command alone; the data from TORCHCOURSE_DATA.

Measurements go to the package, src/torchcourse/measurements; everything else goes to build/gpu. After each part
build/gpu/results.tar.gz, a few MiB, holds all of it: `tar xzf` it in the clone from which you came. A part that was
done today, with the same sources, is not repeated unless you name it; "run" goes on with the notebooks that are left.

Exit status: 0 fine, 1 something failed, 2 no device or a package missing, 124 cut off by a time limit.
"""

import argparse
import contextlib
import datetime
import hashlib
import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import tarfile
import time

from tools import overlay
from tools.course import ROOT

OUT = ROOT / "build" / "gpu"
WHEELS = ROOT / "build" / "wheelhouse"
# In this order: what is quick and decides most comes first.
PARTS = ("tests", "mnist", "cifar", "throughput", "run", "precision", "ddp", "checkpoints")
CUT = 124  # exit status of what ran out of time, as of `timeout`
GRACE = 60  # seconds that a part may take longer than its limit, to write down what it has
HANGS = 150  # seconds after which a test ends all tests: the other parts want time, too
NEEDED = ("torchvision", "numpy", "matplotlib", "safetensors", "cloudpickle", "psutil")
NEEDED += ("tqdm", "ipykernel", "papermill", "nbconvert", "pytest")


def options_of(arguments: list[str] | None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.gpu", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"{' '.join(PARTS)} (default: all), or look")
    parser.add_argument("--minutes", type=float, default=math.inf, help="time limit for each part")
    parser.add_argument("--within", type=float, default=math.inf, help="minutes for everything together")
    parser.add_argument("--chapters", nargs="*", default=[], help='of the part "run", for example 03 07')
    parser.add_argument("--quick", action="store_true", help="seconds instead of minutes; numbers mean nothing")
    options = parser.parse_args(arguments)
    if unknown := [name for name in options.parts if name not in (*PARTS, "look")]:
        parser.error(f"there is no part {unknown[0]}; the parts are: {', '.join(PARTS)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    options = options_of(arguments)
    # From now on: installing wheels takes its time, too.
    start = float(os.environ.setdefault("TORCHCOURSE_GPU_START", str(time.monotonic())))
    places = [str(ROOT / "src"), str(ROOT)]
    sys.path[:0] = places
    os.environ["PYTHONPATH"] = os.pathsep.join([*places, *filter(None, [os.environ.get("PYTHONPATH")])])
    os.environ.setdefault("TORCHCOURSE_OFFLINE", "1")  # else every process would look for a network
    missing, environment = [name for name in NEEDED if importlib.util.find_spec(name) is None], OUT / "venv"
    if missing and WHEELS.is_dir() and sys.prefix != str(environment):
        words = ["--no-index", "--find-links", str(WHEELS), "-r", str(WHEELS / "requirements.txt")]
        python = overlay.install(environment, "--no-compile", *words)  # Python compiles what it imports: little of it
        os.execv(python, [python, "-m", "tools.gpu", *(sys.argv[1:] if arguments is None else arguments)])
    if problem := lacks(missing, options.quick):
        print(problem, file=sys.stderr)
        return 2
    if options.parts == ["look"]:
        return subprocess.run([sys.executable, "-m", "torchcourse.commands.cli", "doctor"]).returncode
    return work(options, start + 60 * options.within)


def lacks(missing: list[str], quick: bool) -> str:
    """What this machine lacks, in a sentence, or nothing."""
    if importlib.util.find_spec("torch") is None:
        return "This Python has no PyTorch. Take the one that has it: make gpu GPU_PYTHON=..."
    if missing:
        return (
            f"Missing: {', '.join(missing)}. Run `make wheelhouse` where there is a network, and bring {WHEELS} along."
        )
    import torch

    if not quick and not torch.cuda.is_available():
        return "This measures on a CUDA device, and PyTorch finds none here. To try the whole way: OPTIONS=--quick"
    return ""


def work(options: argparse.Namespace, end: float) -> int:
    """All parts, one after the other; then a table."""
    OUT.mkdir(parents=True, exist_ok=True)
    state = OUT / ("report-quick.json" if options.quick else "report.json")
    about = here()
    found = json.loads(state.read_text()) if state.exists() else {}
    if found.get("about") != about:
        found = {"about": about, "parts": {}}
    chosen = [name for name in PARTS if name in (options.parts or PARTS)]
    for part in chosen:
        if part != "run" and found["parts"].get(part, {}).get("status") == "done" and not options.parts:
            print(f"\n{part}: done before", flush=True)
            continue
        print(f"\n--- {part} ---", flush=True)
        minutes = min(options.minutes, (end - time.monotonic() - GRACE) / 60)
        begin = time.monotonic()
        status = perform(command(part, minutes, options), minutes) if minutes > 0 else CUT
        words = {0: "done", CUT: "cut off: run it again to go on"}.get(status, f"failed, exit status {status}")
        found["parts"][part] = {"status": words, "seconds": round(time.monotonic() - begin)}
        state.write_text(json.dumps(found, indent=1) + "\n")
        archive()  # after each part: the machine may be gone before the last
    print(f"\n{', '.join(about.values())}", *(f"{name:<12} {found['parts'][name]}" for name in chosen), sep="\n")
    print(f"All results: {archive()}")
    states = {found["parts"][name]["status"].split(",")[0].split(":")[0] for name in chosen}
    return 1 if "failed" in states else CUT if "cut off" in states else 0


def here() -> dict[str, str]:
    """What results depend on. Sources by a digest: a machine that is lent may have no git."""
    import torch

    from torchcourse import device

    files = sorted(path for folder in ("tools", "src") for path in (ROOT / folder).rglob("*.py"))
    return {
        "device": device.describe(),
        "torch": f"PyTorch {torch.__version__}",
        "date": datetime.date.today().isoformat(),
        "sources": hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:12],
    }


def command(part: str, minutes: float, options: argparse.Namespace) -> list[str]:
    """What runs a part. A process of its own: a GPU that was misused once is lost for the process that did it."""
    python = [sys.executable, "-m"]
    if part == "run":
        limit = [] if minutes == math.inf else ["--minutes", f"{minutes:g}"]
        return [*python, "tools.gpu.course", *limit, "--chapters", *options.chapters]
    if part == "tests":
        # Those with the marker; others may not even import there. -v: a name is there before its test ends, if it ends.
        files = [str(path) for path in sorted((ROOT / "tests").glob("test_*.py")) if "mark.gpu" in path.read_text()]
        words = ["-v", "-m", "gpu", "-p", "no:cacheprovider", "-o", f"faulthandler_timeout={HANGS * 2 // 3}"]
        if importlib.util.find_spec("pytest_timeout"):
            words += ["-p", "pytest_timeout", f"--timeout={HANGS}"]
        return [*python, "pytest", *words, *files]
    return [*python, "tools.bench", part, *["--quick"] * options.quick]


def perform(words: list[str], minutes: float) -> int:
    """Run a part with its output shown, and end it when it is late; returns its exit status, or CUT."""
    # A machine with PyTorch often has plugins of pytest as well, of any age: one that does not fit ends the tests.
    variables = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    # A session of its own: a Ctrl-C then comes to us alone, and we stop the part in good order.
    process = subprocess.Popen(words, cwd=ROOT, env=variables, start_new_session=True)
    try:
        return process.wait(None if minutes == math.inf else 60 * minutes + GRACE)
    except subprocess.TimeoutExpired:
        return CUT
    finally:
        stop(process)


def stop(process: subprocess.Popen, patience: float = 20) -> None:
    """End a process and all that it started: asked first, so that it can write down what it has, then by force."""
    import psutil

    with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
        family = psutil.Process(process.pid).children(recursive=True)  # some have a session of their own
        os.killpg(process.pid, signal.SIGINT)
        psutil.wait_procs([psutil.Process(process.pid)], patience)
        for each in (*family, process):
            with contextlib.suppress(psutil.NoSuchProcess, ProcessLookupError):
                each.kill()
    process.wait()


def archive() -> str:
    """Pack everything that should come back from a machine that will be gone, from the root of the clone."""
    path = OUT / "results.tar.gz"
    wanted = [*OUT.glob("report*.json"), *OUT.glob("run/*.json"), *OUT.glob("run/*.html"), *OUT.glob("run/*/*.ipynb")]
    wanted += (ROOT / "src" / "torchcourse" / "measurements").glob("*-*.json")
    new = path.with_suffix(".new")
    with tarfile.open(new, "w:gz") as pack:
        for file in sorted(wanted):
            pack.add(file, file.relative_to(ROOT))
    new.replace(path)  # whole or not at all: a full one of an earlier part is better than half of this one
    return str(path.relative_to(ROOT))


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    sys.exit(main())
