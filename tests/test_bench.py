"""The benchmarks run, keep each row as soon as it is measured, and print what was recorded."""

import json
import subprocess
import sys
from dataclasses import asdict

import pytest
import torch

from tools.bench import environment, libraries, peak, save, table, throughput
from tools.bench.__main__ import main
from tools.bench.contestants import Task
from tools.bench.rows import OutOfTime, Rows, commit, last_words
from tools.bench.speed import per_second, spread
from tools.course import ROOT
from torchcourse import measurements
from torchcourse.recipes import mnist

KEY = {"commit": "abc", "device": "A", "torch": "2"}


# ---------------------------------------------------------------------------------------------------------------------
# Rows


def test_an_interrupted_measurement_goes_on_where_it_was(tmp_path):
    path, calls = tmp_path / "rows.jsonl", []
    first = Rows(path, KEY)
    assert first("one", "float32", lambda value: calls.append(1) or value, (1, 2)) == [1, 2]
    assert [json.loads(line)["name"] for line in path.read_text().splitlines()] == ["one"]  # already on the disk
    again = Rows(path, KEY, minutes=0)
    assert again.found == 1 and again.date
    assert again("one", "float32", calls.append, 2) == [1, 2]
    with pytest.raises(OutOfTime):
        again("two", "float32", calls.append, 3)
    assert calls == [1]


@pytest.mark.parametrize("changed", [{"commit": "def"}, {"device": "B"}, {"torch": "3"}, {}])
def test_a_row_of_another_commit_device_pytorch_or_dtype_is_not_reused(tmp_path, changed):
    path = tmp_path / "rows.jsonl"
    Rows(path, KEY)("one", "float32", lambda: 1)
    other = Rows(path, KEY | changed)
    assert other("one", "float32" if changed else "bfloat16", lambda: 2) == 2
    assert Rows(path, KEY)("one", "float32", lambda: 3) == 1  # and the first one is still there


def test_a_line_that_was_cut_off_while_it_was_written_is_measured_again(tmp_path):
    path = tmp_path / "rows.jsonl"
    Rows(path, KEY)("one", "float32", lambda: 1)
    Rows(path, KEY)("two", "float32", lambda: 2)
    path.write_text(path.read_text()[:-9])
    again = Rows(path, KEY)
    assert (again("one", "float32", lambda: 10), again("two", "float32", lambda: 20)) == (1, 20)
    assert Rows(path, KEY).known == {("one", "float32"): 1, ("two", "float32"): 20}


def test_a_failure_is_not_kept(tmp_path):
    path = tmp_path / "rows.jsonl"
    assert Rows(path)("world", "float32", lambda: {"error": "no"}) == {"error": "no"}
    assert Rows(path)("world", "float32", lambda: {"start_s": 1}) == {"start_s": 1}


def test_a_process_is_not_waited_for_far_beyond_the_time_limit():
    assert Rows().patience(300) == 300 and Rows(minutes=0).patience(300) < 60
    late = Rows(minutes=1)

    def answer():
        late.deadline = 0.0  # the limit passes meanwhile, and may be what stopped the process
        return {"error": "no answer"}

    with pytest.raises(OutOfTime):
        late("world", "float32", answer)


def test_the_commit_tells_changed_sources_apart(tmp_path):
    (tmp_path / "tools" / "bench").mkdir(parents=True)
    source = tmp_path / "tools" / "bench" / "a.py"
    source.write_text("x = 1")
    without_git = commit(tmp_path)
    source.write_text("x = 2")
    assert commit(tmp_path) != without_git

    def git(*words):
        who = ["-c", "user.name=a", "-c", "user.email=a@b.c"]
        subprocess.run(["git", "-C", str(tmp_path), *who, *words], check=True, capture_output=True)

    git("init")
    git("add", ".")
    git("commit", "-m", "first")
    clean = commit(tmp_path)
    assert "changed" not in clean
    (tmp_path / "notes.txt").write_text("not measured")
    assert commit(tmp_path) == clean
    source.write_text("x = 3")
    assert commit(tmp_path) not in (clean, without_git)


