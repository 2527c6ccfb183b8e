"""The exercises of chapter 03: back to NumPy, weights that stay, a training run on the device, waits that hide."""

CHAPTER = "03_cpu_to_gpu"
EXERCISES = (
    "to_numpy",
    "keep_weights",
    "migrate_training",
    "quiet_evaluation",
    "choose_batch_size",
    "accumulate_epoch",
)
