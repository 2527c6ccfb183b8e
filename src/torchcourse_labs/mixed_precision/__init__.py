"""The exercises of chapter 07: spacing of numbers, an overflow found, the scaled step, a run rescued, a choice made."""

CHAPTER = "07_mixed_precision"
EXERCISES = ("spacing_of", "safe_loss", "scaled_step", "rescue_fp16", "choose_dtype", "own_scaler")
