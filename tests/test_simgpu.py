"""The practice GPU is compared with the CPU operation by operation, and with a real GPU where there is one."""

import copy
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable

import numpy as np
import pytest
import torch
from conftest import wait_until
from support.operations import OPS
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

from torchcourse import CourseError, device, models, simgpu

REAL = torch.accelerator.current_accelerator(check_available=True)
REAL = None if REAL is not None and REAL.type == "simgpu" else REAL  # another test file switched the practice GPU on


def hidden() -> dict[str, str]:
    """The environment of a process that does not see the GPU of this machine: there the practice GPU can be tested."""
    return os.environ | {"CUDA_VISIBLE_DEVICES": "", "HIP_VISIBLE_DEVICES": "", "ZE_AFFINITY_MASK": ""}


if REAL is not None:

    @pytest.mark.gpu
    def test_this_file_where_the_real_gpu_is_hidden():
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", __file__]
        done = subprocess.run(command, env=hidden(), capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stdout + done.stderr


@pytest.fixture
def gpu() -> torch.device:
    if REAL is not None:
        pytest.skip("runs in a process that does not see the real GPU: test_this_file_where_the_real_gpu_is_hidden")
    return simgpu.enable()


# ---------------------------------------- every operation, against the CPU


def tensors(result: object) -> list[torch.Tensor]:
    if isinstance(result, torch.Tensor):
        return [result]
    return [tensor for item in result for tensor in tensors(item)]


def run(compute: Callable, inputs: tuple, where: torch.device) -> tuple[list, list]:
    """Results and gradients of all inputs, computed on `where`."""
    moved = [x.detach().to(where).requires_grad_(x.is_floating_point()) for x in inputs]
    torch.manual_seed(1)
    results = tensors(compute(*moved))
    scores = [
        (r.float() * torch.arange(r.numel(), device=where).view(r.shape)).sum() for r in results if r.requires_grad
    ]
    if scores:
        sum(scores).backward()
    return results, [x.grad for x in moved]


@pytest.mark.parametrize("name", OPS)
def test_an_operation_equals_the_cpu_bit_for_bit(gpu, name):
    torch.manual_seed(0)
    make, compute = OPS[name]
    inputs = make()
    there, there_gradients = run(compute, inputs, gpu)
    here, here_gradients = run(compute, inputs, torch.device("cpu"))
    assert len(there) == len(here)
    for a, b in zip(there + there_gradients, here + here_gradients, strict=True):
        if b is None:
            assert a is None
            continue
        assert a.device == gpu and a.dtype == b.dtype and a.shape == b.shape
        assert torch.equal(a.cpu().nan_to_num(9.0), b.nan_to_num(9.0)), name


def test_an_operation_into_a_given_tensor(gpu):
    a, b = torch.randn(4, 3), torch.randn(4, 3)
    for size in ((0,), (4, 3)):
        out = torch.empty(size, device=gpu)
        result = torch.add(a.to(gpu), b.to(gpu), out=out)
        assert result is out and torch.equal(out.cpu(), a + b)
    largest, where = torch.empty(0, device=gpu), torch.empty(0, dtype=torch.long, device=gpu)
    torch.max(a.to(gpu), 1, out=(largest, where))
    assert torch.equal(where.cpu(), a.argmax(1))


def test_changes_in_place_reach_every_view(gpu):
    here = torch.zeros(4, 6)
    there = here.to(gpu)
    for x in (here, there):
        x[1] = 5
        x[:, ::2] += 1
        x.view(2, 12)[1].mul_(3).sub_(1)
        x.t()[3].fill_(-2)
        x[x > 10] = 10
        x[torch.tensor([0, 3])] *= 2
        x.unfold(1, 2, 2)[0, 0, 1] = 77
        x.diagonal().zero_()
        x[2].copy_(x[0])
        x.clamp_(max=50).add_(torch.tensor(0.5))
        torch.as_strided(x, (2, 2), (6, 1), 8).neg_()
    assert torch.equal(there.cpu(), here)
    row = there[1, 2:]
    assert row.untyped_storage().data_ptr() == there.untyped_storage().data_ptr()
    assert row.data_ptr() == there.data_ptr() + 4 * 8 and row._base is there
    assert there.resize_(5, 6).cpu()[:4].equal(here) and there.device == gpu


# ---------------------------------------- networks in training


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2), nn.Dropout2d(0.1)),
        *(nn.Conv2d(8, 8, 3), nn.GroupNorm(2, 8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Dropout(0.3)),
        *(nn.Linear(8, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 5)),
    )


