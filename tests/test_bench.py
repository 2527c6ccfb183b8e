"""The benchmarks run, keep quiet repeats apart from disturbed ones, and print what was recorded."""

import pytest

from tools.bench import environment, libraries, peak, save, table, throughput
from tools.bench.__main__ import main
from tools.bench.quiet import Reading, Turns, foreign, median_range, sentence, take_turns
from torchcourse import measurements


class Clocks:
    """Three clocks that move on by what a test says: one turn takes a second; `others` use these shares of one core."""

    def __init__(self, others):
        self.others, self.now, self.turn = list(others), Reading(0.0, 0.0, 0.0), 0

    def __call__(self):
        if self.turn % 2:  # the end of a turn
            used = self.others.pop(0)
            self.now = Reading(self.now.wall + 1, self.now.busy + 0.5 + used, self.now.own + 0.5)
        self.turn += 1
        return self.now


@pytest.fixture(autouse=True)
def one_core(monkeypatch):
    monkeypatch.setattr("tools.bench.quiet.os.cpu_count", lambda: 1)


def test_foreign_is_what_others_used():
    assert foreign(Reading(0, 0, 0), Reading(2, 3, 2), cores=2) == pytest.approx(0.25)
    assert foreign(Reading(0, 0, 0), Reading(2, 1.9, 2), cores=2) == 0  # clocks tick: never below nothing
    assert foreign(Reading(0, 0, 0), Reading(1, 9, 1), cores=1) == 1


def test_turns_alternate_and_a_disturbed_one_is_taken_again():
    order = []
    contestants = {name: lambda name=name: order.append(name) or len(order) for name in "AB"}
    turns = take_turns(contestants, repeats=2, clocks=Clocks([0, 0.5, 0, 0, 0]))
    assert order == ["A", "B", "A", "B", "B"]
    assert turns["A"].results(2) == [1, 3] and turns["A"].summary(2)["rejected"] == 0
    assert turns["B"].results(2) == [4, 5] and turns["B"].summary(2)["rejected"] == 1
    assert not turns["B"].summary(2)["disturbed"]


def test_where_nothing_is_quiet_the_least_disturbed_count_and_it_is_said():
    values = iter(range(10))
    turns = take_turns({"A": lambda: next(values)}, repeats=2, extra=2, clocks=Clocks([0.9, 0.3, 0.8, 0.4]))["A"]
    assert turns.results(2) == [1, 3]
    assert turns.summary(2) == {"repeats": 2, "rejected": 2, "foreign": 0.4, "disturbed": True}


def test_a_contestant_that_fails_does_not_stop_the_others():
    def broken():
        raise ImportError("no such library\nand more lines")

    turns = take_turns({"bad": broken, "good": lambda: 1.0}, repeats=2, clocks=Clocks([0] * 9))
    assert turns["bad"].error == "ImportError: no such library" and turns["bad"].results(2) == []
    assert turns["good"].results(2) == [1.0, 1.0]


def test_median_and_range():
    assert median_range([3.0, 1.0, 2.0]) == {"median": 2.0, "low": 1.0, "high": 3.0}
    assert Turns().summary(1)["disturbed"]


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
    results = measurements.load("bench", tmp_path)[0].results
    (mnist,) = results["mnist"]["ours"].values()
    (cifar,) = results["cifar"]["ours"].values()
    for part in (mnist, cifar):
        assert part["seconds"]["median"] > 0 and 0 < part["accuracy"]["mean"] <= 1 and part["repeats"] == 1
    (example,) = results["mnist"]["official"]
    assert example["seed"] == 1 and len(example["epochs"]) == 1
    assert "mean" in table.markdown(measurements.load("bench", tmp_path)[0])


