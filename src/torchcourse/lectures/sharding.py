"""Sums and pictures of sharded training: bytes on each rank, bytes on the way, and when a pipeline waits.

    sharding.footprint(7e9, ranks=8, kind="fsdp")      what each rank holds, in bytes
    sharding.sent(7e9, ranks=8, kind="fsdp")           the messages of one step
    sharding.fewest(7e9, device=80e9, kind="fsdp")     how many devices it takes
    sharding.pipeline(4, 8, "1F1B")                    which stage works on what, when

`torchcourse plan` prints the first three. Tests compare them with real DTensors.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from torchcourse.errors import CourseError
from torchcourse.plots import COLORS

# What is divided by the number of ranks.
KINDS = {
    "ddp": "nothing is divided; with gradient_as_bucket_view=True, else its buckets hold the gradients twice",
    "zero1": "the optimizer's state is divided, as ZeroRedundancyOptimizer does it",
    "zero2": "weights whole from forward to backward, the rest divided: reshard_after_forward=False",
    "fsdp": "everything is divided; only a few blocks are whole at any moment",
}
NAMES = {"ddp": "DDP", "zero1": "ZeRO-1", "zero2": "ZeRO-2", "fsdp": "FSDP"}  # as figures show them
LOOK = {"whole": ("#BFE0F5", "////"), "shard": ("#F2F2F2", ""), "F": ("#A9D3EE", ""), "B": ("#F6C9A8", "////")}


@dataclass(frozen=True)
class Precision:
    """Bytes for each number: of weights, gradients, each part of the optimizer's state; in products; in messages."""

    weights: int
    gradients: int
    state: int
    computing: int
    reducing: int


PRECISIONS = {
    "fp32": Precision(4, 4, 4, 4, 4),
    "mixed": Precision(4, 4, 4, 2, 4),  # bf16 products and all-gathers; weights and sums in fp32
    "bf16": Precision(2, 2, 2, 2, 2),
}
OPTIMIZERS = {"adamw": 2, "momentum": 1, "sgd": 0}  # numbers of state for each parameter


# ---------------------------------------------------------------------------------------------------------------------
# Sums


@dataclass(frozen=True)
class Footprint:
    """Bytes on one rank, activations apart."""

    weights: float
    gradients: float
    optimizer: float
    whole: float  # for a moment: what has been gathered for computing, and gradients on their way

    @property
    def total(self) -> float:
        """All of them: the peak, without activations."""
        return sum(astuple(self))


def footprint(
    parameters: float,
    ranks: int = 1,
    kind: str = "fsdp",
    precision: str = "fp32",
    optimizer: str = "adamw",
    blocks: int = 32,
) -> Footprint:
    """Bytes that each rank holds in training, activations apart.

    parameters: of the whole model. ranks: that share it. kind: "ddp", "zero1", "zero2" or "fsdp".
    blocks: equal parts, each gathered on its own. At FSDP's peak, in the backward pass, four are whole: the weights of
        the block that computes, those of the next one, fetched early, the gradients of the first, and those of the
        block before it, which are on their way.
    """
    p, state = _checked(parameters, ranks, kind, precision, optimizer, blocks)
    sharded = {"ddp": "", "zero1": "o", "zero2": "wgo", "fsdp": "wgo"}[kind]

    def part(what: str, each: int) -> float:
        return parameters * each / (ranks if what in sharded else 1)

    if kind == "fsdp":
        whole = parameters / blocks * (min(3, blocks) * p.computing + p.reducing)
    elif kind == "zero2":
        whole = parameters * p.computing + parameters / blocks * p.reducing
    else:  # copies in the format of the products, as autocast makes them
        whole = parameters * p.computing if p.computing != p.weights else 0
    if ranks == 1 and kind != "ddp":  # nothing to gather: the shard is the whole
        whole = parameters * p.computing if p.computing != p.weights else 0
    return Footprint(part("w", p.weights), part("g", p.gradients), part("o", p.state * state), whole)


