import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.beyond_python.with_preprocessing import solution

READY = "(images.float() / 255 - self.mean) / self.std"
EXAMPLE = "torch.zeros_like(images[:2])"


class OneProduct(nn.Module):
    """Plain tensors instead of buffers; export keeps them as constants."""

    def __init__(self, net, mean, std):
        super().__init__()
        self.net = net
        self.scale = 1 / (255 * torch.tensor(std).reshape(1, -1, 1, 1))
        self.shift = -torch.tensor(mean).reshape(1, -1, 1, 1) / torch.tensor(std).reshape(1, -1, 1, 1)

    def forward(self, images):
        return self.net(images.to(torch.float32) * self.scale + self.shift)


def by_one_product(net, mean, std, images, path):
    shapes = {"images": {0: torch.export.Dim.AUTO}}
    reader = OneProduct(net, mean, std).eval()
    torch.export.save(torch.export.export(reader, (images[:3].clone(),), dynamic_shapes=shapes), path)


RIGHT = [by_one_product]

WRONG = {
    "refused": [
        *mutants(solution, EXAMPLE, f"{EXAMPLE}.float()"),
        *mutants(solution, "dynamic = ", "dynamic = None and "),
        *mutants(solution, 'Dim("batch")', 'Dim("batch", max=256)'),
    ],
    "constant_batch": mutants(solution, "images[:2]", "images[:1]") + mutants(solution, "{0:", "{1:"),
    "train_mode": mutants(solution, ".eval()", "", ".apply(lambda m: isinstance(m, nn.Dropout) and m.eval())"),
    "images_in_file": mutants(solution, EXAMPLE, "images[:2]", "images"),
    None: [
        *mutants(solution, "torch.export.save(program, path)", "torch.save(net.state_dict(), path)"),
        *mutants(solution, "images.float() / 255", "images.float()"),
        mutant(solution, ("images.float() / 255", "images / 255"), (EXAMPLE, f"{EXAMPLE}.float()")),
        *mutants(solution, READY, "images.float() / 255", "images.float() / 255 - self.mean / self.std"),
        *mutants(solution, READY, "(images.float() / 255 - self.mean.flatten()) / self.std.flatten()"),
        lambda net, *given: solution(nn.Sequential(net, nn.Softmax(1)), *given),
    ],
}
