import torch
from support.answers import mutant, mutants
from torch import nn

from torchcourse_labs.beyond_python.with_preprocessing import solution

READY = "(images.float() / 255 - self.mean) / self.std"
EXAMPLE = "torch.zeros_like(images[:2])"
DYNAMIC = '({0: torch.export.Dim("batch")},)'


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


def net_alone(net, mean, std, images, path):
    dynamic = ({0: torch.export.Dim("batch")},)
    torch.export.save(torch.export.export(net.eval(), (images[:2].float(),), dynamic_shapes=dynamic), path)


RIGHT = [by_one_product]

WRONG = {
    "no_program": [
        *mutants(solution, "torch.export.save(program, path)", "torch.save(net.state_dict(), path)"),
        lambda net, mean, std, images, path: solution(net, mean, std, images, path.replace("reader", "model")),
    ],
    "refused": [
        net_alone,
        *mutants(solution, EXAMPLE, f"{EXAMPLE}.float()"),
        *mutants(solution, f"dynamic = {DYNAMIC}", "dynamic = None"),
        *mutants(solution, 'Dim("batch")', 'Dim("batch", max=64)'),
        mutant(solution, (f"dynamic = {DYNAMIC}", "dynamic = None"), ("images[:2]", "images[:8]")),
    ],
    "constant_batch": mutants(solution, "images[:2]", "images[:1]"),
    "dropout": mutants(solution, ".eval()", "", ".train()"),
    "not_scaled": [
        *mutants(solution, "images.float() / 255", "images.float()", "images.float() / 256"),
        *mutants(solution, READY, "images.float()", "(images.float() - self.mean) / 255 / self.std"),
    ],
    "not_normalized": [
        *mutants(solution, READY, "images.float() / 255", "images.float() / 255 - self.mean / self.std"),
        *mutants(solution, READY, "(images.float() / 255 - self.mean) * self.std"),
    ],
    "images_in_file": mutants(solution, EXAMPLE, "images[:2]", "images"),
    None: [
        *mutants(solution, READY, "(images.float() / 255 - self.mean.flatten()) / self.std.flatten()"),
        lambda net, *given: solution(nn.Sequential(net, nn.Softmax(1)), *given),
        *mutants(solution, READY, "(images.float() / 255 - self.mean.mean()) / self.std.mean()"),
        *mutants(solution, READY, "(images.float() / 255 - self.std) / self.mean"),
        *mutants(solution, READY, "((images // 255) - self.mean) / self.std"),
        *mutants(solution, "return self.net", "return 1, self.net"),
        lambda net, mean, std, images, path: solution(net, mean[:1], std[:1], images, path),
    ],
}