@dataclass(frozen=True)
class Message:
    """The collectives of one kind in a step."""

    name: str
    count: int
    bytes: float  # of the whole tensors
    sent: float  # by each rank
    at_most: bool = False  # the count is a bound


def sent(
    parameters: float, ranks: int = 1, kind: str = "fsdp", precision: str = "fp32", blocks: int = 32
) -> list[Message]:
    """The messages of one training step.

    blocks: equal parts that `fully_shard` was called on. The root, with what is in no block, is one group more; it
    stays whole after its forward pass and is gathered once.
    """
    p, _ = _checked(parameters, ranks, kind, precision, "adamw", blocks)
    if ranks == 1:
        return []
    share = (ranks - 1) / ranks

    def message(name: str, count: int, size: float, ways: int = 1) -> Message:
        return Message(name, count, size, ways * share * size, at_most=kind in ("ddp", "zero1"))

    gradients = parameters * p.gradients if kind in ("ddp", "zero1") else parameters * p.reducing
    if kind in ("ddp", "zero1"):
        # DDP closes a bucket once it has 25 MiB (the first one earlier, so that the first message leaves soon).
        messages = [message("all-reduce", 1 + math.ceil(gradients / (25 * 2**20)), gradients, ways=2)]
        return messages + ([message("broadcast", ranks, parameters * p.weights)] if kind == "zero1" else [])
    times = 2 if kind == "fsdp" else 1  # for the forward pass, and again for the backward pass
    return [
        message("all-gather", times * blocks + 1, times * parameters * p.computing),
        message("reduce-scatter", blocks + 1, gradients),
    ]


def fewest(
    parameters: float,
    device: float,
    kind: str = "fsdp",
    precision: str = "fp32",
    optimizer: str = "adamw",
    blocks: int = 32,
    activations: float = 0,
    usable: float = 0.9,
) -> int | None:
    """The smallest number of devices that the training fits on, None if no number is enough.

    device: its memory in bytes; usable: the part of it that tensors can have, since the context of the device, the
    buffers of its messages and gaps take the rest. activations: bytes of them on each rank.
    """
    room = device * usable - activations

    def total(ranks: int) -> float:
        return footprint(parameters, ranks, kind, precision, optimizer, blocks).total

    if total(1) <= room:
        return 1
    if kind == "ddp":
        return None
    fixed = total(2**60)  # what no number of ranks divides
    if fixed >= room:
        return None
    ranks = max(2, math.ceil((total(2) - fixed) * 2 / (room - fixed)))
    return ranks if total(ranks) <= room else ranks + 1  # rounding


def _checked(
    parameters: float, ranks: int, kind: str, precision: str, optimizer: str, blocks: int
) -> tuple[Precision, int]:
    for what, value, known in (
        ("kind of sharding", kind, KINDS),
        ("precision", precision, PRECISIONS),
        ("optimizer", optimizer, OPTIMIZERS),
    ):
        if value not in known:
            raise CourseError(f"There is no {what} {value!r} here: take one of {', '.join(known)}.")
    for what, value in (("parameters", parameters), ("ranks", ranks), ("blocks", blocks)):
        if not 1 <= value < math.inf:
            raise CourseError(f"The number of {what} is {value}: it must be at least 1.")
    return PRECISIONS[precision], OPTIMIZERS[optimizer]


# ---------------------------------------------------------------------------------------------------------------------
# Pipelines


@dataclass(frozen=True)
class Job:
    """One stage's work on one microbatch: kind "F" (forward) or "B" (backward)."""

    stage: int
    microbatch: int
    kind: str
    start: float
    end: float


