"""What `make bench` recorded: docs/bench.md, with a picture."""

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

import matplotlib
import matplotlib.pyplot as plt

from tools.course import ROOT
from torchcourse import measurements, plots
from torchcourse.recipes import mnist as recipe

PICTURE = ROOT / "docs" / "bench.png"
HEAD = """\
# What was measured

Written by `make bench`: a section for each machine. Beside the course stands PyTorch's official MNIST example.

![Seconds of training and accuracy on MNIST: this course and the official example.](bench.png)

"""


def show(folder: Path = measurements.FOLDER, picture: Path = PICTURE) -> None:
    """Write page and picture, if there is anything to show."""
    found = measurements.load("bench", folder)
    picture.with_suffix(".md").write_text(page(found))
    drawable = [m for m in found if m.results.get("mnist", {}).get("official")]
    if drawable:
        draw(max(drawable, key=lambda m: m.date), picture)  # the latest: the recipe may have changed
    print(f"{len(found)} machines in {picture.with_suffix('.md')}")


def page(found: list[measurements.Measurement]) -> str:
    """docs/bench.md: the picture, and the tables of each machine."""
    pages = [f"## {m.hardware['device']}\n\n{markdown(m)}" for m in found]
    return HEAD + "\n".join(pages + [gpt(m) for m in measurements.load("gpt")])


def gpt(measurement: measurements.Measurement) -> str:
    """The language model beside nanoGPT's on one machine."""
    results, about = measurement.results, f"{measurement.hardware['device']}, torch {measurement.versions['torch']}"
    lines = [f"## A small language model, {about}, {measurement.date}", ""]
    lines += [f"The same {results['tokens']:,} tokens, optimizer, and schedule, in turns.", ""]
    lines += ["| model | parameters | tokens/s | bits per byte, held out |", "|:---|---:|---:|---:|"]
    for name, speed in results["tokens_per_s"].items():
        each = f"{speed['median']:,.0f} ({speed['low']:,.0f} to {speed['high']:,.0f})"
        bits = results["bits_per_byte"][name]
        who = "this course" if name == "ours" else name
        lines.append(f"| {who} | {results['parameters'][name]:,} | {each} | {bits:.2f} |")
    return "\n".join(lines) + "\n"


def markdown(measurement: measurements.Measurement) -> str:
    """The tables of one machine, after a line that says on what and when."""
    results, about = measurement.results, measurement.hardware
    using = ", ".join(
        f"{name} {version}" for name, version in measurement.versions.items() if name not in ("python", "numpy")
    )
    vector = f" ({about['vector']})" if about["kind"] == "cpu" else ""
    dates = sorted({part.get("date") or measurement.date for part in results.values()})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    blocks = [f"Measured on {about['device']}{vector}, {when}, with {using}. Median [range]."]
    for name, block in (("mnist", mnist), ("cifar", cifar), ("peak", peak)):
        if name in results:
            blocks += block(results)
    return "\n\n".join(blocks) + "\n"


def mnist(results: dict[str, Any]) -> list[str]:
    """Seconds of training and the accuracy they bring on MNIST."""
    rows, reached = [], []
    for goal, ours in results["mnist"]["ours"].items():
        score = f"{mean(ours)}; {ours['reached']} of {ours['repeats']} reach {goal}%"
        rows.append([f"this course, {passes(ours)}", spread(ours["seconds"], " s"), score])
        reached += [ours["seconds"]["median"]] * (ours["accuracy"]["mean"] >= 0.99)
    sentences = []
    for example in results["mnist"]["official"]:
        seconds, scores = ([step[i] for step in example["epochs"]] for i in range(2))
        name = f"official example, {epochs(len(scores))}"
        rows.append([name, f"{number(sum(seconds))} s", f"best epoch {max(scores):.2%}, seed {example['seed']}"])
        first = next((count for count, score in enumerate(scores, start=1) if score >= 0.99), None)
        if first and reached:
            sooner = sum(seconds[:first]) / min(reached)
            sentences.append(f"This course reaches 99.0% {sooner:.0f} times sooner than the official example.")
    if any(is_earlier(goal, ours["settings"]) for goal, ours in results["mnist"]["ours"].items()):
        sentences.append("The recipe has changed since: these are the times of an earlier one.")
    return [table(["MNIST", "seconds of training", "test accuracy"], rows), *sentences]


