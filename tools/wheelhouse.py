"""Collect the Python packages that a machine without network lacks, as wheels: `make wheelhouse`.

    python -m tools.wheelhouse                                            for Python 3.12 on Linux, beside PyTorch
    python -m tools.wheelhouse --python 3.11 --platform manylinux_2_28_x86_64
    python -m tools.wheelhouse --have FILE                                the other machine's `pip freeze`

Wanted is what running, testing and measuring the course needs (`make gpu`); not what only a person at a screen needs
(JupyterLab), and never PyTorch. Without --have the other machine is taken to have PyTorch, torchvision and what these
two need, and nothing else. With it, exactly what is missing is collected, and whatever is there in a version that will
do stays as it is. The wheels go to build/wheelhouse, with the line that installs them.
"""

import argparse
import email
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name, parse_wheel_filename

from tools.course import ROOT

FOLDER = ROOT / "build" / "wheelhouse"
AT_A_SCREEN = {"jupyterlab", "ipywidgets", "nbval"}  # of the extra `lab`: not needed to run the course headless
# For the tests, and for the power of a GPU; the notebooks' runner needs nothing that the course does not.
ON_TOP = ("pytest>=8.2", "nvidia-ml-py>=12")
# What a machine with PyTorch and torchvision has; versions are not known.
BESIDE_TORCH = """torch torchvision numpy pillow filelock fsspec jinja2 markupsafe mpmath networkx setuptools sympy
triton typing-extensions cuda-bindings cuda-pathfinder cuda-toolkit"""
ANY = ""  # a version that is not known, and taken to do


class WheelhouseError(Exception):
    """A wheel that is not to be had, or packages that do not go together; the message says which."""


@dataclass(frozen=True)
class Target:
    """The machine that the wheels are for."""

    python: str = "3.12"
    platform: str = "manylinux_2_28_x86_64"
    have: dict[str, str] = field(default_factory=lambda: dict.fromkeys(BESIDE_TORCH.split(), ANY))  # name -> version

    def options(self) -> list[str]:
        """For pip download. pip takes a platform by the letter, so all older ones that will do are named as well."""
        found = ["--python-version", self.python, "--implementation", "cp", "--only-binary=:all:"]
        return found + [word for platform in platforms(self.platform) for word in ("--platform", platform)]

    def markers(self) -> dict[str, str]:
        """What "; sys_platform == ..." in a requirement is compared with."""
        mac, windows = self.platform.startswith("macosx"), self.platform.startswith("win")
        return {
            "python_version": self.python,
            "python_full_version": f"{self.python}.0",
            "implementation_name": "cpython",
            "platform_python_implementation": "CPython",
            "os_name": "nt" if windows else "posix",
            "sys_platform": "darwin" if mac else "win32" if windows else "linux",
            "platform_system": "Darwin" if mac else "Windows" if windows else "Linux",
            "platform_machine": re.sub(r".*?(x86_64|aarch64|arm64|amd64|ppc64le)$", r"\1", self.platform),
            "extra": "",
        }

    def has(self, requirement: Requirement) -> bool:
        """Whether the machine has a package in a version that will do."""
        version = self.have.get(canonicalize_name(requirement.name))
        return version == ANY or (version is not None and requirement.specifier.contains(version, prereleases=True))


def platforms(name: str) -> list[str]:
    """A platform and all those whose wheels run on it, too: "manylinux_2_17_x86_64" -> that, 2_16, ..., linux."""
    match = re.fullmatch(r"manylinux_2_(\d+)_(\w+)", name)
    if not match:
        return [name]
    newest, machine = int(match[1]), match[2]
    found = [f"manylinux_2_{minor}_{machine}" for minor in range(newest, 4, -1)]
    old_names = {"manylinux2014": 17, "manylinux2010": 12, "manylinux1": 5}
    return [*found, *(f"{old}_{machine}" for old, minor in old_names.items() if minor <= newest)]


def frozen(text: str) -> dict[str, str]:
    """Name -> version, from the output of `pip freeze` or `pip list --format=freeze`. What has no version will do."""
    found = {}
    for line in text.splitlines():
        line = line.partition("#")[0].strip()
        match = re.match(r"(?:-e\s+)?([A-Za-z0-9][\w.-]*)\s*(?:==\s*([^\s;]+)|@.*)?$", line)
        if match:
            found[canonicalize_name(match[1])] = (match[2] or ANY).partition("+")[0]
    return found


def wanted(root: Path = ROOT) -> list[Requirement]:
    """What running the course needs, from pyproject.toml."""
    project = tomllib.loads((root / "pyproject.toml").read_text())["project"]
    lines = (*project["dependencies"], *project["optional-dependencies"]["lab"], *ON_TOP)
    every = [Requirement(line) for line in lines]
    return [one for one in every if one.name not in AT_A_SCREEN | {"torch", "torchvision"}]


