"""Pictures of convolution show the numbers and shapes that they are given."""

import matplotlib.pyplot as plt
import pytest
import torch

from torchcourse import CourseError
from torchcourse.lectures import convolutions


def texts(figure):
    found = [text.get_text() for ax in figure.axes for text in ax.texts]
    plt.close("all")
    return found


def test_sliding_shows_the_output_that_conv2d_computes():
    image, kernel = torch.arange(20).view(4, 5), torch.tensor([[1, 0], [0, -3]])
    shown = texts(convolutions.sliding(image, kernel, row=1, column=2))
    assert {"image, 4 × 5", "kernel, 2 × 2", "output, 3 × 4"} <= set(shown)
    assert str(7 - 3 * 13).replace("-", "−") in shown  # row 1, column 2: 7 at the upper left, 13 at the lower right
    image = torch.arange(36).view(6, 6)
    assert "output, 3 × 3" in texts(convolutions.sliding(image, kernel, row=2, column=2, stride=2))
    with pytest.raises(CourseError, match="no row 3"):
        convolutions.sliding(image, kernel, row=3, column=0, stride=2)


def test_boxes_name_every_stage_with_its_shape():
    shown = texts(convolutions.boxes({"image": (1, 28, 28), "conv 3×3": (8, 26, 26), "logits": (10,)}))
    assert shown == ["1 × 28 × 28", "image", "8 × 26 × 26", "conv\n3×3", "10", "logits"]
