"""One epoch of training on a given network, by each library as its own documentation does it.

Same network, batch size, optimizer (Adadelta, learning rate 1: the official example's), float32 and threads for all.
Progress bars, logs and checkpoints are off everywhere, in favor of the libraries that have them.
The network notes when each training step begins; so what a library does before the first step and after the last one
does not count.

`python -m tools.bench.contestants NAME TASK` runs one of them and prints its version and images per second as JSON;
`libraries` starts such a process for each row.
"""

import contextlib
import importlib.metadata
import json
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

from tools.bench.official import dataset
from tools.bench.training import mlp
from torchcourse import data, models, training

MOMENTS: list[float] = []  # when each training step began


@dataclass(frozen=True)
class Task:
    """What to train, and how much of it."""

    network: str  # a key of NETWORKS
    batch: int
    images: int
    workers: int = 0  # of the DataLoader
    dtype: str = "float32"  # ours only


NETWORKS: dict[str, tuple[str, Callable[[], nn.Module]]] = {
    "example": ("mnist", models.MnistExample),  # the official MNIST example's
    "mlp": ("mnist", mlp),
    "tutorial": ("cifar10", models.CifarTutorial),  # the CIFAR-10 tutorial's
}


class Watched(nn.Module):
    """A network that notes when each training step begins."""

    def __init__(self, name: str, memory_format: torch.memory_format = torch.contiguous_format):
        super().__init__()
        self.network = NETWORKS[name][1]().to(memory_format=memory_format)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        if self.training:
            MOMENTS.append(time.perf_counter())
        return self.network(images)


@cache
def image_set(network: str, count: int) -> data.ImageSet:
    """The first training images of the network's data set, as many as asked for."""
    return data.load(NETWORKS[network][0], "train").subset(slice(count))


def per_sample(task: Task) -> DataLoader:
    """Batches in the usual way: image by image, each through the transforms, then stacked."""
    return DataLoader(dataset(image_set(task.network, task.images)), task.batch, shuffle=True, num_workers=task.workers)


def adadelta(model: nn.Module) -> torch.optim.Optimizer:
    """The official example's optimizer."""
    return torch.optim.Adadelta(model.parameters(), lr=1.0)


def ours(task: Task) -> None:
    """The course: whole batches, uint8 until the device, channels_last, training.fit."""
    images = image_set(task.network, task.images)
    model = Watched(task.network, torch.channels_last)
    batches = data.loader(images, task.batch, shuffle=True, num_workers=task.workers)
    prepare = models.Normalize(images.name)
    options = {} if task.dtype == "float32" else {"dtype": getattr(torch, task.dtype)}
    training.fit(model, batches, adadelta(model), prepare=prepare, verbose=False, **options)


def loop(task: Task) -> None:
    """The loop of the official examples: a DataLoader that fetches image by image."""
    model = Watched(task.network)
    optimizer = adadelta(model)
    model.train()
    for images, labels in per_sample(task):
        optimizer.zero_grad()
        F.cross_entropy(model(images), labels).backward()
        optimizer.step()