def collect(requirements: list[Requirement], target: Target, folder: Path, say=print) -> list[Path]:
    """Download the wheels that are missing, and what they need that is missing, into `folder`; returns the wheels.

    Breadth first: a package that turns out to be needed in a narrower version than the one chosen is chosen again.
    """
    environment = target.markers()
    specifiers: dict[str, SpecifierSet] = {}  # all that is asked of a package, by whomever
    wheels: dict[str, Path] = {}
    todo = [one for one in requirements if one.marker is None or one.marker.evaluate(environment)]
    extras: dict[str, set[str]] = {}
    while todo:
        look_into = set()
        for one in todo:
            name = canonicalize_name(one.name)
            if target.has(one) and name not in wheels:
                continue
            specifiers[name] = specifiers.get(name, SpecifierSet()) & one.specifier
            new_extras = one.extras - extras.setdefault(name, set())
            extras[name] |= new_extras
            if new_extras or not fits(wheels, specifiers, name):
                look_into.add(name)
        missing = [f"{name}{specifiers[name]}" for name in sorted(look_into) if not fits(wheels, specifiers, name)]
        if missing:
            say(f"  {', '.join(missing)}")
            wheels |= download(missing, target, folder)
        todo = [
            need
            for name in look_into
            for need in needs(wheels[name])
            if need.marker is None or any(need.marker.evaluate(environment | {"extra": e}) for e in ("", *extras[name]))
        ]
    for path in folder.glob("*.whl"):
        if path not in wheels.values():
            path.unlink()  # chosen first, and then another version
    return sorted(wheels.values())


def fits(wheels: dict[str, Path], specifiers: dict[str, SpecifierSet], name: str) -> bool:
    """Whether there is a wheel already that satisfies all who ask for the package."""
    return name in wheels and specifiers[name].contains(version_of(wheels[name]), prereleases=True)


def version_of(wheel: Path) -> str:
    """1.2.3"""
    return str(parse_wheel_filename(wheel.name)[1])


def needs(wheel: Path) -> list[Requirement]:
    """What a wheel says that it needs, extras included."""
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if re.fullmatch(r"[^/]+\.dist-info/METADATA", name))
        lines = email.message_from_bytes(archive.read(name)).get_all("Requires-Dist") or []
    found = []
    for line in lines:
        try:
            found.append(Requirement(line))
        except InvalidRequirement as error:
            raise WheelhouseError(f"{wheel.name} asks for {line!r}, which cannot be read.") from error
    return found


def download(requirements: list[str], target: Target, folder: Path) -> dict[str, Path]:
    """Wheels of these packages, without what they need: name -> file. Raises WheelhouseError with pip's reason."""
    with tempfile.TemporaryDirectory(dir=folder) as fresh:
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps"]
        done = subprocess.run(
            [*command, *target.options(), "--dest", fresh, *requirements], capture_output=True, text=True
        )
        if done.returncode:
            lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
            reason = (lines or ["pip gave no reason"])[-1].removeprefix("ERROR: ")
            where = f"Python {target.python}, {target.platform}"
            raise WheelhouseError(f"Not all wheels are to be had for {where}: {reason}")
        found = {}
        for path in Path(fresh).glob("*.whl"):
            found[canonicalize_name(parse_wheel_filename(path.name)[0])] = path.replace(folder / path.name)
        return found


def install_line(folder: Path = Path("build/wheelhouse")) -> str:
    """What to type on the other machine. --no-deps: all that is needed lies here or is there."""
    return f"python -m pip install --no-index --no-deps {folder.as_posix()}/*.whl"


def main(arguments: list[str] | None = None) -> int:
    """The command; returns its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.wheelhouse", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--python", default=Target.python, help="its Python (%(default)s)")
    parser.add_argument("--platform", default=Target.platform, help="its platform, as wheels name it (%(default)s)")
    parser.add_argument("--have", type=Path, help="file with the output of its `pip freeze`")
    parser.add_argument("--packages", nargs="+", help="collect these instead of what the course needs")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="rebuilt from scratch (build/wheelhouse)")
    options = parser.parse_args(arguments)
    about = {"python": options.python, "platform": options.platform}
    target = Target(**about, have=frozen(options.have.read_text())) if options.have else Target(**about)
    requirements = [Requirement(one) for one in options.packages] if options.packages else wanted()
    if options.folder.exists() and any(path.suffix not in (".whl", ".txt") for path in options.folder.iterdir()):
        print(f"{options.folder} holds other things than wheels: choose another folder.", file=sys.stderr)
        return 1
    shutil.rmtree(options.folder, ignore_errors=True)
    options.folder.mkdir(parents=True)
    print(f"Wheels for Python {options.python}, {options.platform}:")
    try:
        wheels = collect(requirements, target, options.folder)
    except WheelhouseError as error:
        print(error, file=sys.stderr)
        return 1
    if not wheels:
        print("Nothing is missing there.")
        return 0
    size = sum(path.stat().st_size for path in wheels) / 2**20
    place = options.folder.relative_to(ROOT) if options.folder.is_relative_to(ROOT) else options.folder
    (options.folder / "install.txt").write_text(install_line(place) + "\n")
    print(f"{len(wheels)} wheels, {size:.1f} MiB, in {place}. On the other machine `make gpu` finds them there; or:")
    print(f"  {install_line(place)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
