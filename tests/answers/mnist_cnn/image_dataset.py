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
    "early": mutants(solution, KEPT, "= [transform(image) if transform else image for image in images],"),
    "calls": mutants(solution, CALLED, "image", "self.transform(self.transform(image))"),
    None: [
        *mutants(solution, "if self.transform:", "if True:"),
        *mutants(solution, CALLED, "self.transform(image / 255)"),
        *mutants(solution, "return len(self.images)", "return self.images.shape", "len(self.images)"),
        *mutants(solution, TAKEN, f"torch.manual_seed(index); {TAKEN}", "image = self.images[index - 1]"),
        *mutants(solution, RETURNED, "return int(self.labels[index]), image", "return image", "image"),
        *mutants(solution, RETURNED, f"self.images[index] = 0; {RETURNED}"),
        *mutants(solution, "int(self.labels[index])", "float(self.labels[index])", "self.labels[[index]]", "index"),
        *mutants(solution, f"image = {CALLED}", CALLED, "image = self.transform(self.images)[index]"),
    ],
}
