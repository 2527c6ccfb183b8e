"""What the fork server behind `%%torchrun` imports, for all processes that are forked from it (launcher.py)."""

from torchcourse import importing

# Every optimizer and every DistributedDataParallel imports the first one.
importing.load("torch._dynamo", "torchcourse.distributed.launcher")