def orders(stages: int, microbatches: int, schedule: str) -> list[list[tuple[str, int]]]:
    """For each stage the order of its jobs, as ("F" or "B", microbatch).

    schedule: "GPipe" (all forward, then all backward) or "1F1B" (as soon as there is something to go back for, one
    backward after each forward).
    """
    if schedule not in ("GPipe", "1F1B"):
        raise CourseError(f'There is no schedule {schedule!r} here: take "GPipe" or "1F1B".')
    result = []
    for stage in range(stages):
        ahead = microbatches if schedule == "GPipe" else min(microbatches, stages - stage)
        order = [("F", number) for number in range(ahead)]
        for number in range(microbatches):
            order.append(("B", number))
            if ahead + number < microbatches:
                order.append(("F", ahead + number))
        result.append(order)
    return result


def pipeline(stages: int, microbatches: int, schedule: str, forward: float = 1, backward: float = 2) -> list[Job]:
    """Play a schedule through: each job starts when its stage is free and what it needs has arrived.

    forward, backward: time of one job, in any unit. Messages take no time here.
    """
    waiting = [list(order) for order in orders(stages, microbatches, schedule)]
    done: dict[tuple[str, int, int], float] = {}  # (kind, stage, microbatch) -> end
    free = [0.0] * stages
    jobs: list[Job] = []
    while any(waiting):
        for stage, order in enumerate(waiting):
            while order:
                kind, number = order[0]
                neighbor = stage - 1 if kind == "F" else stage + 1
                if 0 <= neighbor < stages:
                    needed = done.get((kind, neighbor, number))
                else:  # the first stage has the images, the last one its own output
                    needed = 0.0 if kind == "F" else done.get(("F", stage, number))
                if needed is None:
                    break
                start = max(free[stage], needed)
                free[stage] = done[kind, stage, number] = start + (forward if kind == "F" else backward)
                jobs.append(Job(stage, number, kind, start, free[stage]))
                order.pop(0)
    return jobs


def idle_share(jobs: Sequence[Job]) -> float:
    """The part of all stages' time in which they wait: the bubble."""
    stages = 1 + max(job.stage for job in jobs)
    return 1 - sum(job.end - job.start for job in jobs) / (stages * max(job.end for job in jobs))


def held(jobs: Sequence[Job]) -> list[int]:
    """For each stage: of how many microbatches it keeps the activations at most."""
    result = []
    for stage in range(1 + max(job.stage for job in jobs)):
        now = most = 0
        for job in sorted((job for job in jobs if job.stage == stage), key=lambda job: job.start):
            now += 1 if job.kind == "F" else -1
            most = max(most, now)
        result.append(most)
    return result


# ---------------------------------------------------------------------------------------------------------------------
# Pictures


def draw_ranks(parameters: float, precision: str = "fp32", blocks: int = 32, most: int = 1024) -> Figure:
    """Bytes on each rank over the number of ranks, one line for each kind of sharding, with three devices' sizes."""
    ranks = [2**power for power in range(int(math.log2(most)) + 1)]
    figure, ax = plt.subplots(figsize=(7.5, 3.8))
    for kind in KINDS:
        gigabytes = [footprint(parameters, n, kind, precision, blocks=blocks).total / 1e9 for n in ranks]
        (line,) = ax.plot(ranks, gigabytes)
        end, look = (ranks[-1], gigabytes[-1]), {"va": "center", "color": line.get_color()}
        ax.annotate(NAMES[kind], end, (6, 0), textcoords="offset points", **look)
    for size in (141, 80, 40):
        ax.axhline(size, color="#888888", linewidth=1, linestyle=(0, (2, 2)))
        # On the right, where all lines are flat and far apart.
        ax.text(ranks[-1], size, f"{size} GB", ha="right", va="bottom", fontsize=9, color="#555555")
    ax.set(xscale="log", yscale="log", xlabel="ranks", ylabel="GB on each rank, without activations")
    ax.set_xticks(ranks, map(str, ranks))
    ax.minorticks_off()
    ax.set_yticks(ticks := [10, 20, 50, 100, 200, 500], map(str, ticks))
    ax.grid(axis="x", visible=False)
    return figure


