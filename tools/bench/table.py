"""What `make bench` recorded: printed as a table in Markdown, and written to docs/bench.md with a picture."""

import io
import json
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tools.course import ROOT
from torchcourse import measurements
from torchcourse.recipes import mnist as recipe

PICTURE = ROOT / "docs" / "bench.png"
NAMES = {
    "ours": "this course",
    "loop": "DataLoader per sample",
    "lightning": "PyTorch Lightning",
    "accelerate": "Accelerate",
    "skorch": "skorch",
    "fastai": "fastai",
    "keras": "Keras (torch)",
}
GREY = "#B0B0B0"
NETWORKS = {
    "example": "official MNIST example's network",
    "mlp": "two linear layers (784-512-10)",
    "tutorial": "CIFAR-10 tutorial's network",
}


def show(folder: Path = measurements.FOLDER, picture: Path | None = PICTURE) -> None:
    """Print the tables of all machines; where there is enough for a picture, write picture and page too."""
    found = measurements.load("bench", folder)
    if not found:
        print("There is no measurement yet. Make one with: make bench")
        return
    print("\n\n".join(map(markdown, found)))
    if picture and (drawn := [m for m in found if drawable(m)]):
        draw(max(drawn, key=lambda m: m.date), picture)  # the latest: the recipe may have changed
        picture.with_suffix(".md").write_text(page(found))
        print(f"Written: {picture.name} and {picture.with_suffix('.md').name}")


def drawable(measurement: measurements.Measurement) -> bool:
    """Whether a measurement has what both panels of the picture show."""
    results = measurement.results
    return "mnist" in results and "example" in results.get("libraries", {}).get("networks", {})


def page(found: list[measurements.Measurement]) -> str:
    """docs/bench.md: the picture, and the tables of each machine."""
    head = "# The course compared with other libraries\n\nWritten by `make bench`: a section for each machine.\n\n"
    picture = "![Left: images per second by library. Right: seconds of training and accuracy on MNIST.](bench.png)\n\n"
    return head + picture + "\n".join(f"## {m.hardware['device']}\n\n{markdown(m)}" for m in found)


def markdown(measurement: measurements.Measurement) -> str:
    """The tables of one machine, after a line that says on what and when."""
    results, about = measurement.results, measurement.hardware
    versions = measurement.versions | results.get("libraries", {}).get("versions", {})
    using = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in ("python", "numpy"))
    vector = f" ({about['vector']})" if about["kind"] == "cpu" else ""
    dates = sorted({part.get("date") or measurement.date for part in results.values()})
    when = " to ".join(dict.fromkeys((dates[0], dates[-1])))
    blocks = [f"Measured on {about['device']}{vector}, {when}, with {using}. Median [range]."]
    for name, block in (("mnist", mnist), ("cifar", cifar), ("libraries", libraries)):
        if name in results:
            blocks += block(results)
    return "\n\n".join(blocks) + "\n"


def mnist(results: dict[str, Any]) -> Iterator[str]:
    """Seconds of training and the accuracy they bring on MNIST."""
    rows = []
    for goal, ours in results["mnist"]["ours"].items():
        score = f"{accuracy(ours)}; {ours['reached']} of {ours['repeats']} reach {goal}%"
        rows.append([f"this course, {passes(ours)}", spread(ours["seconds"], " s"), score])
    for example in results["mnist"]["official"]:
        best = max(step[1] for step in example["epochs"])
        name = f"official example, {epochs(len(example['epochs']))}"
        seconds = sum(step[0] for step in example["epochs"])
        rows.append([name, f"{number(seconds)} s", f"best epoch {best:.2%}, seed {example['seed']}"])
    yield table(["MNIST", "seconds of training", "test accuracy"], rows)
    if sooner := times_sooner(results["mnist"]):
        yield f"This course reaches 99.0% {sooner:.0f} times sooner than the official example."
    if any(is_earlier(goal, ours["settings"]) for goal, ours in results["mnist"]["ours"].items()):
        yield "The recipe has changed since: these are the times of an earlier one."


