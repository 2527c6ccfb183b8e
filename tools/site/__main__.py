"""python -m tools.site [--out FOLDER] [--external]: see tools/site/__init__.py."""

import argparse
import gc
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

from tools import slides
from tools.course import ROOT
from tools.site import check, sources
from torchcourse.errors import CourseError


def build(out: Path, builder: str = "html") -> list[str]:
    """Build the site into `out`; returns what is wrong, as sentences. What Sphinx reads lies beside it, in `out`-work.

    builder: "html", or "linkcheck", which builds nothing and follows the links that lead outside.
    """
    gc.set_threshold(100_000, 20, 20)  # pages in memory are millions of objects: looking through them took a sixth
    work = out.with_name(f"{out.name}-work")
    target = out if builder == "html" else work / builder
    for folder in (work, target):
        shutil.rmtree(folder, ignore_errors=True)
    gathered = sources.gather()
    for kind, files in {"pages": gathered.pages, "extra": gathered.extra}.items():
        for name, content in files.items():
            path = work / kind / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
    slides.build(out=work / "extra" / "slides")
    (work / "extra" / "slides" / "index.html").unlink()  # the site has a list of its own
    command = ["-b", builder, "-c", str(Path(__file__).parent), "-d", str(work / "doctrees"), "-q"]
    command += ["-D", f"html_extra_path={work / 'extra'}", "--fail-on-warning", str(work / "pages"), str(target)]
    if status := build_main(command):
        return [f"Sphinx ended with status {status}: see its messages above."]
    return check.problems(out) if builder == "html" else []


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description="Build the website of the course.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder of the pages (build/site)")
    parser.add_argument("--external", action="store_true", help="follow the links that lead outside (needs a network)")
    arguments = parser.parse_args(argv)
    out = arguments.out.resolve()
    try:
        found = build(out, "linkcheck" if arguments.external else "html")
    except CourseError as error:
        found = [str(error)]
    for sentence in found:
        print(sentence, file=sys.stderr)
    if not found:
        print("Every link was answered." if arguments.external else f"Open {out}/index.html")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
