// Tensors that say they are on cuda:0 and whose keys send every operation to the practice GPU's kernel, and a guard for
// that device: what autograd asks about streams and events, with the answers of a device that is always idle.
#include <torch/extension.h>
#include <c10/core/impl/DeviceGuardImplInterface.h>
#include <torch/csrc/distributed/c10d/reducer_timer.hpp>

using c10::Device, c10::DeviceIndex, c10::DeviceType, c10::DispatchKey, c10::DispatchKeySet, c10::Stream;

static const Device gpu(DeviceType::CUDA, 0);

struct Guard final : c10::impl::DeviceGuardImplInterface {
  DeviceType type() const override { return DeviceType::CUDA; }
  Device exchangeDevice(Device) const override { return gpu; }
  Device getDevice() const override { return gpu; }
  void setDevice(Device device) const override {
    TORCH_CHECK(device.index() <= 0, "CUDA error: invalid device ordinal");
  }
  void uncheckedSetDevice(Device) const noexcept override {}
  Stream getStream(Device) const override { return Stream(Stream::DEFAULT, gpu); }
  Stream getDefaultStream(Device) const override { return Stream(Stream::DEFAULT, gpu); }
  Stream getStreamFromGlobalPool(Device, bool = false) const override { return Stream(Stream::DEFAULT, gpu); }
  Stream getNewStream(Device, int = 0) const override { return Stream(Stream::DEFAULT, gpu); }
  Stream exchangeStream(Stream stream) const override { return stream; }
  DeviceIndex deviceCount() const noexcept override { return 1; }
  void record(void** event, const Stream&, const DeviceIndex, const c10::EventFlag) const override {
    *event = reinterpret_cast<void*>(1);
  }
  void block(void*, const Stream&) const override {}
  bool queryEvent(void*) const override { return true; }
  bool queryStream(const Stream&) const override { return true; }
  void synchronizeStream(const Stream&) const override {}
  void synchronizeEvent(void*) const override {}
  void synchronizeDevice(const DeviceIndex) const override {}
};

static Guard guard;

namespace c10d {
// DDP times its steps on a GPU with events of CUDA.
struct NoTimer final : Timer {
  explicit NoTimer(c10::Device) {}
  std::optional<int64_t> measureDifference(Event, Event) override { return 0; }
};
C10_REGISTER_TYPED_CLASS_WITH_PRIORITY(TimerRegistry, c10::kCUDA, c10::REGISTRY_PREFERRED, NoTimer)
}  // namespace c10d

// The same bytes as a tensor on the stand-in, or back on the CPU. The memory lives as long as either tensor does.
static at::Tensor relabel(const at::Tensor& tensor, bool to_gpu) {
  const auto keys = to_gpu
      ? DispatchKeySet({DispatchKey::PrivateUse1, DispatchKey::AutogradPrivateUse1, DispatchKey::ADInplaceOrView,
                        DispatchKey::AutocastCUDA})
      : DispatchKeySet({DispatchKey::CPU, DispatchKey::AutogradCPU, DispatchKey::ADInplaceOrView,
                        DispatchKey::AutocastCPU});
  auto* kept = new c10::Storage(tensor.storage());
  c10::DataPtr bytes(const_cast<void*>(kept->data()), kept, [](void* it) { delete static_cast<c10::Storage*>(it); },
                     to_gpu ? gpu : Device(DeviceType::CPU));
  c10::Storage storage(c10::Storage::use_byte_size_t(), kept->nbytes(), std::move(bytes), nullptr, false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(std::move(storage), keys, tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return result;
}

PYBIND11_MODULE(standin_tensors, module) {
  module.def("relabel", &relabel);
  module.def("install", [] {
    c10::impl::device_guard_impl_registry[static_cast<size_t>(DeviceType::CUDA)].store(&guard);
  });
}