def draw_whole(panels: Mapping[str, Sequence[tuple[str, Mapping[str, bool]]]]) -> Figure:
    """Which groups of weights are whole at which moment of a step, one panel for each run.

    panels: title -> moments in order, each a name and {group: whole?}.
    """
    figure, axes = plt.subplots(len(panels), 1, figsize=(8.6, 0.7 + 1.25 * len(panels)), sharex=True, squeeze=False)
    for ax, (title, moments) in zip(axes[:, 0], panels.items(), strict=True):
        groups = list(moments[0][1])
        for column, (_, state) in enumerate(moments):
            for row, group in enumerate(groups):
                color, pattern = LOOK["whole" if state[group] else "shard"]
                edge = COLORS[0] if state[group] else "#CCCCCC"
                box = Rectangle((column + 0.05, row + 0.1), 0.9, 0.8, facecolor=color, hatch=pattern, edgecolor=edge)
                ax.add_patch(box)
        most = max(sum(state.values()) for _, state in moments)
        ax.set(xlim=(0, len(moments)), ylim=(len(groups), 0))
        ax.set_title(f"{title}: at most {most} of {len(groups)} groups whole", fontsize=11)
        ax.set_yticks([row + 0.5 for row in range(len(groups))], groups, fontsize=9)
        ax.set_xticks([column + 0.5 for column in range(len(moments))], [name for name, _ in moments], fontsize=9)
        ax.tick_params(length=0)
        ax.grid(False)
    axes[-1, 0].set_xlabel("time →")
    handles = [
        Patch(facecolor=LOOK[k][0], hatch=LOOK[k][1], edgecolor=COLORS[0] if k == "whole" else "#CCCCCC", label=label)
        for k, label in (("whole", "whole"), ("shard", "only this rank's shard"))
    ]
    figure.legend(handles=handles, loc="outside lower right", ncols=2, fontsize=9)
    return figure


def draw_peaks(peaks: Mapping[str, Mapping[str, int]]) -> Figure:
    """One bar for each run, from bytes by kind, as `planning.memory` finds them at the peak of a step."""
    figure, ax = plt.subplots(figsize=(7.5, 0.9 + 0.55 * len(peaks)))
    kinds = ("weights", "gradients", "optimizer", "activations", "temporary")
    left = [0.0] * len(peaks)
    for kind, color, hatch in zip(kinds, COLORS, ("", "//", "..", "\\\\", "xx"), strict=False):
        sizes = [peak.get(kind, 0) / 2**20 for peak in peaks.values()]
        ax.barh(list(peaks), sizes, left=left, color=color, hatch=hatch, edgecolor="white", label=kind)
        left = [done + size for done, size in zip(left, sizes, strict=True)]
    ax.invert_yaxis()
    ax.grid(axis="y", visible=False)
    ax.set_xlabel("MiB on a rank at the peak of a step")
    figure.legend(*ax.get_legend_handles_labels(), loc="outside lower center", ncols=len(kinds), fontsize=9)
    return figure