def train(model, optimizer, where: torch.device, schedule: bool = False, inputs: torch.Tensor | None = None) -> list:
    """The losses of five steps, and what the network then makes of its inputs."""
    torch.manual_seed(2)
    inputs = torch.randn(12, 3, 8, 8) if inputs is None else inputs
    targets = torch.randint(0, 5, (12,))
    scheduler = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=0.1, total_steps=6) if schedule else None
    losses = []
    for _ in range(5):
        loss = F.cross_entropy(model(inputs.to(where)), targets.to(where))
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        if scheduler:
            scheduler.step()
        losses.append(loss.item())
    model.eval()
    with torch.inference_mode():
        losses.append(model(inputs.to(where)).sum().item())
    return losses


OPTIMIZERS = {
    "sgd": lambda p: torch.optim.SGD(p, 0.1),
    "momentum": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "sgd, fused": lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
    "adam": lambda p: torch.optim.Adam(p, 1e-2, weight_decay=1e-3),
    "adamw": lambda p: torch.optim.AdamW(p, 1e-2),
    "adamw, amsgrad": lambda p: torch.optim.AdamW(p, 1e-2, amsgrad=True, foreach=False),
    "adamw, fused": lambda p: torch.optim.AdamW(p, 1e-2, fused=True),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_training_gives_the_losses_of_the_cpu_bit_for_bit(gpu, name):
    here, there = network(), network().to(gpu)
    expected = train(here, OPTIMIZERS[name](here.parameters()), torch.device("cpu"), schedule="sgd" in name)
    assert train(there, OPTIMIZERS[name](there.parameters()), gpu, schedule="sgd" in name) == expected
    for a, b in zip(there.state_dict().values(), here.state_dict().values(), strict=True):
        assert a.device == gpu and torch.equal(a.cpu(), b)


@pytest.mark.parametrize("name", ["MnistExample", "MnistNet", "CifarTutorial", "CifarNet"])
def test_the_networks_of_the_course(gpu, name):
    dataset, size = ("mnist", (1, 28, 28)) if name.startswith("Mnist") else ("cifar10", (3, 32, 32))
    images = torch.randint(0, 256, (12, *size), dtype=torch.uint8)

    def losses(where: torch.device) -> list[float]:
        torch.manual_seed(0)
        model = nn.Sequential(models.Normalize(dataset), getattr(models, name)()).to(where)
        return train(model, torch.optim.SGD(model.parameters(), 0.01, momentum=0.9), where, inputs=images)

    assert losses(gpu) == losses(torch.device("cpu"))


def test_channels_last_is_kept_and_gives_the_same(gpu):
    x = torch.randn(2, 3, 8, 8).to(memory_format=torch.channels_last)
    there = x.to(gpu)
    assert there.is_contiguous(memory_format=torch.channels_last) and there.stride() == x.stride()
    assert there.cpu().stride() == x.stride() and there.add(1).stride() == x.stride()
    model = network().eval()
    expected = model.to(memory_format=torch.channels_last)(x)
    model = model.to(gpu, memory_format=torch.channels_last)
    assert model[0].weight.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(model(there).cpu(), expected)


def test_parameters_stay_the_same_objects_when_a_module_moves(gpu):
    model, expected = network(), network()
    before = list(model.parameters())
    optimizers = [torch.optim.SGD(each.parameters(), 0.1) for each in (model, expected)]
    model.to(gpu)
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True)) and before[0].device == gpu
    assert train(model, optimizers[0], gpu) == train(expected, optimizers[1], torch.device("cpu"))
    model.cpu()
    assert all(a is b for a, b in zip(before, model.parameters(), strict=True))
    assert before[0].device.type == before[0].grad.device.type == "cpu"


