"""Compare tests/colab.txt, the list of what Colab has, with what Colab publishes, and bring it up to date.

Ends with status 1 if the list was out of date: run tests/test_colab.py with the new one, and commit it.
"""

import re
import sys
import urllib.request

from tools.course import ROOT

PUBLISHED = "https://raw.githubusercontent.com/googlecolab/backend-info/main"
LIST = ROOT / "tests" / "colab.txt"
# `Python 3.13.15`, `numpy==2.1.3`, or `torch @ https://…/torch-2.11.0%2Bcpu-cp313-….whl`
VERSION = re.compile(r"^(?:# )?([A-Za-z][\w.-]*)(?: |==| @ \S+/\1-)(\d[\d.]*)\b", re.MULTILINE)


def updated(listed: str, published: str) -> tuple[str, list[str]]:
    """Our list with the published versions, and a line for each that has changed."""
    today, changes = dict(VERSION.findall(published)), []
    for name, version in VERSION.findall(listed):
        if (now := today.get(name, "gone")) != version:
            changes.append(f"{name} {version} -> {now}")
            ours = rf"(?m)^((?:# )?{re.escape(name)}(?: |==)){re.escape(version)}"
            listed = re.sub(ours, rf"\g<1>{now}", listed)
    return listed, changes


def main() -> int:
    """Compare, write, and say what has changed. Returns the exit status."""
    files = (f"{PUBLISHED}/{name}" for name in ("os-info.txt", "pip-freeze.txt"))
    published = "\n".join(urllib.request.urlopen(file, timeout=60).read().decode() for file in files)
    text, changes = updated(LIST.read_text(), published)
    LIST.write_text(text)
    news = "Colab has moved on. Updated in tests/colab.txt:" if changes else "tests/colab.txt is up to date."
    print(news, *changes, sep="\n")
    return int(bool(changes))


if __name__ == "__main__":
    sys.exit(main())