def draw_cuts() -> Figure:
    """The two ways to cut a linear layer for two ranks: by outputs (joined) and by inputs (added)."""
    figure, axes = plt.subplots(1, 2, figsize=(8.6, 2.3))
    tints = ("#A9D3EE", "#F6C9A8")

    def box(ax: Axes, x: float, y: float, width: float, height: float, color: str, text: str, hatch: str = "") -> None:
        ax.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor="#444444", hatch=hatch))
        ax.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=11)

    ax = axes[0]
    box(ax, 0, 0.6, 1.6, 1, "#F2F2F2", "x")
    box(ax, 2.3, 0.3, 0.9, 1.6, tints[0], "W₀ᵀ")
    box(ax, 3.2, 0.3, 0.9, 1.6, tints[1], "W₁ᵀ")
    box(ax, 4.9, 0.6, 0.9, 1, tints[0], "y₀")
    box(ax, 5.8, 0.6, 0.9, 1, tints[1], "y₁")
    ax.set_title("by outputs (colwise): parts side by side", fontsize=11)
    ax.axvline(7.2, color="#BBBBBB", linewidth=1, linestyle="-", clip_on=False)  # two equations, not one
    ax = axes[1]
    box(ax, 0, 0.6, 0.8, 1, tints[0], "x₀")
    box(ax, 0.8, 0.6, 0.8, 1, tints[1], "x₁")
    box(ax, 2.3, 0.3, 1.8, 0.8, tints[0], "W₀ᵀ")
    box(ax, 2.3, 1.1, 1.8, 0.8, tints[1], "W₁ᵀ")
    box(ax, 4.9, 0.05, 1.8, 0.85, tints[0], "p₀")
    box(ax, 4.9, 1.35, 1.8, 0.85, tints[1], "p₁")
    ax.text(5.8, 1.12, "+ (all-reduce)", ha="center", va="center", fontsize=11)
    ax.set_title("by inputs (rowwise): partial sums to add", fontsize=11)
    for ax in axes:
        ax.text(1.95, 1.1, "×", ha="center", va="center", fontsize=14)
        ax.text(4.5, 1.1, "=", ha="center", va="center", fontsize=14)
        ax.set(xlim=(-0.4, 7.2), ylim=(2.35, -0.1), aspect="equal")
        ax.axis("off")
    handles = [Patch(facecolor=tint, edgecolor="#444444", label=f"rank {rank}") for rank, tint in enumerate(tints)]
    handles.append(Patch(facecolor="#F2F2F2", edgecolor="#444444", label="on both"))
    figure.legend(handles=handles, loc="outside lower center", ncols=3, fontsize=9)
    return figure


def draw_pipeline(runs: Mapping[str, Sequence[Job]]) -> Figure:
    """Schedules one below the other on one time axis: a row for each stage, a box for each job, gaps are waiting.

    runs: title -> jobs, as `pipeline` returns them.
    """
    stages = [1 + max(job.stage for job in jobs) for jobs in runs.values()]
    end = max(job.end for jobs in runs.values() for job in jobs)
    figure, axes = plt.subplots(
        len(runs), 1, figsize=(8.6, 0.7 + sum(0.31 * n + 0.4 for n in stages)), sharex=True, squeeze=False
    )
    for ax, (title, jobs), count in zip(axes[:, 0], runs.items(), stages, strict=True):
        for job in jobs:
            color, pattern = LOOK[job.kind]
            width = job.end - job.start
            place = (job.start + 0.03, job.stage + 0.06)
            ax.add_patch(Rectangle(place, width - 0.06, 0.88, facecolor=color, edgecolor="#666666", lw=0.6))
            if end <= 60:
                label = ax.text(job.start + width / 2, job.stage + 0.5, job.microbatch, ha="center", va="center")
                label.set(fontsize=9, weight="bold" if pattern else "normal")
        waits = f"waits {idle_share(jobs):.0%} of the time"
        ax.set_title(f"{title}: {waits}; stage 0 keeps up to {held(jobs)[0]} microbatches", fontsize=11)
        ax.set(xlim=(0, end), ylim=(count, 0))
        ax.set_yticks([row + 0.5 for row in range(count)], [f"stage {row}" for row in range(count)])
        ax.tick_params(length=0)
        ax.set_xticks([])
        ax.grid(False)
        ax.set_facecolor("#FAFAFA")
    axes[-1, 0].set_xlabel("time → (simulated, not measured)")
    names = (("F", "forward"), ("B", "backward (bold)"))
    handles = [Patch(facecolor=LOOK[kind][0], edgecolor="#666666", label=label) for kind, label in names]
    figure.legend(handles=handles, loc="outside lower right", ncols=2, fontsize=9)
    return figure