def test_the_cause_is_told_and_not_what_comes_after_it():
    log = "Traceback (most recent call last):\n  File x\n[rank1]: ValueError: bad\n\nSet SOME_VARIABLE for more\n"
    assert last_words(log) == "[rank1]: ValueError: bad"
    assert last_words("") == "it printed nothing"
    error = last_words("ImportError: libx.so: cannot open /home/ann/lib/libx.so: no such file")
    assert error == "ImportError: libx.so: cannot open libx.so: no such file"


# ---------------------------------------------------------------------------------------------------------------------
# The command


def test_median_and_range():
    assert spread([3.0, 1.0, 2.0]) == {"median": 2.0, "low": 1.0, "high": 3.0}
    calls = []
    rate = per_second(lambda: calls.append(1), work=2.0, least=0.001, repeats=3)
    assert 0 < rate["low"] <= rate["median"] <= rate["high"] and len(calls) > 100


def test_quick_runs_write_their_parts_one_after_the_other(tmp_path, capsys):
    assert main(["--quick", "peak", "--folder", str(tmp_path)]) == 0
    assert main(["--quick", "throughput", "table", "--folder", str(tmp_path)]) == 0
    (bench,), (curves,) = measurements.load("bench", tmp_path), measurements.load("throughput", tmp_path)
    assert bench.results["peak"]["fp32"] and "bf16" in bench.results["peak"]
    assert bench.hardware["device"] in capsys.readouterr().out
    for network in curves.results["networks"].values():
        assert len(network["batch"]) == len(network["train"]) == len(network["forward_range"])
        pairs = zip(network["train"], network["train_range"], strict=True)
        assert all(low <= middle <= high for middle, (low, high) in pairs)
        assert network["parameters"] > 1000 and network["mflop"] > 0
    assert len(curves.results["matmul"]["size"]) == len(curves.results["matmul"]["gflops"])


def test_recipes_are_timed_and_scored(tmp_path):
    assert main(["--quick", "mnist", "cifar", "--folder", str(tmp_path)]) == 0
    (one,) = measurements.load("bench", tmp_path)
    for part in (one.results["mnist"], one.results["cifar"]):
        (ours,) = part["ours"].values()
        assert ours["seconds"]["median"] > 0 and 0 <= ours["accuracy"]["mean"] <= 1 and ours["repeats"] == 1
    (example,) = one.results["mnist"]["official"]
    assert example["seed"] == 1 and len(example["epochs"]) == 1
    assert "this course, 1 epoch |" in table.markdown(one)


def test_a_part_that_fails_is_named_and_the_next_one_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(throughput, "measure", lambda rows, quick, say: 1 / 0)
    assert main(["--quick", "throughput", "peak", "--folder", str(tmp_path)]) == 1
    assert "make bench PARTS='throughput'" in capsys.readouterr().out
    assert measurements.topics(tmp_path) == ["bench"]


def test_a_part_that_is_cut_off_continues_and_a_finished_one_starts_over(tmp_path, monkeypatch):
    """What was recorded is not handed out again as if it had been measured again."""
    monkeypatch.setattr("tools.bench.__main__.KEPT", tmp_path)
    values, stop = iter(range(100)), [True]

    def measure(rows, quick, say):
        first = rows("first", "float32", lambda: next(values))
        if stop:
            raise OutOfTime
        return {"fp32": first}

    monkeypatch.setattr(peak, "measure", measure)

    def run(*more):
        return main(["peak", "--folder", str(tmp_path), *more])

    def recorded():
        return measurements.load("bench", tmp_path)[0].results["peak"]["fp32"]

    assert run() == 3 and measurements.topics(tmp_path) == []
    stop.clear()
    assert run() == 0 and recorded() == 0
    assert run() == 0 and recorded() == 1
    stop.append(True)
    run()
    stop.clear()
    assert run("--again") == 0 and recorded() == 3


def test_parts_measured_with_another_pytorch_are_not_mixed_in(tmp_path, monkeypatch):
    monkeypatch.setattr(peak.devices, "best", lambda: torch.device("cpu"))
    path = save.write("bench", {"mnist": {}}, "make bench", folder=tmp_path)
    path.write_text(path.read_text().replace(save.importlib.metadata.version("torch"), "1.0"))
    main(["--quick", "peak", "--folder", str(tmp_path)])
    assert list(measurements.load("bench", tmp_path)[0].results) == ["peak"]


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "there is no part speed" in capsys.readouterr().err


