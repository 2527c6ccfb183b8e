"""Recorded numbers: each file says on what, when and by which command it was measured."""

import datetime
import json

import pytest
import torch

from tools.bench import record
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


def test_what_is_written_is_read_back_and_replaced(tmp_path):
    for images in (1, 2):
        path = record.write("speed", {"images": images}, "make bench", torch.device("cpu"), tmp_path)
    (one,) = measurements.load("speed", tmp_path)
    assert path.name.startswith("speed-") and one.results == {"images": 2} and one.command == "make bench"
    assert measurements.topics(tmp_path) == ["speed"] and measurements.load("other", tmp_path) == []


def test_processors_come_before_gpus(tmp_path):
    for kind, name in (("cuda", "A card"), ("cpu", "Z processor"), ("cpu", "B processor")):
        content = {"topic": "speed", "command": "make bench", "date": "2030-01-01", "versions": {}, "results": 1}
        content["hardware"] = {"kind": kind, "device": name}
        (tmp_path / f"speed-{name[0]}.json").write_text(json.dumps(content))
    order = [m.hardware["device"] for m in measurements.load("speed", tmp_path)]
    assert order == ["B processor", "Z processor", "A card"]