def is_earlier(goal: str, settings: dict[str, Any]) -> bool:
    """Whether a run was made with other settings than the recipe has now."""
    now = recipe.SETTINGS.get(goal)
    return now is None or settings != json.loads(json.dumps(asdict(now)))


def times_sooner(part: dict[str, Any], goal: float = 0.99) -> float | None:
    """How many times longer the official example needs to the goal, if both reach it."""
    ours = [row["seconds"]["median"] for row in part["ours"].values() if row["accuracy"]["mean"] >= goal]
    for example in part["official"]:
        for count, step in enumerate(example["epochs"], start=1):
            if step[1] >= goal and ours:
                return sum(seconds for seconds, *_ in example["epochs"][:count]) / min(ours)
    return None


def cifar(results: dict[str, Any]) -> Iterator[str]:
    """Seconds of training and the accuracy they bring on CIFAR-10."""
    runs = sorted(results["cifar"]["ours"].values(), key=lambda ours: ours["epochs"])
    rows = [[f"this course, {epochs(ours['epochs'])}", spread(ours["seconds"], " s"), accuracy(ours)] for ours in runs]
    yield table(["CIFAR-10", "seconds of training", "test accuracy"], rows)


def accuracy(ours: dict[str, Any]) -> str:
    """The mean over seeds."""
    return f"mean {ours['accuracy']['mean']:.2%} over {ours['repeats']} seeds"


def passes(ours: dict[str, Any]) -> str:
    """How much of the data a run on MNIST sees."""
    seen = ours["settings"].get("seen", ours["settings"].get("images"))
    return epochs(round(seen / 60_000, 2))


def epochs(count: float) -> str:
    """A number of epochs, in words."""
    return f"{count:g} epoch{'s' if count != 1 else ''}"


def libraries(results: dict[str, Any]) -> Iterator[str]:
    """Images per second on identical networks, and the share of the matrix peak."""
    peak = results.get("peak", {})
    if is_peak(peak.get("fp32")):
        found = [f"{spread(values['matmul_2048'])} in {kind}" for kind, values in peak.items() if is_peak(values)]
        yield f"Matrix peak of this machine, products of 2048×2048, GFLOP/s: {', '.join(found)}."
    for network, part in results["libraries"]["networks"].items():
        rows = []
        for row in part["rows"]:
            workers = f", {row['workers']} worker{'s' * (row['workers'] > 1)}" if row["workers"] else ""
            name = NAMES[row["name"]] + workers + ("" if row["dtype"] == "float32" else f", {row['dtype']}")
            if "error" in row:
                rows.append([name, str(row["batch"]), "–", "", row["error"]])
                continue
            share = peak_share(row, peak)
            rows.append([name, str(row["batch"]), spread(row["images_per_s"]), share, ""])
        yield table([NETWORKS[network], "batch", "images/s", "of matrix peak", ""], rows)


def is_peak(entry: Any) -> bool:
    """Whether an entry of the part `peak` holds measurements (others are its date, or why a data type was skipped)."""
    return isinstance(entry, dict) and "matmul_2048" in entry


def peak_share(row: dict[str, Any], peak: dict[str, Any]) -> str:
    """Which part of the machine's matrix peak, in the row's data type, its training reaches."""
    kind = {"float32": "fp32", "bfloat16": "bf16"}[row["dtype"]]
    return f"{row['gflops'] / peak[kind]['matmul_2048']['median']:.0%}" if is_peak(peak.get(kind)) else ""


def table(head: list[str], rows: list[list[str]]) -> str:
    """Rows of Markdown; a column that is empty everywhere is left out."""
    keep = [i for i in range(len(head)) if any(row[i] for row in rows)]
    lines = [head, ["---" if i == 0 else "---:" if i < len(head) - 1 else "---" for i in range(len(head))], *rows]
    return "\n".join("| " + " | ".join(line[i] for i in keep) + " |" for line in lines)


def spread(value: dict[str, float], unit: str = "") -> str:
    """median [low..high]"""
    return f"{number(value['median'])}{unit} [{number(value['low'])}..{number(value['high'])}]"


