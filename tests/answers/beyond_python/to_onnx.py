import torch
from support.answers import mutants
from torch import nn

from torchcourse_labs.beyond_python.to_onnx import solution


def by_program(net, example, path):
    exported = torch.export.export(net, (example,), dynamic_shapes=({0: torch.export.Dim.AUTO},))
    names = {"input_names": ["features"], "output_names": ["logits"]}
    torch.onnx.export(exported, (), dynamo=True, **names).save(path)


DYNAMIC = '({0: torch.export.Dim("batch")},)'

RIGHT = [by_program]

WRONG = {
    "not_traced": mutants(solution, DYNAMIC, '{"features": {0: torch.export.Dim("batch")}}'),
    "no_onnx": mutants(solution, "path,", "None,"),
    "fixed_batch": mutants(solution, DYNAMIC, "None", DYNAMIC.replace("0", "1")),
    None: [
        *mutants(solution, '["features"]', '["x"]'),
        *mutants(solution, "external_data=False", "external_data=True"),
        lambda net, *given: solution(nn.Sequential(net, nn.Softmax(dim=1)), *given),
        lambda net, example, path: solution(net.half(), example.half(), path),
    ],
}
