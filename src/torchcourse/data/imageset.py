"""Images and their labels as two tensors that are indexed together, and the loader that makes use of it."""

import operator

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler, SequentialSampler

from torchcourse.errors import CourseError


class ImageSet(Dataset):
    """A data set that lies in memory as a whole.

    images: uint8 tensor [N, C, H, W]; labels: int64 tensor [N]; classes: the name of each label;
    name: "mnist", ...; origin: "real" or "synthetic" (a look-alike, see `torchcourse.data.synthetic`).

    `ds[3]` is one image [C, H, W] and its label (a tensor with no dimension). `ds[[3, 5]]`, `ds[10:20]` and
    `ds[tensor]` are whole batches, fetched in one indexing: images [B, C, H, W] and labels [B]. Like any indexing of
    a tensor, `ds[3]` and `ds[10:20]` share memory with the set: changing them in place changes the set.
    """

    def __init__(
        self, images: torch.Tensor, labels: torch.Tensor, classes: tuple[str, ...], name: str, origin: str = "real"
    ):
        if images.ndim != 4 or images.dtype != torch.uint8:
            raise CourseError(f"images must be uint8 [N, C, H, W], not {images.dtype} {list(images.shape)}.")
        if labels.shape != images.shape[:1] or labels.dtype != torch.int64:
            raise CourseError(f"labels must be int64 [{len(images)}], not {labels.dtype} {list(labels.shape)}.")
        self.images, self.labels = images, labels
        self.classes, self.name, self.origin = tuple(classes), name, origin

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index) -> tuple[torch.Tensor, torch.Tensor]:
        if isinstance(index, tuple):
            raise TypeError("Give the indices of several images as a list: ds[[3, 5]] instead of ds[3, 5].")
        if not isinstance(index, slice):
            index = _as_tensor(index)
            if index.ndim:
                if not self.images.is_cpu:  # once for both, and without waiting for the work in the device's queue
                    index = index.to(self.images.device, non_blocking=True)
                return _rows(self.images, index), _rows(self.labels, index)
            index = operator.index(index)  # one image: a view, as with any tensor
        return self.images[index], self.labels[index]

    def subset(self, indices) -> "ImageSet":
        """Some of the images as a set of its own (a validation set, say): an ImageSet with copies of images and labels.

        indices: a list, a slice, an int64 tensor, or a bool tensor [N].
        """
        index = indices if isinstance(indices, slice) else _as_tensor(indices)
        return ImageSet(self.images[index].clone(), self.labels[index].clone(), self.classes, self.name, self.origin)

    def to(self, device: torch.device | str) -> "ImageSet":
        """The set on a device, all of it: batches are then fetched there, and nothing travels while a model learns.

        For sets that are small beside the device's memory (CIFAR-10 takes 150 MB), and without workers: a process that
        is started for loading cannot use what lies on a GPU. The set itself if it is there already.
        """
        images, labels = self.images.to(device), self.labels.to(device)
        if images is self.images and labels is self.labels:
            return self
        return ImageSet(images, labels, self.classes, self.name, self.origin)

    def __repr__(self) -> str:
        size = "×".join(str(n) for n in self.images.shape[1:])
        return f"ImageSet({self.name}, {len(self):,} {self.origin} images {size}, {len(self.classes)} classes)"


def _as_tensor(indices) -> torch.Tensor:
    """Indices of any kind (an int, a list, a range, an array, a tensor) as a tensor; a single int has no dimension."""
    if isinstance(indices, torch.Tensor):
        return indices
    found = torch.as_tensor(list(indices) if isinstance(indices, range) else indices)
    return found.long() if found.numel() == 0 else found  # torch.as_tensor([]) would be floats


def _rows(values: torch.Tensor, index: torch.Tensor) -> torch.Tensor:
    """`values[index]`, a copy.

    On the CPU by way of NumPy, which copies in one thread: PyTorch would share the work among threads, and for a batch
    of small images waking them takes longer than the copying, most of all on a busy machine.
    """
    if values.is_cpu:
        return torch.from_numpy(values.numpy()[index.cpu().numpy()])
    return values[index.to(values.device)]


def loader(
    ds: Dataset,
    batch_size: int,
    shuffle: bool = False,
    seed: int | None = None,
    drop_last: bool = False,
    num_workers: int = 0,
    **options,
) -> DataLoader:
    """A DataLoader that asks the data set for whole batches.

    The usual DataLoader fetches images one by one and stacks them; with images in memory that stacking takes far longer
    than the reading. Here the *sampler* hands out lists of indices, `batch_size=None` tells the DataLoader not to
    make batches itself, and so each list reaches `ds[list]` as it is.

    seed: makes the shuffled order reproducible, whatever else uses random numbers; each epoch has an order of its own.
    options: passed on to DataLoader (pin_memory, persistent_workers, multiprocessing_context, ...).
    """
    generator = None if seed is None else torch.Generator().manual_seed(seed)
    order = RandomSampler(ds, generator=generator) if shuffle else SequentialSampler(ds)
    batches = BatchSampler(order, batch_size, drop_last)
    return DataLoader(ds, sampler=batches, batch_size=None, num_workers=num_workers, generator=generator, **options)
