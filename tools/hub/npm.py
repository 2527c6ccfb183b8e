"""The proxy in front of the hub comes from npm; it is fetched once and kept in build/npm."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.course import ROOT

WANTED = ROOT / "hub" / "package.json"


def proxy(build: Path = ROOT / "build") -> Path:
    """The command configurable-http-proxy; npm runs only when it is not there yet.

    build: where npm's folder is kept. It is made complete elsewhere and then moved, so that a broken download leaves
        nothing half done.
    Raises SystemExit when npm is missing or cannot reach its registry.
    """
    wanted = WANTED.read_bytes()
    home = build / "npm" / hashlib.sha256(wanted).hexdigest()[:12]
    command = home / "node_modules" / ".bin" / "configurable-http-proxy"
    if command.exists():
        return command
    npm = shutil.which("npm")
    if npm is None:
        raise SystemExit(
            "The hub needs the proxy configurable-http-proxy, which npm fetches once, and npm is not installed. "
            "Install Node.js, which brings npm, then run this again."
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        (Path(work) / "package.json").write_bytes(wanted)
        words = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
        words += ["--no-update-notifier", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=60000"]
        print("Fetching the proxy with npm (once) ...", file=sys.stderr, flush=True)
        try:
            done = subprocess.run(words, cwd=work, capture_output=True, text=True, timeout=300)
            failed = done.returncode != 0
            lines = done.stderr.strip().splitlines() or ["no message"]
            reason = next((line for line in lines if " code " in line), lines[-1])
        except subprocess.TimeoutExpired:
            failed, reason = True, "no answer within five minutes"
        if failed:
            raise SystemExit(
                f"npm could not fetch the proxy ({reason}). Check the network and npm's own settings, then run this "
                "again; later starts work without a network."
            )
        if not home.exists():
            os.replace(work, home)
            Path(work).mkdir()  # for the clean-up of the temporary folder
    return command
