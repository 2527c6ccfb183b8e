"""Exercises of chapter 02: a network, and the pieces of a training loop."""

CHAPTER = "02_training_loop"
EXERCISES = (
    "digit_network",
    "accuracy",
    "split_indices",
    "train_step",
    "evaluate_model",
    "repair_training",
    "momentum_step",
)
