"""The benchmarks run and record plain numbers, and docs/bench.md says what was recorded."""

import json
import subprocess
import sys
from dataclasses import asdict

import psutil
import pytest
import torch

from tools.bench import ddp, recipes, speed, table
from tools.bench.__main__ import main
from tools.bench.record import last_words, write
from tools.course import ROOT
from torchcourse import data, device, measurements, models
from torchcourse.recipes import mnist

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def real_device(monkeypatch):
    """Another test of this process may have switched the practice GPU on, which measures nothing."""
    here = device.best()
    monkeypatch.setattr(device, "best", lambda: here if here.type in ("cpu", "cuda") else CPU)


def quickly(tmp_path, *parts: str) -> list[measurements.Measurement]:
    """What a quick run of some parts records under their topics."""
    assert main(["--quick", *parts, "--folder", str(tmp_path)]) == 0
    return [one for topic in measurements.topics(tmp_path) for one in measurements.load(topic, tmp_path)]


# ---------------------------------------------------------------------------------------------------------------------
# The parts, on whatever device is there. Marked with `gpu`: worth running on a real one.


@pytest.mark.gpu
def test_parts_of_one_file_are_measured_one_by_one(tmp_path):
    quickly(tmp_path, "peak")
    bench, curves = quickly(tmp_path, "mnist", "cifar", "throughput")
    assert bench.results["peak"]["fp32"]["matmul_64"]["median"] > 0
    for part in (bench.results["mnist"], bench.results["cifar"]):
        (ours,) = part["ours"].values()
        assert ours["seconds"]["median"] > 0 and 0 <= ours["accuracy"]["mean"] <= 1 and ours["repeats"] == 1
    ((seconds, accuracy),) = bench.results["mnist"]["official"][0]["epochs"]
    assert seconds > 0 and accuracy > 0.2  # 640 images, one epoch
    curve = curves.results["networks"]["MLP"]
    assert len(curve["batch"]) == len(curve["train"]) and min(curve["train"]) > 0


@pytest.mark.gpu
def test_gpt_measures_speed_and_loss(tmp_path):
    (one,) = quickly(tmp_path, "gpt")  # ours alone: nanoGPT's file is downloaded
    assert one.results["tokens_per_s"]["ours"]["median"] > 0 and 0 < one.results["bits_per_byte"]["ours"] < 4.5
    assert f"| this course | {one.results['parameters']['ours']:,} |" in table.gpt(one)


@pytest.mark.gpu
def test_precision_measures_every_mode_that_is_worth_it(tmp_path):
    (one,) = quickly(tmp_path, "precision")
    modes, rows = one.results["modes"], one.results["training"]["rows"]
    assert modes[0] == "fp32"
    assert [(row["mode"], row["channels_last"]) for row in rows] == [(m, last) for m in modes for last in (False, True)]
    for row in rows:
        assert row["images_per_s"]["median"] > 0 and (row["peak_mib"] is None) == (one.hardware["kind"] == "cpu")
    assert all(one.results["matmul"][mode]["gflops"][0] > 0 for mode in modes)


@pytest.mark.gpu
@pytest.mark.weekly
def test_processes_take_turns_and_are_gone_afterward(tmp_path):
    (one,) = quickly(tmp_path, "ddp")
    for world in one.results["worlds"]:
        assert "error" not in world, world["error"]
        ways = {(row["way"], row["processes"]) for row in world["rows"]}
        assert {("plain", 1), ("ddp", 1)} <= ways
        if world["processes"] > 1:
            assert {("ddp", 2), ("flat", 2), ("per tensor", 2), ("plain", 2)} <= ways
        assert all(row["images_per_s"]["median"] > 0 for row in world["rows"])
    ours = {child.pid for child in psutil.Process().children(recursive=True)}
    running = [each for each in psutil.process_iter(["cmdline"]) if "tools.bench.ddp" in (each.info["cmdline"] or [])]
    assert not [each for each in running if each.pid in ours]


