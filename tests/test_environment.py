"""One set of requirements, in pyproject.toml: what the package imports, and extras; environment.yml installs one."""

import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import yaml
from environments import imported
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.course import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())


def test_base_dependencies_are_what_the_package_imports():
    """Besides the standard library, and what a notebook's kernel brings."""
    modules = set().union(*(imported(path.read_text()) for path in (ROOT / "src").rglob("*.py")))
    modules -= {*sys.stdlib_module_names, "IPython", "jupyter_client", "torchcourse", "labcheck", "torchcourse_labs"}
    owners = packages_distributions()
    found = {canonicalize_name(owners[module][0]) for module in modules}
    runtimes = {Requirement(line).name for line in PROJECT["optional-dependencies"]["export"]}  # asked where they are
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == found - runtimes


PROBE = """
import sys
for name in ("IPython", "jupyter_client"):
    sys.modules[name] = None  # as if it were not installed
import importlib, pkgutil, torchcourse, labcheck
for package in (torchcourse, labcheck):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.endswith("__main__"):
            importlib.import_module(module.name)
print("all")
"""


def test_the_package_is_imported_without_jupyter():
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    assert done.stdout.strip() == "all", done.stderr


def test_conda_installs_the_lab_for_the_same_pythons():
    *lines, pip = CONDA["dependencies"]
    assert pip == {"pip": ["-e .[lab]"]}
    assert any(line.startswith("python") and PROJECT["requires-python"] in line for line in lines)
