"""What `make bench` recorded: printed as a table in Markdown, and written to docs/bench.md with a picture."""

import io
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tools.course import ROOT
from torchcourse import measurements

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
    """Print the table of the newest measurement; where there is enough for a picture, write picture and page too."""
    found = measurements.load("bench", folder)
    if not found:
        print("There is no measurement yet. Make one with: make bench")
        return
    newest = max(found, key=lambda measurement: measurement.date)
    print(markdown(newest))
    drawable = "mnist" in newest.results and "example" in newest.results.get("libraries", {}).get("networks", {})
    if picture and drawable:
        draw(newest, picture)
        picture.with_suffix(".md").write_text(page(newest))
        print(f"Written: {picture.name} and {picture.with_suffix('.md').name}")


def page(measurement: measurements.Measurement) -> str:
    """docs/bench.md: the table and its picture."""
    head = "# The course beside other libraries\n\nWritten by `make bench`; the numbers are those of one machine.\n\n"
    picture = "![Left: images per second by library. Right: seconds to a test accuracy on MNIST.](bench.png)\n\n"
    return head + picture + markdown(measurement)


def markdown(measurement: measurements.Measurement) -> str:
    """The whole table, with a first line that says on what and when."""
    results, about = measurement.results, measurement.hardware
    versions = measurement.versions | results.get("libraries", {}).get("versions", {})
    using = ", ".join(f"{name} {version}" for name, version in versions.items() if name not in ("python", "numpy"))
    blocks = [f"Measured on {about['device']} ({about['vector']}), {measurement.date}, with {using}. Median [range]."]
    for name, block in (("mnist", mnist), ("cifar", cifar), ("libraries", libraries)):
        if name in results:
            blocks += block(results)
    return "\n\n".join(blocks) + "\n"


def mnist(results: dict[str, Any]) -> Iterator[str]:
    """Seconds of training to a test accuracy on MNIST."""
    part = results["mnist"]
    rows = []
    for goal, ours in part["ours"].items():
        score = f"mean {ours['accuracy']['mean']:.2%} of {ours['repeats']} seeds"
        rows.append([f"this course, {goal} %", spread(ours["seconds"], " s"), score, note(ours)])
    for example in part["official"]:
        seconds = sum(step[0] for step in example["epochs"])
        best = max(step[1] for step in example["epochs"])
        epochs = f"{len(example['epochs'])} epochs, seed {example['seed']}"
        reached = f"{number(seconds)} s" if example["seconds_to_99"] else f"not in {number(seconds)} s"
        rows.append(["official example, 99.0 %", reached, f"best {best:.2%} in {epochs}", ""])
    yield table(["MNIST", "seconds of training", "test accuracy", ""], rows)
    if part["times_sooner"]:
        yield f"99.0 % is reached {part['times_sooner']:.0f} times sooner than by the official example."


def cifar(results: dict[str, Any]) -> Iterator[str]:
    """Accuracy and seconds on CIFAR-10."""
    rows = []
    for goal, ours in results["cifar"]["ours"].items():
        score = f"mean {ours['accuracy']['mean']:.2%} of {ours['repeats']} seeds"
        epochs = f"{ours['epochs']} epoch{'s' if ours['epochs'] > 1 else ''}"
        rows.append([f"this course, {goal} ({epochs})", spread(ours["seconds"], " s"), score, note(ours)])
    yield table(["CIFAR-10", "seconds of training", "test accuracy", ""], rows)


def libraries(results: dict[str, Any]) -> Iterator[str]:
    """Images per second on identical networks, and the share of the matrix peak."""
    peak = results.get("peak", {})
    if is_peak(peak.get("fp32")):
        found = [f"{spread(values['matmul_2048'])} in {kind}" for kind, values in peak.items() if is_peak(values)]
        yield f"Matrix peak of this machine, products of 2048×2048, GFLOP/s: {', '.join(found)}."
    for network, part in results["libraries"]["networks"].items():
        rows = []
        for row in part["rows"]:
            workers = f", {row['workers']} workers" if row["workers"] else ""
            name = NAMES[row["name"]] + workers + ("" if row["dtype"] == "float32" else f", {row['dtype']}")
            if "error" in row:
                rows.append([name, str(row["batch"]), "–", "", row["error"]])
                continue
            share = peak_share(row, peak)
            rows.append([name, str(row["batch"]), spread(row["images_per_s"]), share, note(row)])
        yield table([NETWORKS[network], "batch", "images/s", "of matrix peak", ""], rows)


def is_peak(entry: Any) -> bool:
    """Whether an entry of the part `peak` holds measurements (others are its date, or why a data type was skipped)."""
    return isinstance(entry, dict) and "matmul_2048" in entry


def peak_share(row: dict[str, Any], peak: dict[str, Any]) -> str:
    """Which part of the machine's matrix peak, in the row's data type, its training reaches."""
    kind = {"float32": "fp32", "bfloat16": "bf16"}[row["dtype"]]
    return f"{row['gflops'] / peak[kind]['matmul_2048']['median']:.0%}" if is_peak(peak.get(kind)) else ""


def note(row: dict[str, Any]) -> str:
    """A word where the numbers deserve less trust."""
    return f"disturbed: others used up to {row['foreign']:.0%} of the processor" if row["disturbed"] else ""


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
    """Two panels: images per second by library on one network, seconds to 99.0 % MNIST on a log axis."""
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
    """Points on a log axis of seconds: our goals, and the official example. (The length of a bar would say nothing.)"""
    points = [(f"this course, {goal} %", ours["seconds"], colors[0]) for goal, ours in part["ours"].items()]
    for example in part["official"]:
        seconds = sum(step[0] for step in example["epochs"])
        reached = "99.0 %" if example["seconds_to_99"] else f"{100 * max(step[1] for step in example['epochs']):.2f} %"
        points.append((f"official example, {reached}", dict.fromkeys(("median", "low", "high"), seconds), "#606060"))
    points.reverse()
    for place, (_, seconds, color) in enumerate(points):
        ax.errorbar(seconds["median"], place, xerr=whiskers(seconds), color=color, marker="o", ms=8, elinewidth=2)
        ax.text(1.5 * seconds["high"], place, f"{number(seconds['median'])} s", va="center", fontsize=9)
    ax.set_yticks(range(len(points)), [name for name, _, _ in points], fontsize=9)
    ax.set_ylim(-0.6, len(points) - 0.4)
    ax.set_xscale("log")
    ax.set_xlim(0.4 * min(s["low"] for _, s, _ in points), 7 * max(s["high"] for _, s, _ in points))
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
