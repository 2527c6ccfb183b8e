"""How often to save: the interval that loses the least time, and the share that is lost with it."""

import math

from labcheck.authoring import Exercise, Inputs, Spec, near, same, wrong_if
from labcheck.probes import plain_number

INTERVAL = "what saves and failures cost for each second of training; the sum is smallest where its derivative is 0"


def draw(rng: Inputs) -> list[tuple]:
    """Runs that save in seconds, and a large model that takes minutes: it should save every few hours."""
    small = [(rng.size(20, 90), 3600 * rng.size(5, 30), 60 * rng.size(4, 15)) for _ in range(3)]
    return [*small, (rng.size(300, 900), 3600 * rng.size(40, 100), 60 * rng.size(10, 30))]


def solution(save: float, between: float, restart: float) -> tuple[float, float]:
    interval = math.sqrt(2 * save * between)
    return interval, save / interval + (interval / 2 + restart) / between


def explain(yours: tuple, expected: tuple, save: float, between: float, restart: float) -> None:
    def close(number: object, *others: float) -> bool:
        return any(near(number, other, 1e-3) for other in others)

    if len(yours) != 2:
        return
    (interval, share), (best, least) = yours, expected
    details = {"expected": f"an interval of {best:.0f} s", "yours": interval}
    wrong_if(
        close(interval, math.sqrt(save * between)),
        "no_factor_of_two",
        "Your interval lacks the 2: on average, a failure costs half an interval.",
        **details,
    )
    with_restart = [2 * (save + restart) * between, 2 * save * (between + restart), 2 * save * (between - restart)]
    wrong_if(
        close(interval, *map(math.sqrt, with_restart), best + restart),
        "restart_in_interval",
        "The restart does not belong in the interval: it costs the same however often you save.",
        **details,
    )
    wrong_if(close(interval, best**2), "no_root", "Your interval is the square of the right one.", **details)
    same(interval, best, "Your interval, in seconds,", dtype=False, rtol=1e-3, look=INTERVAL)
    details = {"expected": f"a share of {least:.4f}", "yours": share}
    wrong_if(
        close(share, least + interval / 2 / between),
        "all_of_an_interval",
        "On average, a failure comes in the middle of an interval: half of it is lost, not all.",
        **details,
    )
    wrong_if(
        close(share, least - restart / between),
        "no_restart",
        "The restart is missing from the lost share: each failure costs one.",
        **details,
    )
    wrong_if(
        (plain_number(share) or 0) > 1,
        "not_a_share",
        "A lost share is between 0 and 1; yours is larger. It may be a number of seconds, or percent.",
        look="each term: seconds lost for each second of the run",
        **details,
    )
    same(share, least, "Your lost share", dtype=False, rtol=1e-3, look="what saves cost, and what failures cost")


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
    judge=Spec(
        draw=draw,
        solution=solution,
        explain=explain,
        rtol=1e-3,
        look=INTERVAL,
    ),
)
