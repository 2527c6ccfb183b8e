"""One set of requirements, in pyproject.toml; environment.yml says the same."""

import tomllib
from itertools import chain

import pytest
import yaml
from packaging.requirements import Requirement
from rattler import MatchSpec

from tools.course import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CONDA = yaml.safe_load((ROOT / "environment.yml").read_text())


def conda_lines() -> list[str]:
    return [line for line in CONDA["dependencies"] if isinstance(line, str)]


def pip_lines() -> list[str]:
    (pip,) = [entry["pip"] for entry in CONDA["dependencies"] if isinstance(entry, dict)]
    return pip


def test_environment_lists_the_requirements_of_the_package():
    assert pip_lines() == [*PROJECT["dependencies"], "-e ."]


@pytest.mark.parametrize("line", conda_lines())
def test_conda_understands_the_line(line):
    assert MatchSpec(line).name is not None


def test_a_bad_conda_line_would_be_noticed():
    with pytest.raises(Exception, match="version"):
        MatchSpec("python>=>3.11")


def test_python_bounds_agree():
    (python,) = [MatchSpec(line) for line in conda_lines() if line.startswith("python")]
    assert PROJECT["requires-python"] in str(python)


def test_every_requirement_has_a_lower_bound_and_no_upper_one():
    for line in chain(PROJECT["dependencies"], *PROJECT["optional-dependencies"].values()):
        requirement = Requirement(line)
        if requirement.name != PROJECT["name"]:
            assert [s.operator for s in requirement.specifier] == [">="], line
