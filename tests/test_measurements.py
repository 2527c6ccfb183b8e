"""Recorded numbers: each file says on what, when and by which command it was measured."""

import datetime
import json

import pytest

from torchcourse import measurements

RECORDED = sorted(measurements.FOLDER.glob("*-*.json"))


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_measurement_says_where_it_comes_from(path):
    one = measurements.Measurement(**json.loads(path.read_text()))
    assert path.stem.startswith(f"{one.topic}-") and one.results
    assert "make " in one.command and datetime.date.fromisoformat(one.date)
    assert one.hardware["device"] and one.hardware["kind"] and one.hardware["cores"] >= 1
    assert one.versions["torch"] and one.versions["python"]
    # Only the project's own words: no folder of the machine it was measured on.
    assert "/home" not in path.read_text() and "/root" not in path.read_text() and "/tmp" not in path.read_text()