def number(value: float) -> str:
    """Three digits that matter, thousands with commas."""
    return f"{value:,.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def draw(measurement: measurements.Measurement, path: Path) -> None:
    """Two panels: images per second by library on one network, seconds of training on MNIST on a log axis."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt
    from PIL import Image

    from torchcourse import plots

    plots.use_style()
    figure, (left, right) = plt.subplots(1, 2, figsize=(10, 3.8), width_ratios=(3, 2))
    speed_panel(left, measurement.results["libraries"]["networks"]["example"]["rows"], plots.COLORS)
    time_panel(right, measurement.results["mnist"], plots.COLORS)
    figure.supxlabel(f"Measured on {measurement.label}, real data. Thin lines: range of the repeats.", fontsize=9)
    full = io.BytesIO()
    figure.savefig(full, format="png", dpi=130, facecolor="white")
    plt.close(figure)
    path.parent.mkdir(parents=True, exist_ok=True)
    small = Image.open(full).convert("RGB").quantize(256, dither=Image.Dither.NONE)
    small.save(path, format="png", optimize=True)


def speed_panel(ax, rows: list[dict[str, Any]], colors: list[str]) -> None:
    """Bars of images per second, ours in color, the others grey."""
    rows = sorted((row for row in rows if "error" not in row), key=lambda row: row["images_per_s"]["median"])
    names = []
    for place, row in enumerate(rows):
        speed = row["images_per_s"]
        color = colors[0] if row["name"] == "ours" else GREY
        ax.barh(place, speed["median"], color=color, xerr=whiskers(speed), error_kw={"linewidth": 1})
        ax.text(speed["high"], place, f"  {speed['median']:,.0f}", va="center", fontsize=9)
        names.append(f"{NAMES[row['name']]}, batch {row['batch']}{', bf16' if row['dtype'] == 'bfloat16' else ''}")
    ax.set_yticks(range(len(rows)), names, fontsize=9)
    ax.set_xlim(0, 1.18 * max(row["images_per_s"]["high"] for row in rows))
    ax.xaxis.set_major_formatter("{x:,.0f}")
    finish(ax, "training images per second", "The network of the official MNIST example")


def time_panel(ax, part: dict[str, Any], colors: list[str]) -> None:
    """Points on a log axis of seconds: our runs, and the official example. (The length of a bar would say nothing.)"""
    points = [
        (f"this course, {passes(ours)}", ours["seconds"], ours["accuracy"]["mean"], colors[0])
        for ours in part["ours"].values()
    ]
    for example in part["official"]:
        steps = example["epochs"]
        seconds = dict.fromkeys(("median", "low", "high"), sum(step[0] for step in steps))
        points.append((f"official example, {epochs(len(steps))}", seconds, max(step[1] for step in steps), "#606060"))
    points.reverse()
    for place, (_, seconds, score, color) in enumerate(points):
        ax.errorbar(seconds["median"], place, xerr=whiskers(seconds), color=color, marker="o", ms=8, elinewidth=2)
        told = f"{score:.2%} in {number(seconds['median'])} s"
        ax.text(1.5 * seconds["high"], place, told, va="center", fontsize=9)
    ax.set_yticks(range(len(points)), [name for name, *_ in points], fontsize=9)
    ax.set_ylim(-0.6, len(points) - 0.4)
    ax.set_xscale("log")
    ax.set_xlim(0.4 * min(s["low"] for _, s, *_ in points), 200 * max(s["high"] for _, s, *_ in points))
    ax.xaxis.set_major_formatter("{x:g}")
    finish(ax, "seconds of training (log scale)", "MNIST test accuracy")


def whiskers(value: dict[str, float]) -> list[list[float]]:
    """The range in the form that matplotlib takes: below and above the median."""
    return [[value["median"] - value["low"]], [value["high"] - value["median"]]]


def finish(ax, xlabel: str, title: str) -> None:
    """What both panels have in common."""
    ax.set_axisbelow(True)
    ax.grid(axis="y", visible=False)
    ax.tick_params(axis="x", labelsize=9)
    ax.set_xlabel(xlabel, fontsize=10)
    ax.set_title(title, fontsize=11)
