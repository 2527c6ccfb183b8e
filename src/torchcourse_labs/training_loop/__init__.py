"""Exercises of chapter 02: a gradient by hand, and the pieces of a training loop."""

CHAPTER = "02_training_loop"
EXERCISES = (
    "gradient_by_hand",
    "accuracy",
    "split_indices",
    "train_step",
    "evaluate_model",
    "repair_training",
    "momentum_step",
)