def test_an_emulated_data_type_is_left_out(monkeypatch):
    monkeypatch.setattr(peak.devices, "best", lambda: torch.device("cpu"))
    speeds = {torch.float32: 100.0, torch.bfloat16: 1.0}
    monkeypatch.setattr(peak, "matmul", lambda size, dtype, *rest: dict.fromkeys(("median", "high"), speeds[dtype]))
    results = peak.measure(Rows(), True, lambda line: None)
    assert results["bf16"]["skipped"] and results["fp32"]["matmul_64"]["median"] == 100
    speeds[torch.bfloat16] = 200.0
    assert peak.measure(Rows(), True, lambda line: None)["bf16"]["matmul_64"]["median"] == 200


# ---------------------------------------------------------------------------------------------------------------------
# Other libraries


def test_requirements_are_the_extra_of_pyproject(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.optional-dependencies]\nbench = ["keras>=3", "skorch"]\n')
    assert environment.requirements(tmp_path) == ["keras>=3", "skorch"]


def test_a_library_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setattr(libraries.environment, "interpreter", lambda: save.os.sys.executable)
    monkeypatch.setattr(libraries, "plan", lambda quick: {"mlp": [("no-such-library", Task("mlp", 16, 160))]})
    said = []
    results = libraries.measure(Rows(), True, said.append)
    (row,) = results["networks"]["mlp"]["rows"]
    assert row["error"] == environment.ADVICE and "images_per_s" not in row and "make bench" in said[0]


def test_a_process_of_its_own_measures_a_library():
    found = libraries.train("loop", Task("mlp", batch=16, images=160), repeats=2)
    assert found["version"] == save.importlib.metadata.version("torch")
    assert len(found["images_per_s"]) == 2 and min(found["images_per_s"]) > 0


def test_too_few_steps_to_time_are_refused():
    contestants = pytest.importorskip("tools.bench.contestants")
    assert contestants.run("ours", Task("mlp", batch=16, images=160)) > 0
    with pytest.raises(RuntimeError, match="ask for more images"):
        contestants.run("ours", Task("mlp", batch=16, images=16))


def test_the_course_trains_what_the_example_trains():
    from tools.bench.official import Example
    from torchcourse import models

    shapes = [p.shape for p in Example().parameters()]
    assert sum(s.numel() for s in shapes) == 1_199_882 and shapes == [
        p.shape for p in models.MnistExample().parameters()
    ]


def test_the_per_sample_data_set_is_what_the_course_normalizes():
    from tools.bench.official import dataset
    from torchcourse import data, models

    images = data.load("mnist", "test").subset(slice(4))
    image, label = dataset(images)[2]
    ours = models.Normalize("mnist")(images.images)[2]
    assert label == images.labels[2] and (image - ours).abs().max() < 1e-2
    image, label = dataset(data.load("cifar10", "test").subset(slice(4)))[3]
    assert image.shape == (3, 32, 32) and -1 <= image.min() < image.max() <= 1


def test_the_official_example_learns():
    from tools.bench import official
    from torchcourse import data

    train, test = data.load("mnist", "train").subset(slice(640)), data.load("mnist", "test").subset(slice(100))
    (first, second) = official.epochs(1, 2, train, test)
    assert first["epoch"] == 1 and first["seconds"] > 0 and second["accuracy"] > 0.3


# ---------------------------------------------------------------------------------------------------------------------
# The page


