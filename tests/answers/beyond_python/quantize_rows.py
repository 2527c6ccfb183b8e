import torch
from support.answers import mutants

from torchcourse_labs.beyond_python.quantize_rows import solution


def one_by_one(weight):
    scales = torch.tensor([max(row.abs().max().item(), 1e-9) / 127 for row in weight])
    pairs = zip(weight.tolist(), scales.tolist(), strict=True)
    return [torch.tensor([[round(value / scale) for value in row] for row, scale in pairs]).to(torch.int8), scales]


SCALES = "torch.where(largest > 0, largest / 127, 1.0)"
RIGHT = [one_by_one, *mutants(solution, SCALES, "(largest / 127).clamp(min=1e-12)")]

WRONG = {
    "one_scale": mutants(solution, "weight.abs().amax(dim=1)", "weight.abs().max().expand(len(weight))"),
    "no_abs": mutants(solution, "weight.abs()", "weight"),
    "floor": mutants(
        solution, SCALES, "(largest / 127).clamp(min=1e-6)", "largest.clamp(min=1e-6) / 127", "largest / 127 + 1e-4"
    ),
    "zero_scale": mutants(solution, SCALES, "largest / 127"),
    None: [
        lambda weight: (solution(weight)[0], solution(weight)[1].half()),
        *mutants(solution, "largest / 127", "largest / 128", "largest / 255"),
        lambda weight: solution(weight)[::-1],
        lambda weight: (solution(weight)[0], solution(weight)[1][:, None]),
        lambda weight: ((weight / weight.abs().amax(0) * 127).round().to(torch.int8), weight.abs().amax(0) / 127),
        lambda weight: (solution(weight)[0], 1 / solution(weight)[1]),
    ],
}
