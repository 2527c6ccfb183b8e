import torch
from answers.capstone._lab import written
from support.answers import mutants
from torch import nn

export = written("export").export


def with_dynamic(model, example, path):
    shapes = ((torch.export.Dim.DYNAMIC, *(torch.export.Dim.STATIC for _ in example.shape[1:])),)
    torch.export.save(torch.export.export(model.eval(), (torch.zeros_like(example),), dynamic_shapes=shapes), path)


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
    "refused": mutants(export, "example.clone()", "example[:1].clone()"),
    "refuses": [
        *mutants(export, ", dynamic_shapes=({0: batch},)", ""),
        *mutants(export, "(example.clone(),)", "(example.float() / 255,)"),
    ],
    "train_mode": mutants(export, "model.eval()", "model.train()"),
    "images_inside": mutants(export, "example.clone()", "example"),
    None: [
        *mutants(export, "torch.export.save(program, path)", "pass", "torch.save(model.state_dict(), path)"),
        then(lambda logits: logits.softmax(1)),
        then(lambda logits: (logits, logits)),
        then(torch.Tensor.half),
    ],
}
