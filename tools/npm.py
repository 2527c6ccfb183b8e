"""Packages from npm: fetched once for each package.json and its lock, kept in build/npm.

package-lock.json beside each package.json holds the exact version and the hash of every package. To change a version,
edit package.json, run `npm install --package-lock-only` in its folder, and commit both files.
"""

import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from tools.course import ROOT
from torchcourse.errors import CourseError

ADVICE = {  # npm's code for a failure -> what to do about it
    "EINTEGRITY": "A package is not the one whose hash is in package-lock.json, so nothing was installed. Try another "
    "network or registry; if it happens again, report it to the authors of the course.",
    "EUSAGE": "package.json and package-lock.json do not agree: run `npm install --package-lock-only` in their folder.",
}
OTHERWISE = "Check the network and npm's own settings, then run this again; later it works without a network."


def fetch(wanted: Path, what: str, build: Path = ROOT / "build") -> Path:
    """Return the folder node_modules with what the lock beside the package.json `wanted` names.

    npm runs only when the folder is not there yet. It installs exactly the lock, checks every hash, runs no script. The
    folder is made complete elsewhere and then moved: a broken download, or two at once, leave nothing half done.
    Raises CourseError when npm is missing, cannot reach its registry, or gets a package that is not in the lock.
    """
    files = [wanted, wanted.with_name("package-lock.json")]
    home = build / "npm" / hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()[:12]
    if (home / "node_modules").is_dir():
        return home / "node_modules"
    npm = shutil.which("npm")
    if npm is None:
        raise CourseError(
            f"This needs {what}, which npm fetches once, and npm is not installed. Install Node.js, which brings npm, "
            "then run this again. Notebooks and labs do not need it."
        )
    home.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=home.parent) as work:
        for file in files:
            shutil.copy(file, work)
        command = [npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", "--no-update-notifier"]
        command += ["--loglevel=error", "--fetch-retries=1", "--fetch-timeout=60000"]
        print(f"Fetching {what} with npm (once) ...", file=sys.stderr, flush=True)
        done = subprocess.run(command, cwd=work, capture_output=True, text=True)
        if done.returncode:
            lines = done.stderr.strip().splitlines() or ["no message"]
            reason = next((line for line in lines if " code " in line), lines[-1])
            raise CourseError(f"npm could not fetch {what} ({reason}). {ADVICE.get(reason.split()[-1], OTHERWISE)}")
        if not home.exists():
            os.replace(work, home)
            Path(work).mkdir()  # for the clean-up of the temporary folder
    return home / "node_modules"