def lightning(task: Task) -> None:
    """PyTorch Lightning: a LightningModule and a Trainer."""
    import lightning as L

    class Classifier(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.model = Watched(task.network)

        def training_step(self, batch, batch_idx):
            images, labels = batch
            loss = F.cross_entropy(self.model(images), labels)
            self.log("train_loss", loss)
            return loss

        def configure_optimizers(self):
            return adadelta(self)

    quiet = {"logger": False, "enable_progress_bar": False, "enable_model_summary": False}
    trainer = L.Trainer(max_epochs=1, accelerator="cpu", enable_checkpointing=False, **quiet)
    trainer.fit(Classifier(), per_sample(task))


def accelerate(task: Task) -> None:
    """Hugging Face Accelerate: the same loop after `prepare`."""
    from accelerate import Accelerator

    accelerator = Accelerator(cpu=True)
    model = Watched(task.network)
    model, optimizer, batches = accelerator.prepare(model, adadelta(model), per_sample(task))
    model.train()
    for images, labels in batches:
        optimizer.zero_grad()
        accelerator.backward(F.cross_entropy(model(images), labels))
        optimizer.step()


def fastai(task: Task) -> None:
    """fastai: DataLoaders of PyTorch's and a Learner, as in its page on migrating from PyTorch."""
    from fastai.vision.all import DataLoaders, Learner, OptimWrapper, accuracy

    little = Task(task.network, task.batch, 2 * task.batch)
    loaders = DataLoaders(per_sample(task), per_sample(little), device=torch.device("cpu"))
    optimizer = partial(OptimWrapper, opt=torch.optim.Adadelta)
    learner = Learner(loaders, Watched(task.network), loss_func=F.cross_entropy, opt_func=optimizer, metrics=accuracy)
    with learner.no_bar(), learner.no_logging():
        learner.fit(1, lr=1.0)


def skorch(task: Task) -> None:
    """skorch: NeuralNetClassifier.fit on arrays in memory; it keeps a fifth of them for validation."""
    from skorch import NeuralNetClassifier

    images, labels = arrays(task, extra=1.25)
    classifier = NeuralNetClassifier(
        partial(Watched, task.network),
        criterion=nn.CrossEntropyLoss,
        optimizer=torch.optim.Adadelta,
        lr=1.0,
        max_epochs=1,
        batch_size=task.batch,
        iterator_train__shuffle=True,
        verbose=0,
    )
    classifier.fit(images, labels)


def keras(task: Task) -> None:
    """Keras on the torch backend: its own layers, `fit` on arrays in memory, as in its MNIST example."""
    import keras
    from keras import layers

    class Watch(keras.callbacks.Callback):
        def on_train_batch_begin(self, batch, logs=None):
            MOMENTS.append(time.perf_counter())

    images, labels = arrays(task)
    images = images.transpose(0, 2, 3, 1).copy()  # Keras expects the channels last
    model = keras.Sequential(
        [
            keras.Input(shape=(28, 28, 1)),
            layers.Conv2D(32, kernel_size=(3, 3), activation="relu"),
            layers.Conv2D(64, kernel_size=(3, 3), activation="relu"),
            layers.MaxPooling2D(pool_size=(2, 2)),
            layers.Dropout(0.25),
            layers.Flatten(),
            layers.Dense(128, activation="relu"),
            layers.Dropout(0.5),
            layers.Dense(10),
        ]
    )
    parameters = sum(p.numel() for p in models.MnistExample().parameters())
    if model.count_params() != parameters:
        raise RuntimeError(f"Keras built {model.count_params()} parameters instead of {parameters}")
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(optimizer=keras.optimizers.Adadelta(learning_rate=1.0, rho=0.9), loss=loss, metrics=["accuracy"])
    model.fit(images, labels, batch_size=task.batch, epochs=1, verbose=0, callbacks=[Watch()])


def arrays(task: Task, extra: float = 1.0) -> tuple:
    """Normalized images [N, C, H, W] and labels as NumPy arrays in memory."""
    images = image_set(task.network, round(extra * task.images))
    return models.Normalize(images.name)(images.images).contiguous().numpy(), images.labels.numpy()


# The order is that of the table.
CONTESTANTS = {function.__name__: function for function in (ours, loop, lightning, accelerate, skorch, fastai, keras)}


def run(name: str, task: Task) -> float:
    """Images per second, without the first steps: those are slow, or fed from what DataLoader workers fetched ahead."""
    MOMENTS.clear()
    CONTESTANTS[name](task)
    steps = MOMENTS[min(5 + 2 * task.workers, len(MOMENTS) // 2) :]
    if len(steps) < 2:
        raise RuntimeError(f"{len(MOMENTS)} training steps are too few to time: ask for more images")
    return (len(steps) - 1) * task.batch / (steps[-1] - steps[0])


def main(name: str, orders: dict) -> dict:
    """Warm up briefly, then train as often as asked: {"version": ..., "images_per_s": [...]}."""
    repeats = orders.pop("repeats")
    task = Task(**orders)
    version = importlib.metadata.version({"ours": "torchcourse", "loop": "torch"}.get(name, name))
    warnings.simplefilter("ignore")
    run(name, replace(task, images=min(task.images, 12 * task.batch)))
    return {"version": version, "images_per_s": [run(name, task) for _ in range(repeats)]}


if __name__ == "__main__":
    with contextlib.redirect_stdout(sys.stderr):  # whatever a library prints
        found = main(sys.argv[1], json.loads(sys.argv[2]))
    print(json.dumps(found))