def test_an_optimizer_with_state_on_the_cpu_does_not_follow(gpu):
    model = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    model(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    model.to(gpu)
    model(torch.ones(1, 3, device=gpu)).sum().backward()
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        optimizer.step()


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_lowers_products_and_keeps_losses_in_float32(gpu, dtype):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(4 * 4, 5)).to(gpu)
    with torch.autocast(gpu.type, dtype=dtype):
        outputs = model(torch.randn(2, 3, 4, 4, device=gpu))
        loss = F.cross_entropy(outputs, torch.tensor([0, 1], device=gpu))
    assert outputs.dtype == dtype and loss.dtype == torch.float32
    loss.backward()
    assert all(p.grad.dtype == torch.float32 for p in model.parameters())
    assert model(torch.randn(2, 3, 4, 4, device=gpu)).dtype == torch.float32
    with torch.autocast("cpu"):
        assert (outputs.float() @ outputs.float().T).dtype == torch.float32


def test_gradient_scaler(gpu):
    model = nn.Linear(3, 2).to(gpu)
    before = model.weight.detach().clone()
    optimizer, scaler = torch.optim.SGD(model.parameters(), 0.1), torch.amp.GradScaler(gpu.type, init_scale=128.0)
    with torch.autocast(gpu.type):
        loss = model(torch.ones(2, 3, device=gpu)).sum()
    scaler.scale(loss).backward()
    scaler.step(optimizer)
    scaler.update()
    torch.testing.assert_close(model.weight.cpu(), before.cpu() - 0.2, rtol=0, atol=1e-2)


# ---------------------------------------- there and back again


def test_copies_there_and_back(gpu):
    x = torch.randn(4, 3)
    there = x.to(gpu)
    assert there.device == torch.device("simgpu:0") and not there.is_cpu and type(there) is torch.Tensor
    assert there.to(gpu) is there and there.data_ptr() not in (0, x.data_ptr())
    back = there.cpu()
    assert torch.equal(back, x) and back.data_ptr() != there.data_ptr()
    back += 1
    assert torch.equal(there.cpu(), x)
    assert there.tolist() == x.tolist() and there[1, 2].item() == x[1, 2].item()
    assert torch.equal(there.to("cpu", non_blocking=True), x)
    assert torch.equal(there.to("cpu", torch.float64), x.double())
    assert x.to("simgpu").device == gpu and x.to(there).device == gpu and there.new_zeros(2).device == gpu
    graph = x.clone().requires_grad_()
    graph.to(gpu).sum().backward()
    assert torch.equal(graph.grad, torch.ones(4, 3))


def test_the_numbers_print_with_their_device(gpu):
    assert repr(torch.arange(3.0, device=gpu)) == "tensor([0., 1., 2.], device='simgpu:0')"
    assert repr(torch.tensor(2, device=gpu)) == "tensor(2, device='simgpu:0')"
    assert "device='simgpu:0', requires_grad=True" in repr(nn.Parameter(torch.zeros(2, device=gpu)))
    assert f"{torch.tensor(1.25, device=gpu):.1f}" == "1.2"
    assert device.describe(gpu) == "simgpu (practice GPU, computes on the CPU)"


@pytest.mark.filterwarnings("ignore:__array__ implementation")
def test_numpy_and_matplotlib_are_refused_in_the_words_that_cuda_has(gpu):
    import matplotlib.pyplot as plt

    for convert in (torch.Tensor.numpy, np.asarray, np.array, np.sqrt, plt.plot):
        with pytest.raises(TypeError) as problem:
            convert(torch.ones(3, device=gpu))
        assert str(problem.value) == f"can't convert simgpu:0 device type tensor to numpy. {COPY_FIRST}"
    plt.close("all")