def test_a_part_that_fails_is_named_and_the_next_one_runs(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(throughput, "measure", lambda quick, say: 1 / 0)
    assert main(["--quick", "throughput", "peak", "--folder", str(tmp_path)]) == 1
    assert "make bench PARTS='throughput'" in capsys.readouterr().out
    assert measurements.topics(tmp_path) == ["bench"]


def test_parts_measured_with_another_pytorch_are_not_mixed_in(tmp_path):
    path = save.write("bench", {"mnist": {}}, "make bench", folder=tmp_path)
    path.write_text(path.read_text().replace(save.importlib.metadata.version("torch"), "1.0"))
    main(["--quick", "peak", "--folder", str(tmp_path)])
    assert list(measurements.load("bench", tmp_path)[0].results) == ["peak"]


def test_an_unknown_part_is_refused(capsys):
    with pytest.raises(SystemExit):
        main(["speed"])
    assert "there is no part speed" in capsys.readouterr().err


def test_a_hopeless_data_type_is_left_out(monkeypatch):
    speeds = {peak.DTYPES["fp32"]: 100.0, peak.DTYPES["bf16"]: 1.0}
    monkeypatch.setattr(peak, "probe", lambda dtype: speeds[dtype])
    results = peak.measure(quick=True, say=lambda line: None)
    assert results["bf16"]["skipped"] and results["fp32"]["matmul_64"]["median"] > 0
    speeds[peak.DTYPES["bf16"]] = 200.0
    assert peak.measure(quick=True, say=lambda line: None)["bf16"]["matmul_64"]["median"] > 0


def test_errors_are_recorded_in_one_line_without_folders():
    error = sentence(ImportError("libx.so: cannot open /home/ann/lib/libx.so: no such file\nmore"))
    assert error == "ImportError: libx.so: cannot open libx.so: no such file"


def test_requirements_are_the_extra_of_pyproject(tmp_path):
    (tmp_path / "pyproject.toml").write_text('[project.optional-dependencies]\nbench = ["keras>=3", "skorch"]\n')
    assert environment.requirements(tmp_path) == ["keras>=3", "skorch"]


def test_a_library_that_is_not_installed_is_one_sentence(monkeypatch):
    monkeypatch.setattr(environment, "FOLDER", environment.FOLDER / "nowhere")
    monkeypatch.setattr(libraries.environment, "interpreter", lambda: save.os.sys.executable)
    said = []
    workers, errors = libraries.start(["no-such-library"], 1, said.append)
    assert workers == {} and errors == {"no-such-library": environment.ADVICE}
    assert "make bench" in said[0]
    rows = libraries.compare([("no-such-library", libraries.Task("example", 64, 640))], {}, errors, 1, 0, said.append)
    assert rows[0]["error"] == environment.ADVICE and "images_per_s" not in rows[0]


def stats(median, disturbed=False):
    spread = {"median": median, "low": 0.9 * median, "high": 1.1 * median}
    return spread, {"repeats": 5, "rejected": 0, "foreign": 0.3 if disturbed else 0.02, "disturbed": disturbed}


def row(name, speed, batch=64, workers=0, **more):
    spread, quiet = stats(speed, **more)
    task = {"name": name, "batch": batch, "workers": workers, "dtype": "float32"}
    return task | {"images_per_s": spread, "gflops": speed * 0.05} | quiet


@pytest.fixture
def recorded(tmp_path):
    """A folder with a measurement that has every part, with made-up numbers."""
    score = {"accuracy": {"mean": 0.9908, "low": 0.989, "high": 0.992}, "reached": 4, "runs": [], "settings": {}}
    ours = {goal: {"seconds": stats(t)[0]} | score | stats(t)[1] for goal, t in {"99.0": 1.5, "99.4": 3.2}.items()}
    failed = {"name": "fastai", "batch": 64, "workers": 0, "dtype": "float32", "error": environment.ADVICE}
    rows = [
        row("ours", 2400),
        row("ours", 3000, batch=256),
        row("loop", 1600),
        row("keras", 1400, disturbed=True),
        failed,
    ]
    networks = {
        "example": {"mflop": 50.0, "rows": [*rows, failed]},
        "mlp": {"mflop": 1.6, "rows": [row("ours", 28000), row("loop", 10000), row("loop", 8000, workers=4)]},
    }
    results = {
        "peak": {"fp32": {"matmul_2048": stats(130.0)[0]}, "bf16": {"skipped": "slow"}},
        "mnist": {
            "ours": ours,
            "official": [{"seed": 1, "epochs": [[40.0, 0.984, 0.0], [41.0, 0.9901, 0.0]], "seconds_to_99": 81.0}],
            "times_sooner": 54.0,
        },
        "cifar": {"ours": {"15 s": {"epochs": 1, "seconds": stats(14.0)[0]} | score | stats(14.0)[1]}},
        "libraries": {"threads": 2, "versions": {"keras": "3.15.1"}, "networks": networks},
    }
    save.write("bench", results, "make bench", folder=tmp_path)
    return tmp_path


def test_the_table_says_what_was_recorded(recorded, capsys):
    table.show(recorded, picture=recorded / "bench.png")
    printed = capsys.readouterr().out
    assert "keras 3.15.1" in printed.splitlines()[0] and save.hardware()["device"] in printed.splitlines()[0]
    assert "| this course, 99.4 % | 3.20 s [2.88..3.52] | mean 99.08% of 5 seeds |" in printed
    assert "| official example, 99.0 % | 81.0 s | best 99.01% in 2 epochs, seed 1 |" in printed
    assert "54 times sooner" in printed
    assert "| this course | 64 | 2,400 [2,160..2,640] | 92% |" in printed  # 2,400 * 0.05 of 130 GFLOP/s
    assert "| Keras (torch) | 64 | 1,400 [1,260..1,540] | 54% | disturbed: others used up to 30%" in printed
    assert "130 [117..143] in fp32." in printed
    assert "| this course, 15 s (1 epoch) | 14.0 s" in printed
    assert f"| fastai | 64 | – |  | {environment.ADVICE} |" in printed
    assert "| DataLoader per sample, 4 workers | 64 | 8,000" in printed
    assert 5_000 < (recorded / "bench.png").stat().st_size < 100_000


def test_an_example_that_did_not_get_there_is_told_so(recorded, capsys):
    (one,) = measurements.load("bench", recorded)
    part = one.results["mnist"]
    part["official"][0] |= {"epochs": [[40.0, 0.984, 0.0]], "seconds_to_99": None}
    part["times_sooner"] = None
    printed = table.markdown(one)
    assert "| official example, 99.0 % | not in 40.0 s | best 98.40% in 1 epochs, seed 1 |" in printed
    assert "sooner" not in printed


def test_without_a_measurement_the_table_says_how_to_make_one(tmp_path, capsys):
    table.show(tmp_path)
    assert "make bench" in capsys.readouterr().out


def test_ours_and_the_plain_loop_train_and_are_timed():
    contestants = pytest.importorskip("tools.bench.contestants")
    for name in ("ours", "loop"):
        assert contestants.run(name, contestants.Task("mlp", batch=16, images=160)) > 0
    with pytest.raises(RuntimeError, match="ask for more images"):
        contestants.run("ours", contestants.Task("mlp", batch=16, images=16))


def test_the_course_trains_what_the_example_trains():
    from tools.bench.official import Example
    from torchcourse import models

    shapes = [p.shape for p in Example().parameters()]
    assert sum(s.numel() for s in shapes) == 1_199_882 and shapes == [
        p.shape for p in models.MnistExample().parameters()
    ]


def test_the_per_sample_data_set_is_what_the_course_normalizes():
    from tools.bench.persample import dataset
    from torchcourse import data, models

    images = data.load("mnist", "test").subset(slice(4))
    image, label = dataset(images)[2]
    ours = models.Normalize("mnist")(images.images)[2]
    assert label == images.labels[2] and (image - ours).abs().max() < 1e-2
    image, label = dataset(data.load("cifar10", "test").subset(slice(4)))[3]
    assert image.shape == (3, 32, 32) and -1 <= image.min() < image.max() <= 1


def test_the_official_example_learns(capsys):
    from tools.bench import official
    from torchcourse import data

    train, test = data.load("mnist", "train").subset(slice(640)), data.load("mnist", "test").subset(slice(100))
    (first, second) = official.epochs(1, 2, train, test)
    assert first["epoch"] == 1 and first["seconds"] > 0 and second["accuracy"] > 0.3


def test_the_page_shows_the_recorded_numbers():
    """docs/bench.md is written by `make bench`, and by nobody else."""
    newest = max(measurements.load("bench"), key=lambda measurement: measurement.date)
    assert table.PICTURE.with_suffix(".md").read_text() == table.page(newest)
