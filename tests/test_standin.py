"""The rehearsal of `make gpu`: a CUDA device that is not there."""

import os
import subprocess
import sys

import pytest
from conftest import need

from tools.standin import __main__ as command

SCRIPT = """
import os, subprocess, sys
import torch
import torch.nn.functional as F
from torch import nn

assert str(torch.accelerator.current_accelerator(check_available=True)) == "cuda" and torch.cuda.device_count() == 1
torch.manual_seed(0)
net = nn.Sequential(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4), nn.GELU(), nn.Dropout(0.1), nn.Flatten(), nn.LazyLinear(10))
images, labels = torch.rand(8, 1, 8, 8), torch.arange(8)
net(images)
net.cuda()
optimizer, scaler = torch.optim.AdamW(net.parameters(), lr=0.01, fused=True), torch.amp.GradScaler("cuda")
losses = []
for _ in range(30):
    with torch.autocast("cuda", torch.float16):
        logits = net(images.to("cuda"))
        loss = F.cross_entropy(logits, labels.cuda())
    optimizer.zero_grad()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    losses.append(loss.item())
assert logits.dtype == torch.float16 and logits.device == torch.device("cuda", 0) and logits.is_cuda
assert losses[-1] < 0.5 * losses[0], losses
for wrong, sentence in (
    (lambda: net(images), "should be the same"),
    (lambda: logits + torch.ones(8, 10), "Expected all tensors to be on the same device"),
    (lambda: logits.numpy(), "can't convert cuda:0 device type tensor to numpy"),
):
    try:
        wrong()
    except (RuntimeError, TypeError) as error:
        assert sentence in str(error), error
    else:
        raise AssertionError(sentence)
ask = "import torch; print(torch.cuda.is_available())"
for hidden in ({}, {"CUDA_VISIBLE_DEVICES": ""}):
    subprocess.run([sys.executable, "-c", ask], env=os.environ | hidden)
"""

TRAINS = """
from torchcourse import data, device
from torchcourse.recipes import cifar, mnist

assert device.describe() == "cuda (Stand-in GPU)"
there = device.best()
few = data.load("cifar10", "train").subset(slice(64))
for images in few, few.to(there):
    run = cifar.train(cifar.Setting((8, 8, 8), stride=2, epochs=1, batch_size=32, shift=2), images=images)
    assert next(run.model.parameters()).is_cuda and run.history[0].training.loss < 50
assert mnist.train(mnist.Setting(seen=400)).history[0].training.loss < 50
"""


@pytest.fixture(scope="module")
def built():
    """Where a process finds the stand-in."""
    need("compiler")
    return os.environ | command.environment(command.build())


@pytest.mark.weekly
def test_every_process_sees_a_device_that_refuses_and_computes(built):
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=built, capture_output=True, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True\nFalse\n", "")


def test_the_recipes_train_where_their_images_are_and_where_they_are_not(built):
    done = subprocess.run([sys.executable, "-c", TRAINS], env=built, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
