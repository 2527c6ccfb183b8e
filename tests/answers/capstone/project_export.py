import torch
from support.answers import mutants
from torch import nn


def export(model, example, path):
    batch = torch.export.Dim("batch")
    program = torch.export.export(model.eval(), (example.clone(),), dynamic_shapes=({0: batch},))
    torch.export.save(program, path)


def with_dynamic(model, example, path):
    model.eval()
    shapes = ((torch.export.Dim.DYNAMIC, *(torch.export.Dim.STATIC for _ in example.shape[1:])),)
    torch.export.save(torch.export.export(model, (torch.zeros_like(example),), dynamic_shapes=shapes), path)


class Then(nn.Module):
    def __init__(self, model, change):
        super().__init__()
        self.model, self.change = model, change

    def forward(self, images):
        return self.change(self.model(images))


def then(change):
    return lambda model, example, path: export(Then(model, change), example, path)


RIGHT = [export, with_dynamic]

WRONG = {
    "no_file": mutants(export, "torch.export.save(program, path)", "pass"),
    "no_program": [lambda model, example, path: torch.save(model.state_dict(), path)],
    "refused": mutants(export, "example.clone()", "example[:1].clone()"),
    "batch_size": mutants(export, ", dynamic_shapes=({0: batch},)", ""),
    "bytes": mutants(export, "(example.clone(),)", "(example.float() / 255,)"),
    "train_mode": mutants(export, "model.eval()", "model.train()"),
    "probabilities": [then(lambda logits: logits.softmax(1))],
    "images_inside": mutants(export, "example.clone()", "example"),
    None: [then(torch.relu), then(torch.squeeze), then(lambda logits: (logits, logits)), then(torch.Tensor.half)],
}
