"""Right answers stay right whatever the notebook has switched, and the switches stay as the notebook has set them."""

import contextlib
import os
import random
import sys
import tempfile
import warnings

import numpy as np
import pytest
import torch
from support.answers import EXERCISES, right
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack
from torch.utils._python_dispatch import TorchDispatchMode, _get_current_dispatch_mode_stack

from labcheck import evaluate, switches
from torchcourse import simgpu


class Meddling(TorchFunctionMode):
    """Nothing works any more."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("a mode that was left on")


class Zeros(TorchDispatchMode):
    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        raise RuntimeError("a mode that was left on")


@contextlib.contextmanager
def kept(read, write, value):
    before = read()
    write(value)
    try:
        yield
    finally:
        write(before)


def default_device(name):
    return kept(lambda: None, torch.set_default_device, name)


@contextlib.contextmanager
def deleted_folder():
    before = os.getcwd()
    with tempfile.TemporaryDirectory() as gone:
        os.chdir(gone)
    try:
        yield
    finally:
        os.chdir(before)


MATMUL = torch.backends.cuda.matmul
SWITCHES = {
    "default device meta": lambda: default_device("meta"),
    "default device practice GPU": lambda: default_device(simgpu.accelerator()),
    "float64": lambda: kept(torch.get_default_dtype, torch.set_default_dtype, torch.float64),
    "deterministic": lambda: kept(torch.get_deterministic_debug_mode, torch.set_deterministic_debug_mode, "error"),
    "inference mode": torch.inference_mode,
    "no gradients": torch.no_grad,
    "anomaly detection": lambda: torch.autograd.set_detect_anomaly(True),
    "warnings are errors": lambda: warnings.catch_warnings(action="error"),
    "NumPy raises": lambda: np.errstate(all="raise"),
    "matmul precision": lambda: kept(torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"),
    # The old and the new switch at odds: asking the old one raises from then on.
    "new precision switches": lambda: kept(
        lambda: MATMUL.fp32_precision, lambda value: setattr(MATMUL, "fp32_precision", value), "tf32"
    ),
    "autocast": lambda: torch.autocast("cpu", torch.bfloat16),
    "a function mode": Meddling,
    "a dispatch mode": Zeros,
    "an open trace": simgpu.trace,
    "a folder that is gone": deleted_folder,
}
TOGETHER = ("a folder that is gone", "default device meta", "float64", "deterministic", "no gradients", "autocast")
TOGETHER += ("a dispatch mode", "a function mode", "NumPy raises", "warnings are errors", "matmul precision")


def state() -> dict[str, object]:
    """All that the tests switch, as the notebook sees it, read without functions that a mode would see."""
    try:
        folder = os.getcwd()
    except FileNotFoundError:
        folder = None
    try:
        old_precision = torch._C._get_float32_matmul_precision()
    except RuntimeError:
        old_precision = "refused"
    onednn = torch.backends.mkldnn
    return {
        "modes": [*_get_current_function_mode_stack(), *_get_current_dispatch_mode_stack()],
        "device": getattr(torch._GLOBAL_DEVICE_CONTEXT, "device_context", None),
        "dtype": torch.get_default_dtype(),
        "deterministic": torch.get_deterministic_debug_mode(),
        "gradients": (torch.is_grad_enabled(), torch.is_inference_mode_enabled()),
        "anomaly": (torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()),
        "threads": torch.get_num_threads(),
        "print": (torch._tensor_str.get_printoptions(), np.get_printoptions()),
        "warnings": list(warnings.filters),
        "numpy": np.geterr(),
        "precision": (old_precision, torch.backends.fp32_precision, MATMUL.fp32_precision),
        "onednn": (onednn.fp32_precision, onednn.matmul.fp32_precision),
        "autocast": [(torch.is_autocast_enabled(kind), torch.get_autocast_dtype(kind)) for kind in ("cpu", "cuda")],
        "cache": torch.is_autocast_cache_enabled(),
        "depth": (torch.autocast_increment_nesting(), torch.autocast_decrement_nesting()),
        "streams": (sys.stdout, sys.stderr),
        "folder": folder,
        "random": (random.getstate(), np.random.get_state()[1].tolist()),
    }


def judge_all(answers: dict[str, object], *names: str) -> None:
    """Each answer is correct under these switches, which are as they were after it, as are random numbers."""
    wrong, random_state = [], torch.get_rng_state()
    with contextlib.ExitStack() as stack:
        for name in names:
            stack.enter_context(SWITCHES[name]())
        for name, answer in answers.items():
            before = state()
            result = evaluate(name, answer, seed=1)
            after = state()
            moved = [key for key in before if before[key] != after[key]]
            if result.outcome != "correct" or moved:
                wrong.append((result, moved))
    assert not wrong, "\n".join(f"{result.text}\nchanged: {moved}" for result, moved in wrong)
    assert torch.equal(random_state, torch.get_rng_state())


@pytest.mark.parametrize("switch", SWITCHES)
def test_right_answers_stay_right(switch):
    """Values, training, layouts and exported models; all others with many switches at once."""
    names = ("slope", "repair_training", "keep_layout", "same_answers")
    judge_all({name: right(name)[1] for name in names}, switch)  # made before the switch


@pytest.mark.weekly
def test_every_exercise_with_many_switches_at_once():
    judge_all({name: right(name)[0] for name in EXERCISES}, *TOGETHER)


def test_an_answer_cannot_switch_anything():
    """What the student's function leaves on ends with the check."""

    def answer(*args):
        torch.set_default_device("meta")
        torch.set_default_dtype(torch.float64)
        torch.set_num_threads(torch.get_num_threads() + 1)
        torch.set_printoptions(precision=1)
        torch.set_float32_matmul_precision("medium")
        torch.backends.mkldnn.conv.fp32_precision = "bf16"
        torch.set_grad_enabled(False)
        torch.autograd.set_detect_anomaly(True)
        torch.autocast("cpu").__enter__()
        torch.inference_mode().__enter__()
        Meddling().__enter__()
        Zeros().__enter__()
        warnings.simplefilter("error")
        np.seterr(all="raise")
        sys.stdout = None
        os.chdir("/")
        random.seed(1)
        np.random.seed(1)
        raise RuntimeError("and then this")

    before = state()
    result = evaluate("slope", answer)
    assert result.outcome == "error" and "and then this" in result.text
    assert state() == before


