"""What several exercises say."""

from labcheck.authoring import raises_like

MODEL_FIRST = raises_like(
    "model_first",
    "You shard the model before its blocks: the first call takes all parameters, and none are left for them.",
    "Invariant encountered",
    look="the inner modules first, the model last",
)
