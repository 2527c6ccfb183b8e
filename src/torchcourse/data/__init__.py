"""Data sets as tensors: `load("mnist", "train")` gives all images and labels, `loader(...)` gives batches of them.
`text()` is what the lectures say, to train a language model on, and `Tokenizer` makes numbers of it.

The order in which `load` looks: the kit's cache, torchvision's files, a download through torchvision, and, with no
data and no network, the synthetic look-alikes of `torchcourse.data.synthetic`, under a banner that says so.
"""

from torchcourse.data.as_torchvision import torchvision_root
from torchcourse.data.catalog import SPECS, SPLITS
from torchcourse.data.corpus import Text, text
from torchcourse.data.folder import from_folder
from torchcourse.data.imageset import ImageSet, loader
from torchcourse.data.sets import load, overview
from torchcourse.data.tokens import Tokenizer
from torchcourse.place import default_root, root_folder

__all__ = [
    "MEAN_STD",
    "NAMES",
    "SPLITS",
    "ImageSet",
    "Text",
    "Tokenizer",
    "default_root",
    "from_folder",
    "load",
    "loader",
    "overview",
    "root_folder",
    "text",
    "torchvision_root",
]

NAMES = tuple(SPECS)

MEAN_STD = {name: (what.mean, what.std) for name, what in SPECS.items()}
"""Name -> (means, standard deviations) of the training images scaled to 0..1, one number per channel."""
