"""The exercises of chapter 07: spacing of numbers, master weights, an overflow, the scaled step, a run rescued."""

CHAPTER = "07_mixed_precision"
EXERCISES = ("spacing_of", "master_step", "safe_loss", "scaled_step", "rescue_fp16", "own_scaler")