@pytest.mark.weekly
def test_checkpoints_are_saved_in_all_ways(tmp_path):
    # In a process of its own: DCP asks the accelerator of its process, and other tests register a practice GPU.
    command = [sys.executable, "-m", "tools.bench", "--quick", "checkpoints", "--folder", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    (one,) = measurements.load("checkpoints", tmp_path)
    assert [row["way"] for row in one.results["saves"]] == [
        "torch.save",
        "checkpoint.save",
        "dcp.save",
        "dcp.async_save",
    ]
    assert all(row["done_s"]["median"] >= row["blocked_s"]["median"] > 0 for row in one.results["saves"])
    assert one.results["gib"]["optimizer"] == pytest.approx(2 * one.results["gib"]["model"], rel=0.01)


def test_a_part_that_fails_is_named_and_the_next_one_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(speed, "random_images", lambda *arguments: 1 / 0)
    assert main(["--quick", "throughput", "peak", "--folder", str(tmp_path)]) == 1
    assert "make bench PARTS='throughput'" in capsys.readouterr().out
    assert measurements.topics(tmp_path) == ["bench"]


def test_parts_measured_with_another_pytorch_are_not_mixed_in(tmp_path):
    path = write("bench", {"mnist": {}}, "make bench", device.best(), tmp_path)
    path.write_text(path.read_text().replace('"torch": "2', '"torch": "1'))
    (one,) = quickly(tmp_path, "peak")
    assert list(one.results) == ["peak"]


# ---------------------------------------------------------------------------------------------------------------------
# Devices that are not here


def test_worlds_for_every_machine():
    assert (ddp.worlds("cpu", 0), ddp.worlds("cuda", 1), ddp.worlds("cuda", 4)) == ([2], [1, 2], [4])
    assert {row.way for row in ddp.rows_of(1, 8, 8, [64])} == {"plain", "ddp"}
    assert len(set(ddp.rows_of(2, 1, 8, [64]))) == 7


def test_which_modes_a_gpu_has(monkeypatch):
    def modes():
        return [mode for mode in speed.MODES if speed.usable(mode, torch.device("cuda"))]

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: False)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (7, 5))
    assert modes() == ["fp32", "fp16"]
    monkeypatch.setattr(torch.cuda, "is_bf16_supported", lambda including_emulation: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    assert modes() == ["fp32", "tf32", "fp16", "bf16"]


def test_the_cause_is_told_and_not_what_comes_after_it():
    log = "Traceback (most recent call last):\n  File x\n[rank1]: ValueError: bad\n\nChildFailedError: rank 1\n"
    assert last_words(log) == "[rank1]: ValueError: bad"
    assert last_words("") == "it printed nothing"
    error = last_words("ImportError: libx.so: cannot open /home/ann/lib/libx.so: no such file")
    assert error == "ImportError: libx.so: cannot open libx.so: no such file"


def test_the_examples_images_are_what_the_course_normalizes():
    images = data.load("mnist", "test").subset(slice(4))
    image, label = recipes.Mnist(images)[2]
    assert label == images.labels[2] and (image - models.Normalize("mnist")(images.images)[2]).abs().max() < 1e-2


# ---------------------------------------------------------------------------------------------------------------------
# The page


def test_the_page_shows_the_recorded_numbers(tmp_path):
    """docs/bench.md is written by `make bench`."""
    table.show(picture=tmp_path / "bench.png")
    assert (tmp_path / "bench.md").read_text() == (ROOT / "docs" / "bench.md").read_text()
    assert 5_000 < (tmp_path / "bench.png").stat().st_size < 100_000


def test_rows_of_an_earlier_recipe_are_told_apart():
    now = json.loads(json.dumps(asdict(mnist.SETTINGS["99.0"])))
    assert not table.is_earlier("99.0", now) and table.is_earlier("99.0", now | {"seen": 1})