def test_torch_finds_the_accelerator_and_there_is_one(gpu):
    """`torch.Generator(7)` asks for the accelerator of number 7; people write it for a seed."""
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == 1
    assert torch.accelerator.current_accelerator(check_available=True).type == "simgpu"
    torch.accelerator.synchronize(gpu)
    assert simgpu.accelerator() == gpu == simgpu.enable()
    assert device.best().type == "simgpu"
    storage = lambda number: torch.UntypedStorage(4, device=torch.device(number))  # noqa: E731
    for make in (torch.Generator, torch.accelerator.set_device_index, storage):
        make(0)
        with pytest.raises(RuntimeError, match="invalid device ordinal"):
            make(7)


def test_default_device(gpu):
    with torch.device("simgpu"):
        assert torch.zeros(3).device == gpu and nn.Linear(2, 2).weight.device == gpu
        assert torch.get_default_device() == torch.device("simgpu:0")
        assert (torch.rand(4, 4) @ torch.rand(4, 4)).abs().sort()[0].device == gpu
    assert torch.zeros(3).device.type == "cpu"


def test_random_numbers_come_from_the_generator_of_the_cpu(gpu):
    torch.manual_seed(5)
    there = torch.randn(4, device=gpu)
    torch.manual_seed(5)
    assert torch.equal(there.cpu(), torch.randn(4))
    ours, other = torch.Generator(device=gpu).manual_seed(7), torch.Generator().manual_seed(7)
    assert ours.device == gpu and isinstance(ours, torch.Generator) and isinstance(other, torch.Generator)
    assert torch.equal(torch.rand(3, device=gpu, generator=ours).cpu(), torch.rand(3, generator=other))
    assert torch.randperm(5, device=gpu, generator=ours).device == gpu
    with pytest.raises(RuntimeError, match="Expected a 'simgpu' device type for generator but found 'cpu'"):
        torch.rand(3, device=gpu, generator=other)


def test_save_and_load_with_map_location(gpu, tmp_path):
    model = network().to(gpu)
    torch.save(model.state_dict(), tmp_path / "there.pt")
    torch.save(network().state_dict(), tmp_path / "here.pt")
    cases = [("there", None, "simgpu"), ("there", "cpu", "cpu"), ("here", gpu, "simgpu"), ("here", None, "cpu")]
    for name, location, expected in cases:
        state = torch.load(tmp_path / f"{name}.pt", map_location=location)
        assert {value.device.type for value in state.values()} == {expected}
        fresh = copy.deepcopy(model)
        with torch.no_grad():
            fresh[0].weight.zero_()
        assert model[0].weight.any()
        fresh.load_state_dict(state)
        assert torch.equal(fresh[0].weight, model[0].weight)


# ---------------------------------------- data loaders


@pytest.mark.parametrize("workers", [0, 2])
def test_loaders_with_pinned_memory(gpu, workers):
    ds = TensorDataset(torch.arange(20.0).view(10, 2), torch.arange(10))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches = list(DataLoader(ds, batch_size=4, pin_memory=True, num_workers=workers))
    assert all(x.is_pinned() and y.is_pinned() for x, y in batches)
    moved = torch.cat([x.to(gpu, non_blocking=True) for x, _ in batches])
    assert torch.equal(moved.cpu(), ds.tensors[0])


def test_pinned_memory(gpu):
    x = torch.randn(3)
    pinned = x.pin_memory()
    assert pinned.is_pinned() and not x.is_pinned() and torch.equal(x, pinned) and pinned.pin_memory() is pinned
    assert pinned[1:].is_pinned() and not pinned.clone().is_pinned()
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        x.to(gpu).pin_memory()


# ---------------------------------------- memory


def test_memory_is_counted_and_given_back(gpu):
    gc.collect()
    before = simgpu.memory_allocated()
    simgpu.reset_peak_memory_stats()
    x = torch.zeros(1000, 1000, device=gpu)
    view = x[10:]
    assert simgpu.memory_allocated() - before == 4_000_256  # a multiple of 512
    y = x + 1
    del x
    assert simgpu.memory_allocated() - before == 2 * 4_000_256  # the view keeps the memory
    del view, y
    assert simgpu.memory_allocated() == before
    assert simgpu.max_memory_allocated() - before == torch.accelerator.max_memory_allocated() - before == 2 * 4_000_256


