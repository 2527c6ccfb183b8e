import torch
from support.answers import mutants

from torchcourse_labs.beyond_python.quantize_rows import solution


def one_by_one(weight):
    scales = torch.tensor([max(row.abs().max().item(), 1e-9) / 127 for row in weight])
    pairs = zip(weight.tolist(), scales.tolist(), strict=True)
    return [torch.tensor([[round(value / scale) for value in row] for row, scale in pairs]).to(torch.int8), scales]


def by_product(weight):
    largest = weight.abs().max(dim=1, keepdim=True).values.clamp(min=1e-9)
    return (weight * (127 / largest)).round().char(), largest.squeeze(1) / 127


SCALES = "torch.where(largest > 0, largest / 127, 1.0)"
RIGHT = [one_by_one, by_product, *mutants(solution, SCALES, "(largest / 127).clamp(min=1e-12)")]

WRONG = {
    "no_abs": [
        *mutants(solution, "weight.abs()", "weight"),
        lambda weight: ((weight / weight.amax(1, True) * 127).round().to(torch.int8), weight.amax(1) / 127),
    ],
    "factor": mutants(solution, "largest / 127", "largest / 128", "largest / 255", "largest * 2 / 127"),
    "floor": [
        *mutants(solution, SCALES, "(largest / 127).clamp(min=1e-3)", "largest / 127 + 1e-3", "largest / 127 + 1e-8"),
        *mutants(solution, "weight.abs().amax(dim=1)", "weight.abs().amax(dim=1).clamp(min=1e-3)"),
    ],
    "zero_scale": mutants(solution, SCALES, "largest / 127"),
    None: [
        lambda weight: solution(weight)[::-1],
        lambda weight: (solution(weight)[0].int(), solution(weight)[1]),
        lambda weight: (solution(weight)[0], solution(weight)[1][:, None]),
        lambda weight: ((weight / weight.abs().amax(0) * 127).round().to(torch.int8), weight.abs().amax(0) / 127),
        lambda weight: solution(weight)[0],
        lambda weight: (solution(weight)[0], 1 / solution(weight)[1]),
        *mutants(solution, "largest / 127", "largest / 128 + largest.mean()"),
        *mutants(solution, "(weight, torch", "(weight.abs(), torch"),
        lambda weight: ("numbers", "scales"),
        lambda weight: print(weight),
    ],
}
