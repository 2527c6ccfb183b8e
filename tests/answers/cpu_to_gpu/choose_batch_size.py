import numpy as np

from torchcourse_labs.cpu_to_gpu.choose_batch_size import good, solution


def going_up(curve, share, largest):
    best = max(curve[size] for size in curve if size <= largest)
    for size in sorted(curve):
        if curve[size] >= share * best:
            return size


def in_numpy(curve, share, largest):
    sizes, rates = np.array(sorted(curve.items())).T
    return sizes[(rates >= share * rates[sizes <= largest].max()).argmax()]


RIGHT = [going_up, in_numpy]

WRONG = {
    "no_choice": [
        lambda curve, share, largest: curve[solution(curve, share, largest)],
        lambda curve, share, largest: max(curve),
    ],
    "too_slow": [lambda curve, share, largest: min(curve)],
    "not_smallest": [
        lambda curve, share, largest: max(good(curve, share, largest)),
    ],
    None: [
        lambda curve, share, largest: sorted(curve),
        lambda curve, share, largest: str(solution(curve, share, largest)),
    ],
}
