"""The exercises of chapter 03: back to NumPy, weights that stay, modules and training on the device, hidden waits."""

CHAPTER = "03_cpu_to_gpu"
EXERCISES = ("to_numpy", "keep_weights", "make_portable", "migrate_training", "quiet_evaluation", "accumulate_epoch")