def is_earlier(goal: str, settings: dict[str, Any]) -> bool:
    """Whether a run was made with other settings than the recipe has now."""
    now = recipe.SETTINGS.get(goal)
    return now is None or settings != json.loads(json.dumps(asdict(now)))


def cifar(results: dict[str, Any]) -> list[str]:
    """Seconds of training and the accuracy they bring on CIFAR-10."""
    runs = sorted(results["cifar"]["ours"].values(), key=lambda ours: ours["epochs"])
    rows = [[f"this course, {epochs(ours['epochs'])}", spread(ours["seconds"], " s"), mean(ours)] for ours in runs]
    return [table(["CIFAR-10", "seconds of training", "test accuracy"], rows)]


def mean(ours: dict[str, Any]) -> str:
    """The accuracy over all seeds."""
    return f"mean {ours['accuracy']['mean']:.2%} over {ours['repeats']} seeds"


def passes(ours: dict[str, Any]) -> str:
    """How much of the data a run on MNIST sees."""
    seen = ours["settings"].get("seen", ours["settings"].get("images"))
    return epochs(round(seen / 60_000, 2))


def epochs(count: float) -> str:
    """A number of epochs, in words."""
    return f"{count:g} epoch{'s' if count != 1 else ''}"


def peak(results: dict[str, Any]) -> list[str]:
    """How fast the machine multiplies matrices: what a network's speed is compared with."""
    speeds = {kind: results["peak"].get(kind, {}).get("matmul_2048") for kind in ("fp32", "bf16")}
    found = ", ".join(f"{spread(speed)} in {kind}" for kind, speed in speeds.items() if speed)
    return [f"Matrix peak of this machine, products of 2048×2048, GFLOP/s: {found}."]


def table(head: list[str], rows: list[list[str]]) -> str:
    """Rows of Markdown; the second column holds numbers."""
    rule = ["---", "---:"] + ["---"] * (len(head) - 2)
    return "\n".join(f"| {' | '.join(line)} |" for line in [head, rule, *rows])


def spread(value: dict[str, float], unit: str = "") -> str:
    """median [low..high]"""
    return f"{number(value['median'])}{unit} [{number(value['low'])}..{number(value['high'])}]"


def number(value: float) -> str:
    """Three digits that matter, thousands with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(measurement: measurements.Measurement, path: Path) -> None:
    """Seconds of training and accuracy on MNIST, as points on a log axis: the length of a bar would say nothing."""
    results = measurement.results["mnist"]
    matplotlib.use("Agg")
    plots.use_style()
    figure, ax = plt.subplots(figsize=(8, 3))
    points = [(f"this course, {passes(o)}", o["seconds"]["median"], mean(o)) for o in results["ours"].values()]
    for example in results["official"]:
        seconds, scores = ([step[i] for step in example["epochs"]] for i in range(2))
        points.append((f"official example, {epochs(len(scores))}", sum(seconds), f"best {max(scores):.2%}"))
    for name, seconds, score in reversed(points):
        ax.plot(seconds, name, "o", markersize=8, color=plots.COLORS[0] if name.startswith("this") else "#606060")
        ax.annotate(score.partition(" over")[0], (seconds, name), (8, -4), textcoords="offset points", fontsize=9)
    ax.set(title="MNIST: training time and test accuracy", xlabel="seconds of training (log scale)", xscale="log")
    ax.margins(x=0.35, y=0.15)
    ax.set_axisbelow(True)
    ax.grid(axis="y", visible=False)
    ax.xaxis.set_major_formatter("{x:,g}")
    figure.supxlabel(f"Measured on {measurement.label}, real data.", fontsize=9)
    figure.savefig(path, dpi=110)
    plt.close(figure)