def test_a_training_step_leaves_no_memory_behind(gpu):
    model = network().to(gpu)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    train(model, optimizer, gpu)
    optimizer.zero_grad()
    gc.collect()
    before = simgpu.memory_allocated()
    gc.disable()
    try:
        train(model, optimizer, gpu)
        optimizer.zero_grad()
        assert simgpu.memory_allocated() <= before + 4096
    finally:
        gc.enable()


def test_out_of_memory(gpu):
    gc.collect()
    leaf = torch.ones(1000, 1000, device=gpu, requires_grad=True)
    y = (leaf * leaf).sum()
    simgpu.set_memory_limit(simgpu.memory_allocated() + 5_000_000)
    try:
        with pytest.raises(torch.OutOfMemoryError, match="simgpu out of memory"):
            y.backward()  # in another thread
        x = torch.zeros(1000, 1000, device=gpu)
        with pytest.raises(torch.OutOfMemoryError, match=r"^simgpu out of memory\. Tried to allocate 3\.81 MiB"):
            x + 1
        del x
        torch.zeros(1000, 1000, device=gpu)
        # The thread of the backward pass lets go of its last tensor when it gets around to it.
        wait_until(lambda: torch.accelerator.get_memory_info()[0] == 5_000_000, seconds=60)
    finally:
        simgpu.set_memory_limit(None)


# ---------------------------------------- what must not change


CPU_FIRST = """
import sys, torch
assert torch.load(sys.argv[1], map_location="cpu")["x"].tolist() == [0, 1, 2], "a file opens without the practice GPU"
state = lambda: (torch.accelerator.current_accelerator(), torch.Generator, torch.UntypedStorage.__new__)
before = state()
import torchcourse; from torchcourse import simgpu, trace; from torchcourse.lectures import timeline
assert before == state() and not hasattr(torch, "simgpu"), "importing switches nothing on"
with simgpu.trace() as t: torch.ones(2).sum().item()
assert t.events == []
"""
TRAIN = """
import torch
x = torch.ones(3, requires_grad=True)
(x * 2).sum().backward()
from torchcourse import CourseError, simgpu
try:
    layer = torch.nn.Linear(3, 2).to(simgpu.enable())
    layer(torch.ones(4, 3, device="simgpu")).sum().backward()
    print(layer.weight.grad.tolist())
except CourseError as error:
    print(error)
"""


@pytest.mark.parametrize(
    ("first", "said"),
    [(CPU_FIRST, "[[4.0, 4.0, 4.0], [4.0, 4.0, 4.0]]"), ("", "Restart the kernel")],
    ids=["imported before", "imported after"],
)
def test_a_process_that_works_on_the_cpu_before_it_is_switched_on(gpu, tmp_path, first, said):
    """Without it, its files open, and importing it changes nothing. PyTorch counts devices at the first backward of a
    process: importing the module in time is enough."""
    torch.save({"x": torch.arange(3, device=gpu)}, tmp_path / "x.pt")
    command = [sys.executable, "-c", first + TRAIN, str(tmp_path / "x.pt")]
    environment = os.environ | {"CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert said in done.stdout, done.stderr


def test_work_on_the_cpu_goes_on_as_before(gpu):
    x = torch.randn(3, 4, requires_grad=True)
    (x @ x.T).sum().backward()
    assert x.grad.device.type == "cpu" and x.detach().numpy().shape == (3, 4)
    loader = DataLoader(TensorDataset(x.detach()), 2, shuffle=True, num_workers=1, generator=torch.Generator())
    assert sum(len(batch) for (batch,) in loader) == 3
    assert copy.deepcopy(x).device.type == "cpu"
    assert torch.utils.data.random_split(range(4), [2, 2], torch.Generator().manual_seed(0))[0].indices
    assert not torch.__future__.get_swap_module_params_on_conversion()
    with torch.random.fork_rng():
        torch.rand(1)


def test_where_it_cannot_be_switched_on_it_says_why(monkeypatch):
    monkeypatch.delattr(torch, "simgpu", raising=False)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: torch.device("cuda"))
    assert simgpu.accelerator() == torch.device("cuda")
    with pytest.raises(CourseError, match="This machine has a real accelerator, cuda"):
        simgpu.enable()
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda check_available=False: None)
    monkeypatch.delattr(simgpu.backend_registration, "_setup_privateuseone_for_python_backend")
    with pytest.raises(CourseError, match="does not let Python add a device"):
        simgpu.enable()


