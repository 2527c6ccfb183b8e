"""One set of requirements, in pyproject.toml: what the package imports, and extras; environment.yml installs one."""

import ast
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.course import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())


def imported() -> set[str]:
    """Distributions that src/ imports, besides the standard library and what a notebook's kernel brings."""
    modules = set()
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and not node.level else []
            modules |= {name.partition(".")[0] for name in names}
    owners = packages_distributions()
    outside = (
        modules - sys.stdlib_module_names - {"IPython", "jupyter_client", "torchcourse", "labcheck", "torchcourse_labs"}
    )
    return {canonicalize_name(owners[module][0]) for module in outside}


def test_base_dependencies_are_what_the_package_imports():
    runtimes = {Requirement(line).name for line in PROJECT["optional-dependencies"]["export"]}  # asked where they are
    assert {Requirement(line).name for line in PROJECT["dependencies"]} == imported() - runtimes


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
