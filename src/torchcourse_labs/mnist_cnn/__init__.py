"""The exercises of chapter 04: a learned kernel, a network to a budget, a data set, going on exactly."""

CHAPTER = "04_mnist_cnn"
EXERCISES = (
    "conv_size",
    "learn_kernel",
    "small_net",
    "image_dataset",
    "go_on_exactly",
    "train_garments",
    "receptive_field",
)
