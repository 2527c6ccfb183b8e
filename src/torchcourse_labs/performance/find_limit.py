"""What limits a training step whose parts overlap, and what its removal would gain at most."""

from typing import Any

from labcheck.authoring import Exercise, Inputs, Spec, near, same, wrong_if


def draw(rng: Inputs) -> list[tuple]:
    def case(lanes: str, *ms: tuple[int, int]) -> tuple[dict[str, float], list[list[str]]]:
        """Milliseconds from low to high for each part; the names in any order."""
        split, names = [lane.split() for lane in lanes.split(" | ")], lanes.replace("|", "").split()
        seconds = [rng.size(low * 10, high * 10) / 10_000 for low, high in ms]
        return {names[i]: seconds[i] for i in rng.permutation(len(names))}, split

    return [
        # the longest part is hidden
        case("load | copy forward backward step", (60, 70), (12, 18), (20, 25), (52, 58), (14, 20)),
        # without the limit, another lane is the longest
        case("copy forward backward step | read decode", (1, 3), (11, 16), (24, 33), (4, 8), (8, 12), (70, 90)),
        # nothing overlaps
        case("load copy forward backward step", (12, 19), (1, 4), (5, 11), (21, 29), (2, 6)),
        # the longest lane stays the longest
        case("load | copy forward backward step", (10, 15), (1, 4), (30, 35), (40, 50), (5, 9)),
    ]


def step(seconds: dict[str, float], lanes: list[list[str]]) -> float:
    return max(sum(seconds[name] for name in lane) for lane in lanes)


def solution(seconds: dict[str, float], lanes: list[list[str]]) -> tuple[str, float]:
    limit = min(seconds, key=lambda name: step(seconds | {name: 0}, lanes))
    return limit, step(seconds, lanes) / step(seconds | {limit: 0}, lanes)


def explain(yours: Any, expected: Any, seconds: dict[str, float], lanes: list[list[str]]) -> None:
    wrong_if(
        len(yours) != 2 or yours[0] not in [*seconds],
        "form",
        "Return two values: the name of one part, and the speed-up if that part took no time.",
        expected=expected,
        yours=yours,
    )
    (name, speed_up), (limit, _) = yours, expected
    now, after, total = step(seconds, lanes), step(seconds | {limit: 0}, lanes), sum(seconds.values())
    wrong_if(
        any(near(speed_up, total / time) for time in (total - seconds[name], after)),
        "added_up",
        "You add up all parts, but the lanes run at the same time: the step takes as long as its longest lane.",
        look="`sum` within a lane, `max` over the lanes",
    )
    wrong_if(
        name == max(seconds, key=seconds.get) != limit,
        "hidden",
        f'Your limit is the longest part, "{name}". It runs beside a longer lane, so removing it makes nothing faster.',
    )
    wrong_if(
        name != limit,
        "another_part",
        f'Without "{name}", the step takes {1000 * step(seconds | {name: 0}, lanes):.1f} ms; there is a part without '
        f"which it takes only {1000 * after:.1f} ms.",
        look="the time of the whole step without the part, for every name: the limit has the smallest",
    )
    wrong_if(
        near(speed_up, now / (now - seconds[limit])),
        "next_lane",
        "Your speed-up is larger than what is possible: without the limit, another lane may be the longest.",
        look="compute the step once more without the limit, with all lanes",
    )
    look = "the time of the step now, divided by its time with all other parts"
    same(speed_up, expected[1], f'The speed-up without "{limit}"', dtype=False, look=look)


exercise = Exercise(
    title="What is the limit?",
    minutes=6,
    difficulty=1,
    points=1,
    takeaway="What is hidden costs nothing, and what limits you is worth only as much as the next limit leaves.",
    hints=(
        "Write a small function for the time of a step without one part. Call it for every part, and once for none.",
        "A lane takes the sum of its parts; the step takes the `max` of its lanes. The limit is the `min` over all "
        "names, by the time of the step without that part.",
    ),
    judge=Spec(draw=draw, solution=solution, explain=explain, dtype=False),
    lends=solution,
)
