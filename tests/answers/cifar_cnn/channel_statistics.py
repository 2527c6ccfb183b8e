import torch

from torchcourse_labs.cifar_cnn.channel_statistics import solution


def channel_after_channel(images):
    channels = [images[:, c].numpy().astype("float64") / 255 for c in range(images.shape[1])]
    return torch.tensor([c.mean() for c in channels]), torch.tensor([c.std() for c in channels])


RIGHT = [channel_after_channel, lambda images: torch.stack(torch.std_mean(images / 255, (0, 2, 3), correction=0)[::-1])]

WRONG = {
    None: [
        lambda images: (images.mean((0, 2, 3)), images.std((0, 2, 3))),
        lambda images: (images / 255).mean((0, 2, 3)),
        lambda images: solution(images)[::-1],
        lambda images: (torch.tensor([0.4914, 0.4822, 0.4465]), torch.tensor([0.247, 0.2435, 0.2616])),
        lambda images: solution(images * (255 / images.max())),
    ]
}