def test_a_mode_that_an_answer_leaves_on_is_no_way_to_be_right():
    """It sees the comparison of the check, and can say yes to everything."""

    class Agreeable(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):
            return torch.ones((), dtype=torch.bool) if func is torch.isclose else func(*args, **(kwargs or {}))

    def answer(images):
        Agreeable().__enter__()
        return images / 254

    result = evaluate("scale_pixels", answer)
    assert result.outcome == "incorrect" and "Agreeable" in result.text
    assert evaluate("scale_pixels", lambda images: torch.set_default_device("cpu") or images / 255).correct


def test_an_answer_that_needs_a_switch_is_told_so():
    """A tensor made under the switch, in a cell above, meets inputs made under the defaults."""
    with default_device("meta"):
        white = torch.tensor(255.0)
        result = evaluate("scale_pixels", lambda images: images / white)
    assert result.outcome != "correct" and "default device meta" in result.text
    assert "default" not in evaluate("scale_pixels", lambda images: images / 254).text


def test_a_check_wakes_no_gpu_and_leaves_it_the_seed_of_the_notebook(monkeypatch):
    """A context on a GPU costs a second and hundreds of MiB, in each kernel that has one."""
    seeds = []
    monkeypatch.setattr(switches.device, "best", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: False)
    monkeypatch.setattr(torch.cuda, "get_rng_state", lambda device: pytest.fail("it was asked"))
    monkeypatch.setattr(torch.cuda, "manual_seed_all", seeds.append)  # until it is awake PyTorch keeps the last
    torch.manual_seed(7)
    expected = torch.rand(3)
    torch.manual_seed(7)
    with switches.neutral():
        torch.manual_seed(8)
    assert torch.equal(torch.rand(3), expected) and seeds[-2:] == [8, 7]


def test_the_note_names_what_can_matter():
    with torch.autocast("cpu"), torch.no_grad(), Zeros(), switches.neutral() as seen:
        assert torch.is_grad_enabled() and not torch.is_autocast_enabled("cpu")
    assert seen.changed == ["Zeros on", "gradients off", "autocast on for cpu"]
    with switches.neutral() as seen:
        pass
    assert seen == switches.Seen()
