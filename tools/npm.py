"""What comes from npm: fetched once for each package.json, kept in build/npm."""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.course import ROOT


class NpmError(Exception):
    """A sentence for the user: what is missing and what to do."""


def fetch(wanted: Path, what: str, build: Path = ROOT / "build") -> Path:
    """The folder node_modules with what the package.json `wanted` names; npm runs only when it is not there yet.

    what: its contents in words, for messages. build: where npm's folder is kept. It is made complete elsewhere and then
        moved, so that a broken download or two builds at once leave nothing half done.
    Raises NpmError when npm is missing or cannot reach its registry.
    """
    home = build / "npm" / hashlib.sha256(wanted.read_bytes()).hexdigest()[:12]
    if (home / "node_modules").is_dir():
        return home / "node_modules"
    npm = shutil.which("npm")
    if npm is None:
        raise NpmError(
            f"This needs {what}, which npm fetches once, and npm is not installed. Install Node.js, which brings npm, "
            "then run this again. Notebooks and labs do not need it."
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        shutil.copy(wanted, Path(work) / "package.json")
        command = [npm, "install", "--ignore-scripts", "--no-audit", "--no-fund", "--no-package-lock"]
        command += ["--no-update-notifier", "--loglevel=error", "--fetch-retries=1", "--fetch-timeout=60000"]
        print(f"Fetching {what} with npm (once) ...", file=sys.stderr, flush=True)
        try:
            done = subprocess.run(command, cwd=work, capture_output=True, text=True, timeout=300)
            failed = done.returncode != 0
            lines = done.stderr.strip().splitlines() or ["no message"]
            reason = next((line for line in lines if " code " in line), lines[-1])
        except subprocess.TimeoutExpired:
            failed, reason = True, "no answer within five minutes"
        if failed:
            raise NpmError(
                f"npm could not fetch {what} ({reason}). Check the network and npm's own settings, then run this "
                "again; later it works without a network."
            )
        if not home.exists():
            os.replace(work, home)
            Path(work).mkdir()  # for the clean-up of the temporary folder
    return home / "node_modules"
