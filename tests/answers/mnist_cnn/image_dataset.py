from support.answers import mutant, mutants

from torchcourse_labs.mnist_cnn.image_dataset import solution

CALLED, RETURNED, KEPT = "self.transform(image)", "return image, int(self.labels[index])", "= images,"
TAKEN = "image = self.images[index]"


class Pairs:
    def __init__(self, images, labels, transform=lambda image: image):
        self.pairs, self.change = list(zip(images, labels, strict=True)), transform

    def __len__(self):
        return len(self.pairs)

    def __getitem__(self, index):
        image, label = self.pairs[index]
        return [self.change(image), label]


RIGHT = [Pairs, mutant(solution, ("if self.transform:", "if self.transform is not None:"), ("(Dataset)", ""))]

WRONG = {
    "transform_is_none": mutants(solution, "if self.transform:", "if True:"),
    "early": [
        *mutants(solution, KEPT, "= [transform(image) if transform else image for image in images],"),
        *mutants(solution, KEPT, "= transform(images) if transform else images,"),
    ],
    "changed": mutants(solution, RETURNED, f"self.images[index] = 0; {RETURNED}"),
    "seeded": mutants(solution, TAKEN, f"torch.manual_seed(index); {TAKEN}"),
    "swapped": mutants(solution, RETURNED, "return int(self.labels[index]), image"),
    "calls": [
        *mutants(solution, CALLED, "image", "self.transform(self.transform(image))"),
        *mutants(solution, "def __getitem__", "@__import__('functools').cache\n    def __getitem__"),
    ],
    "unused": mutants(solution, f"image = {CALLED}", CALLED),
    None: [
        *mutants(solution, "__len__", "length"),
        *mutants(solution, "__getitem__", "get"),
        *mutants(solution, "len(self.images)", "len(self.images[0])"),
        *mutants(solution, RETURNED, "return image", "return {'image': image}", "image"),
        *mutants(solution, "int(self.labels[index])", "float(self.labels[index])", "self.labels[[index]]", "index"),
        *mutants(solution, CALLED, "self.transform(self.images)[index]"),
        *mutants(solution, TAKEN, f"{TAKEN}.float()", "image = self.images[index - 1]"),
        mutant(
            solution,
            ("if self.transform:", "image = image if self.transform else image[0]\n        if self.transform:"),
        ),
        lambda images, labels, transform=None: zip(images, labels, strict=True),
    ],
}
