"""python -m tools.site [--out FOLDER] [--fresh] [--complete] [--external]: see tools/site/__init__.py."""

import argparse
import gc
import sys
from collections.abc import Sequence
from pathlib import Path

from sphinx.cmd.build import build_main

from tools.course import ROOT
from tools.site import check, sources


def build(out: Path, complete: bool = False, builder: str = "html") -> list[str]:
    """Build the site into `out`; returns what is wrong, as sentences.

    complete: what cannot be had here (npm's packages for slides and formulas) is an error and is not left out.
    builder: "html", or "linkcheck", which builds nothing and follows the links that lead outside.
    What Sphinx remembers for the next time lies beside `out`, in a folder of the same name with -work; so does the list
    of all links that lead outside, external-links.txt.
    """
    gc.set_threshold(100_000, 20, 20)  # pages in memory are millions of objects: looking through them took a sixth
    work = out.with_name(f"{out.name}-work")
    gathered = sources.gather()
    for sentence in gathered.missing:
        print(sentence, file=sys.stderr)
    if complete and gathered.missing:
        return ["The site is not complete."]
    kinds = {"pages": gathered.pages, "extra": gathered.extra, "static": gathered.static}
    gone = [sources.write(files, work / kind) for kind, files in kinds.items()]
    if any(gone):
        sources.forget(out, work / "doctrees")  # a page is gone: Sphinx would leave its old one standing
    target = out if builder == "html" else work / builder
    command = ["-b", builder, "-c", str(Path(__file__).parent), "-d", str(work / "doctrees"), "-q"]
    if status := build_main([*command, "--fail-on-warning", "--keep-going", str(work / "pages"), str(target)]):
        return [f"Sphinx ended with status {status}: see its messages above."]
    if builder != "html":
        return []
    pages = check.read_all(out)
    (work / "external-links.txt").write_text("".join(f"{link}\n" for link in check.outside(pages)), encoding="utf-8")
    return check.problems(out, pages)


def main(argv: Sequence[str] | None = None) -> int:
    """The command line; returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tools.site", description="Build the website of the course.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "site", help="folder of the pages (build/site)")
    parser.add_argument("--fresh", action="store_true", help="forget earlier builds")
    parser.add_argument("--complete", action="store_true", help="fail rather than go without slides and formulas")
    parser.add_argument("--external", action="store_true", help="follow the links that lead outside (needs a network)")
    arguments = parser.parse_args(argv)
    out = arguments.out.resolve()
    if arguments.fresh:
        sources.forget(out, out.with_name(f"{out.name}-work"))
    found = build(out, arguments.complete, "linkcheck" if arguments.external else "html")
    for sentence in found:
        print(sentence, file=sys.stderr)
    if not found:
        print("Every link was answered." if arguments.external else f"Open {out}/index.html")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
