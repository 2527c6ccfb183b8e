"""How often to save: the interval that loses the least time, and the share that is lost with it."""

import math

from labcheck.authoring import Exercise, Inputs, Spec, near, same, wrong_if

INTERVAL = "(interval, share), in this order; where the derivative of save / t + (t / 2 + restart) / between is 0"


def draw(rng: Inputs) -> list[tuple]:
    """Runs that save in seconds, and a large model that takes minutes: it should save every few hours."""
    small = [(rng.size(20, 90), 3600 * rng.size(5, 30), 60 * rng.size(4, 15)) for _ in range(3)]
    return [*small, (rng.size(300, 900), 3600 * rng.size(40, 100), 60 * rng.size(10, 30))]


def solution(save: float, between: float, restart: float) -> tuple[float, float]:
    interval = math.sqrt(2 * save * between)
    return interval, save / interval + (interval / 2 + restart) / between


def explain(yours: tuple, expected: tuple, save: float, between: float, restart: float) -> None:
    if len(yours) != 2:
        return
    (interval, share), (best, least) = yours, expected
    wrong_if(
        near(interval, math.sqrt(save * between), 1e-3),
        "no_factor_of_two",
        "Your interval lacks the 2: on average, a failure costs half an interval.",
        expected=best,
        yours=interval,
    )
    longer = (save + restart) * between, save * (between + restart)
    wrong_if(
        any(near(interval, math.sqrt(2 * each), 1e-3) for each in longer) or near(interval, best + restart, 1e-3),
        "restart_in_interval",
        "The restart does not belong in the interval: it costs the same however often you save.",
        expected=best,
        yours=interval,
    )
    same(interval, best, "Your interval, in seconds,", dtype=False, rtol=1e-3, look=INTERVAL)
    wrong_if(
        near(share, least + interval / 2 / between, 1e-3),
        "all_of_an_interval",
        "On average, a failure comes in the middle of an interval: half of it is lost, not all.",
        expected=least,
        yours=share,
    )
    look = "`save` seconds in each interval; in each `between`, half an interval and a restart. 0.02 means 2%"
    same(share, least, "Your lost share", dtype=False, rtol=1e-3, look=look)


exercise = Exercise(
    title="How often to save",
    minutes=3,
    difficulty=2,
    points=1,
    takeaway="√(2 · cost of a save · time between failures). The restart costs as well, but does not change the "
    "interval. Near the minimum the curve is flat: half the interval or twice of it costs little more.",
    hints=(
        "One second of training costs: `save / interval` for the saves, and one `between`-th of a failure, which costs "
        "half an interval on average, and the restart.",
        "The derivative of `save / t + t / (2 * between)` is zero where `t * t == 2 * save * between`.",
    ),
    judge=Spec(draw=draw, solution=solution, explain=explain, rtol=1e-3, look=INTERVAL),
)
