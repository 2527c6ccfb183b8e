"""What several exercises of this chapter need."""

import contextlib
import io
import logging
import warnings

SECONDS = 60.0  # for a check that exports, traces or compiles: the first one imports much of PyTorch


def quietly() -> contextlib.ExitStack:
    """Without what PyTorch prints, warns of and logs when an export or a file fails."""
    stack = contextlib.ExitStack()
    stack.enter_context(warnings.catch_warnings(action="ignore"))
    stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
    stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
    for name in ("torch.export", "torch.fx.experimental.symbolic_shapes", "torch._library"):
        log = logging.getLogger(name)
        stack.callback(log.setLevel, log.level)
        log.setLevel(logging.CRITICAL)
    return stack


def first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
