"""A rehearsal of `make gpu` on a machine without a GPU: `python -m tools.standin make gpu PARTS=run`.

Every Python process of the command sees one CUDA device that is not there. Its tensors say that they are on cuda:0,
PyTorch treats them so (autocast, errors about two devices, defaults that depend on the device), and they are computed
on the CPU. So all lines that run only on a GPU are executed, with real numbers. What it cannot show: anything of speed,
of the order in which a GPU works, of its own libraries, of Triton (models on the device are compiled by the backend
"eager"), and of nccl.

How it works. A tensor of PyTorch has a device and, apart from it, keys that choose its kernels. `tensors.cpp` makes
tensors whose device is cuda:0 and whose keys are those of a device that PyTorch does not know. For these, the practice
GPU (`torchcourse.simgpu`) has a kernel for every operation. `hooks.cpp` answers PyTorch's own questions about CUDA, and
`site/standin_device.py` those that go through `torch.cuda`. `site/sitecustomize.py` brings all three into a process
when it imports torch.
"""
