"""Chapter 02: answers beside those in the exercises' specifications (torchcourse/checks/training_loop.py)."""

import torch.nn.functional as F


def gradient_in_place(w, x, y):
    x *= 2 * (w * x - y)
    return x.mean()


def step_without_return(model, images, labels, optimizer):
    F.cross_entropy(model(images), labels)


RIGHT = {}

WRONG = {
    "gradient_by_hand": [(gradient_in_place, "changed its argument")],
    "train_step": [(step_without_return, "returned None")],
}
