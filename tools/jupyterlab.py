"""`make lab`: JupyterLab on your own copy of the course, in work/. What students get stays as it is.

Your work is never overwritten. A notebook that you have not changed becomes the new edition when there is one. One that
you have changed stays, and the command says so: rename yours, and the next `make lab` brings the new one beside it.
"""

import contextlib
import hashlib
import json
import os
import sys
from pathlib import Path

from tools import build, release
from tools.course import ROOT

# Nobody shares this server, so it need not stop what is idle, as a hub's does.
SETTINGS = ["--LabApp.default_url=/lab/tree/README.md", "--ServerApp.shutdown_no_activity_timeout=0"]
SETTINGS += ["--MappingKernelManager.cull_idle_timeout=0"]


def refresh(work: Path, files: dict[str, bytes]) -> list[str]:
    """Bring `files` into the folder `work`; returns those whose new edition waits because the one there was changed.

    work/.editions.json holds the fingerprint of each file as it was written: a file with another one is its owner's.
    """
    work.mkdir(exist_ok=True)
    record = work / ".editions.json"
    written = json.loads(record.read_text()) if record.exists() else {}
    waiting = []
    for name, content in files.items():
        path, new = work / name, fingerprint(content)
        if path.exists() and fingerprint(path.read_bytes()) not in (new, written.get(name)):
            waiting += [name] if written.get(name) != new else []
            continue
        build.write_if_changed(path, content)
        written[name] = new
    (part := record.with_suffix(".part")).write_text(json.dumps(written, indent=1))
    part.replace(record)
    return waiting


def fingerprint(content: bytes) -> str:
    """A hash of a file; for a notebook, of its cells alone: Jupyter notes Python's version in whatever it opens."""
    with contextlib.suppress(ValueError, KeyError, TypeError):  # not a notebook
        content = json.dumps(json.loads(content)["cells"], sort_keys=True).encode()
    return hashlib.sha256(content).hexdigest()


def main() -> None:
    """Refresh the copy, then become JupyterLab. What follows the command's name goes to `jupyter lab`."""
    work = ROOT / "work"
    files = {name: build.as_bytes(notebook) for name, notebook in release.notebooks().items()}
    files |= {name: (ROOT / name).read_bytes() for name in ("LICENSE", "LICENSE-TEXT", release.TROUBLE)}
    files |= {"README.md": release.readme().encode(), "AGENTS.md": release.AGENTS.read_bytes()}
    for name in refresh(work, files):
        print(
            f"There is a new edition of {name}. You have changed yours, so it stays. To get the new one beside it, "
            "rename yours and run `make lab` again."
        )
    print(f"Your own copy of the course is in {work}: work there, not in labs/ and notebooks/.", flush=True)
    os.chdir(work)
    theirs = os.environ.get("JUPYTER_CONFIG_PATH", "")
    os.environ["JUPYTER_CONFIG_PATH"] = os.pathsep.join(filter(None, [str(ROOT / "hub" / "jupyter"), theirs]))
    os.execv(sys.executable, [sys.executable, "-m", "jupyterlab", *SETTINGS, *sys.argv[1:]])


if __name__ == "__main__":
    main()