def test_what_the_practice_gpu_cannot_do_it_says_in_a_sentence(gpu):
    with pytest.raises(NotImplementedError, match="The practice GPU cannot compute"):
        nn.LSTM(3, 4).to(gpu)(torch.randn(5, 2, 3, device=gpu))


# ---------------------------------------- the same words and counts as a real GPU

# What a student does wrong, and the words of CUDA, with the device's name in place of "cuda".
COPY_FIRST = "Use Tensor.cpu() to copy the tensor to host memory first."
DEVICES = "Expected all tensors to be on the same device"
ARGUMENT = (
    f"{DEVICES}, but got %s is on cpu, different from other tensors on {{gpu}}:0 "
    "(when checking argument in method wrapper_{GPU}_%s)"
)
SLIPS = {
    "sum of two devices": ("x + x.to(gpu)", f"{DEVICES}, but found at least two devices, {{gpu}}:0 and cpu!"),
    "product of two devices": ("x.to(gpu) @ x.T", ARGUMENT % ("mat2", "mm")),
    "forgot the batch, linear": ("torch.nn.Linear(3, 2).to(gpu)(x)", ARGUMENT % ("mat1", "addmm")),
    "forgot the batch, convolution": (
        "torch.nn.Conv2d(1, 2, 3).to(gpu)(torch.ones(64, 1, 28, 28))",  # for one image, other words
        "Input type (torch.FloatTensor) and weight type (torch.{gpu}.FloatTensor) should be the same or input should "
        "be a MKLDNN tensor and weight is a dense tensor",
    ),
    "forgot the model": (
        "torch.nn.Conv2d(1, 2, 3)(torch.ones(1, 1, 4, 4, device=gpu))",
        "Input type (torch.{gpu}.FloatTensor) and weight type (torch.FloatTensor) should be the same",
    ),
    "forgot the labels": (
        "torch.nn.functional.cross_entropy(x.to(gpu), torch.tensor([0, 1]))",
        ARGUMENT % ("target", "nll_loss_forward"),
    ),
    "joined two devices": ("torch.cat([x, x.to(gpu)])", DEVICES),
    "index on the device": (
        "x[torch.tensor([0], device=gpu)]",
        "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    ),
    "numpy": ("x.to(gpu).numpy()", f"can't convert {{gpu}}:0 device type tensor to numpy. {COPY_FIRST}"),
    "generator of the CPU": (
        "torch.rand(3, device=gpu, generator=torch.Generator())",
        "Expected a '{gpu}' device type for generator but found 'cpu'",
    ),
    "allowed: a number": ("x.to(gpu) + torch.tensor(1.0)", ""),
    "allowed: indices of the CPU": ("x.to(gpu)[torch.tensor([0])]", ""),
}


@pytest.mark.gpu
@pytest.mark.parametrize("name", SLIPS)
def test_mistakes_meet_the_words_of_a_real_gpu(name):
    slip, expected = SLIPS[name]
    gpu = simgpu.accelerator()  # a real one where there is one: this is how the words in SLIPS are kept true
    if gpu.type not in ("simgpu", "cuda"):
        pytest.skip("the words of other accelerators differ")
    found = ""
    try:
        eval(slip, {"torch": torch, "x": torch.ones(2, 3), "gpu": gpu})
    except (RuntimeError, TypeError) as problem:
        found = str(problem).splitlines()[0]
    expected = expected.format(gpu=gpu.type, GPU="CUDA" if gpu.type == "cuda" else gpu.type)
    assert found.startswith(expected) if expected else not found, found
