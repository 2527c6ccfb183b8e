"""The exercises of chapter 05: better networks for CIFAR-10, and how to know that they are better."""

CHAPTER = "05_cifar_cnn"
EXERCISES = (
    "channel_statistics",
    "augment_batch",
    "residual_block",
    "parameter_groups",
    "gain_interval",
    "train_within",
    "smoothed_loss",
)