def test_checkpoints_are_timed_in_all_ways():
    from tools.bench import checkpoints

    # In a process of its own: DCP asks the accelerator of its process, and other tests register a practice GPU.
    code = "import json; from tools.bench import checkpoints; from tools.bench.rows import Rows\n"
    code += "print(json.dumps(checkpoints.measure(Rows(), quick=True, say=lambda line: None)))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    results = json.loads(done.stdout.splitlines()[-1])
    on_cpu = results["device"].startswith("cpu")  # what that process had: this one may have a practice GPU by now
    ways = [way for way in checkpoints.SAVES if not (on_cpu and way in checkpoints.ON_GPU)]
    assert [row["way"] for row in results["saves"]] == ways
    assert all(row["done_s"]["median"] >= row["blocked_s"]["median"] > 0 for row in results["saves"])
    assert [row["way"] for row in results["loads"]] == list(checkpoints.LOADS)
    assert all(row["s"]["median"] > 0 for row in results["loads"])
    assert results["gib"]["optimizer"] == pytest.approx(2 * results["gib"]["model"], rel=0.01)  # and its step counts
    failed = checkpoints.tried(lambda *arguments: 1 / 0, None, "torch.save", 1)
    assert failed == {"error": "ZeroDivisionError: division by zero"}


def test_the_table_says_what_was_recorded(tmp_path, capsys):
    def times(median):
        return {"median": median, "low": 0.9 * median, "high": 1.1 * median}

    def row(name, speed, batch=64, workers=0):
        task = {"name": name, "batch": batch, "workers": workers, "dtype": "float32"}
        return task | {"images_per_s": times(speed), "gflops": speed * 0.05}

    score = {"accuracy": {"mean": 0.9908}, "reached": 4, "repeats": 5}
    failed = {"name": "fastai", "batch": 64, "workers": 0, "dtype": "float32", "error": environment.ADVICE}
    results = {
        "peak": {"fp32": {"matmul_2048": times(130.0)}, "bf16": {"skipped": "slow"}},
        "mnist": {
            "ours": {"99.0": {"seconds": times(1.5), "settings": {"seen": 19_200}} | score},
            "official": [{"seed": 1, "epochs": [[40.0, 0.984], [41.0, 0.9901]]}],
        },
        "cifar": {"ours": {"any": {"epochs": 1, "seconds": times(14.0)} | score}},
        "libraries": {
            "versions": {"keras": "3.15.1"},
            "networks": {"example": {"rows": [row("ours", 2400), row("loop", 1600, workers=4), failed]}},
        },
    }
    save.write("bench", results, "make bench", folder=tmp_path)
    table.show(tmp_path, picture=tmp_path / "bench.png")
    printed = capsys.readouterr().out
    assert "keras 3.15.1" in printed.splitlines()[0] and save.hardware()["device"] in printed.splitlines()[0]
    assert (
        "| this course, 0.32 epochs | 1.50 s [1.35..1.65] | mean 99.08% over 5 seeds; 4 of 5 reach 99.0% |" in printed
    )
    assert "| official example, 2 epochs | 81.0 s | best epoch 99.01%, seed 1 |" in printed
    assert "54 times sooner" in printed
    assert "The recipe has changed since" in printed  # its settings have one number, the recipe's have more
    assert "| this course | 64 | 2,400 [2,160..2,640] | 92% |" in printed  # 2,400 * 0.05 of 130 GFLOP/s
    assert "130 [117..143] in fp32." in printed
    assert "| this course, 1 epoch | 14.0 s" in printed
    assert f"| fastai | 64 | – |  | {environment.ADVICE} |" in printed
    assert "| DataLoader per sample, 4 workers | 64 | 1,600" in printed
    assert 5_000 < (tmp_path / "bench.png").stat().st_size < 100_000

    (one,) = measurements.load("bench", tmp_path)
    one.results["mnist"]["official"][0]["epochs"] = [[40.0, 0.984]]
    assert "sooner" not in table.markdown(one)  # the example did not get there


def test_without_a_measurement_the_table_says_how_to_make_one(tmp_path, capsys):
    table.show(tmp_path)
    assert "make bench" in capsys.readouterr().out


def test_rows_of_an_earlier_recipe_are_told_apart():
    now = json.loads(json.dumps(asdict(mnist.SETTINGS["99.0"])))
    assert not table.is_earlier("99.0", now) and table.is_earlier("99.0", now | {"seen": 1})


def test_the_page_shows_the_recorded_numbers():
    """docs/bench.md is written by `make bench`."""
    assert table.PICTURE.with_suffix(".md").read_text() == table.page(measurements.load("bench"))
