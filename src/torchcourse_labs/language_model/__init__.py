"""The exercises of chapter 14: from text to tokens, to a network that writes, and to one that learns cheaply."""

CHAPTER = "14_language_model"
EXERCISES = (
    "merge_pairs",
    "shift_targets",
    "causal_attention",
    "parameter_count",
    "sample_token",
    "cached_attention",
    "lora_linear",
)
