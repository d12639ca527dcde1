#include "runtime/cuda/cuda_device.h"

#include <algorithm>

#include "base/error.h"
#include "base/profiler_range.h"
#include "runtime/cuda/cuda_context.h"
#include "runtime/cuda/cuda_graphs.h"
#include "runtime/cuda/launches.h"
#include "runtime/cuda/staged_upload.h"
#include "runtime/variant_fit.h"

namespace aicf {
namespace {

using cuda::driver;

class CudaSequence final : public Sequence {
 public:
  CudaSequence(std::shared_ptr<cuda::DeviceContext> context, const Plan& plan, const EntryPlan& entry,
               const cuda::Modules& modules, const SymbolValues& sizes, const BufferAddresses& addresses,
               bool graphs)
      : context_(std::move(context)),
        graphs_(graphs),
        launches_(context_, plan, entry, modules, sizes, addresses.bodies) {
    for (size_t b = 0; b < addresses.entry.size(); ++b)
      if (addresses.entry[b] != nullptr) launches_.set_address(static_cast<int32_t>(b), addresses.entry[b]);
  }
  ~CudaSequence() override { context_->enter_if_alive(); }

  void set_address(int32_t buffer, std::byte* address) override {
    if (launches_.address(buffer) == address) return;
    context_->enter();
    launches_.set_address(buffer, address);
  }

  void run(Stream stream) override {
    context_->enter();
    if (launches_.kernels().empty()) return;
    const cuda::CallsFor scope = launches_.calls_for_all();
    launches_.report_errors();  // of earlier runs that nobody waited for
    if (!graphs_) return launch_one_by_one(context_->stream(stream));
    if (graph_ == nullptr || launches_.needs_capture()) {
      graph_ = std::make_unique<cuda::CapturedGraph>(launches_, context_->arch() >= 90);
    } else if (launches_.changed()) {
      graph_->update(launches_);
    }
    graph_->launch(context_->stream(stream));
  }

  void finish(Stream stream) override {
    const cuda::CallsFor scope = launches_.calls_for_all();
    context_->enter();
    AICF_CUDA(driver().stream_synchronize(context_->stream(stream)));
    launches_.report_errors();
  }

  std::vector<double> profile(int repeats) override {
    const cuda::CallsFor scope = launches_.calls_for_all();
    context_->enter();
    if (launches_.kernels().empty()) return {};
    cuda::TimedGraph graph(launches_);
    std::vector<std::vector<double>> samples(launches_.kernels().size());
    for (int i = 0; i < repeats + 1; ++i) {
      const std::vector<double> times = graph.run(context_->stream({}));
      for (size_t k = 0; i > 0 && k < times.size(); ++k) samples[k].push_back(times[k]);
    }
    std::vector<double> steps(launches_.step_count(), 0.0);
    const std::vector<double> times = medians(std::move(samples));
    for (size_t k = 0; k < times.size(); ++k)
      steps[static_cast<size_t>(launches_.kernels()[k].step)] += times[k];
    return steps;
  }

  std::string coverage() const override {
    const std::string count = std::to_string(launches_.kernel_count());
    return graphs_ ? count + "/" + count + " kernels in 1 graph" : "0/" + count + " kernels in a graph";
  }

 private:
  void launch_one_by_one(cuda::StreamHandle stream) {
    for (cuda::Launches::Kernel& kernel : launches_.kernels()) {
      const ProfilerRange range(launches_.step(kernel).kernel.c_str());
      const cuda::CallsFor scope = launches_.calls_for(kernel);
      if (kernel.library != nullptr) {
        launches_.enqueue(kernel, stream);
        continue;
      }
      if (kernel.control != nullptr) {
        cuda::run_control(launches_, kernel, stream);
        continue;
      }
      cuda::LaunchAttribute cluster;
      cluster.id = cuda::kClusterDimension;
      cluster.value.cluster[0] = static_cast<unsigned>(kernel.cluster);
      cluster.value.cluster[1] = cluster.value.cluster[2] = 1;
      cuda::LaunchConfig config;
      for (int i = 0; i < 3; ++i)
        config.grid[i] = kernel.node.grid[i], config.block[i] = kernel.node.block[i];
      config.shared_bytes = kernel.node.shared_bytes;
      config.stream = stream;
      config.attributes = &cluster;
      config.attribute_count = kernel.cluster > 1 ? 1 : 0;
      AICF_CUDA(driver().launch(&config, kernel.node.func, kernel.node.params, nullptr));
    }
  }

  std::shared_ptr<cuda::DeviceContext> context_;
  bool graphs_;
  cuda::Launches launches_;
  std::unique_ptr<cuda::CapturedGraph> graph_;
};

class CudaDevice final : public Device {
 public:
  explicit CudaDevice(const CudaOptions& options)
      : context_(
            std::make_shared<cuda::DeviceContext>(options.ordinal, options.allocator, options.memory_limit)),
        name_("sm_" + std::to_string(context_->arch())),
        graphs_(options.graphs) {}

  std::string_view name() const override { return name_; }
  DeviceId id() const override { return {true, context_->ordinal()}; }

  int fitness(std::string_view target) const override { return variant_fit(target, context_->arch()); }
  int64_t alignment(int64_t) const override { return kCudaAlignment; }
  bool uses_host_memory() const override { return false; }

  void upload(std::byte* to, const void* from, int64_t bytes, Stream stream) override {
    if (bytes == 0) return;
    context_->enter();
    AICF_CUDA(driver().copy_in(address_of(to), from, static_cast<size_t>(bytes), context_->stream(stream)));
    // Pageable memory is read before the call returns, page-locked memory some time later.
    if (cuda::pointer_attribute(from, cuda::kPointerMemoryType, 0) == cuda::kMemoryTypeHost)
      AICF_CUDA(driver().stream_synchronize(context_->stream(stream)));
  }
  void upload_all(const std::vector<Transfer>& transfers) override {
    int64_t bytes = 0;
    for (const Transfer& transfer : transfers) bytes += transfer.bytes;
    if (bytes < cuda::kLeastStagedBytes) return Device::upload_all(transfers);
    cuda::staged_upload(context_, transfers);
  }
  void download(void* to, const std::byte* from, int64_t bytes, Stream stream) override {
    if (bytes == 0) return;
    context_->enter();
    AICF_CUDA(driver().copy_out(to, address_of(from), static_cast<size_t>(bytes), context_->stream(stream)));
    AICF_CUDA(driver().stream_synchronize(context_->stream(stream)));
  }
  void copy(std::byte* to, const std::byte* from, int64_t bytes, Stream stream) override {
    if (bytes == 0) return;
    context_->enter();
    AICF_CUDA(driver().copy_within(address_of(to), address_of(from), static_cast<size_t>(bytes),
                                   context_->stream(stream)));
  }
  void zero(std::byte* to, int64_t bytes, Stream stream) override {
    if (bytes == 0) return;
    context_->enter();
    AICF_CUDA(driver().fill_bytes(address_of(to), 0, static_cast<size_t>(bytes), context_->stream(stream)));
  }
  void wait(Stream stream) override {
    context_->enter();
    AICF_CUDA(driver().stream_synchronize(context_->stream(stream)));
  }
  void order(Stream before, Stream after) override {
    context_->enter();
    context_->order(context_->stream(before), context_->stream(after));
  }
  void* handle_of(Stream stream) const override { return context_->stream(stream); }
  // Page-locked memory of the host is every device's, whichever was current when it was made.
  DeviceId owner_of(const void* address) const override {
    if (cuda::pointer_attribute(address, cuda::kPointerMemoryType, 0) == cuda::kMemoryTypeHost) return id();
    return {true, cuda::pointer_attribute(address, cuda::kPointerOrdinal, id().ordinal)};
  }

  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return std::make_unique<cuda::Memory>(context_, bytes);
  }
  std::shared_ptr<const Code> load_code(const Variant& variant) override {
    return std::make_shared<cuda::Modules>(context_, variant.code);
  }
  std::unique_ptr<Sequence> bind(const Plan& plan, const EntryPlan& entry, const Code* code,
                                 const SymbolValues& sizes, const BufferAddresses& addresses) override {
    context_->enter();
    const auto& modules = dynamic_cast<const cuda::Modules&>(*code);
    return std::make_unique<CudaSequence>(context_, plan, entry, modules, sizes, addresses, graphs_);
  }

 private:
  static cuda::Address address_of(const std::byte* pointer) {
    return reinterpret_cast<cuda::Address>(pointer);
  }

  std::shared_ptr<cuda::DeviceContext> context_;
  std::string name_;
  bool graphs_;
};

}  // namespace

std::shared_ptr<Device> make_cuda_device(const CudaOptions& options) {
  return std::make_shared<CudaDevice>(options);
}

std::vector<int> cuda_architectures() {
  int count = 0;
  AICF_CUDA(driver().device_count(&count));
  std::vector<int> architectures;
  for (int ordinal = 0; ordinal < count; ++ordinal) {
    cuda::Device device = 0;
    AICF_CUDA(driver().device_get(&device, ordinal));
    architectures.push_back(cuda::architecture_of(device));
  }
  return architectures;
}

std::optional<CudaLimits> cuda_limits(int ordinal) {
  // Operations that a multiprocessor ends in a cycle, of data sheets: f16 on matrix units, f32 beside them.
  struct Rates {
    int arch;
    double half, single;
  };
  constexpr Rates kRates[] = {
      {80, 2048, 128}, {86, 1024, 256}, {89, 1024, 256}, {90, 4096, 256}, {100, 8192, 256}};
  constexpr double kCacheBytes = 64;  // that a multiprocessor gets in a cycle
  cuda::Device device = 0;
  AICF_CUDA(driver().device_get(&device, ordinal));
  const auto attribute = [&](int which) {
    int value = 0;
    AICF_CUDA(driver().device_attribute(&value, which, device));
    return static_cast<double>(value);
  };
  const int arch = static_cast<int>(10 * attribute(cuda::kComputeMajor) + attribute(cuda::kComputeMinor));
  const double cycles = 1e-3 * attribute(cuda::kClockKhz);  // a microsecond
  const double units = attribute(cuda::kMultiprocessors);
  // Two transfers a cycle.
  const double memory = 2e-3 * attribute(cuda::kMemoryClockKhz) * attribute(cuda::kMemoryBusBits) / 8;
  for (const Rates& rates : kRates)
    if (rates.arch == arch && cycles > 0 && memory > 0)
      return CudaLimits{memory, units * cycles * kCacheBytes, attribute(cuda::kCacheBytes),
                        units * cycles * rates.half, units * cycles * rates.single};
  return std::nullopt;
}

double CudaLimits::least_microseconds(const Work& work, Units units, DType x) const {
  const int64_t bytes = dtype_bytes(x);
  const bool matrix_units = units != Units::kScalar;
  double rate = float_flops;
  if (matrix_units && bytes <= 2) rate = bytes == 1 ? 2 * half_flops : half_flops;
  if (units == Units::kMatrixTf32 && bytes == 4) rate = half_flops / 2;
  if (units == Units::kMatrixTf32x3) rate = half_flops / 6;
  // What fits into the cache may lie in it.
  const double cached = std::min(work.sure_bytes, cache_size);
  return std::max(cached / cache_bytes + (work.sure_bytes - cached) / memory_bytes, work.flops / rate);
}

std::vector<CudaFacts> cuda_devices() {
  int version = 0;
  AICF_CUDA(driver().driver_version(&version));
  std::vector<CudaFacts> devices;
  for (const int arch : cuda_architectures()) {
    const int ordinal = static_cast<int>(devices.size());
    CudaFacts facts;
    facts.arch = arch;
    facts.driver_version = version;
    cuda::Device device = 0;
    AICF_CUDA(driver().device_get(&device, ordinal));
    char name[256] = {};
    AICF_CUDA(driver().device_name(name, sizeof(name), device));
    facts.name = name;
    AICF_CUDA(driver().device_attribute(&facts.multiprocessors, cuda::kMultiprocessors, device));
    const cuda::DeviceContext context(ordinal);
    context.enter();
    size_t free = 0, total = 0;
    AICF_CUDA(driver().memory_info(&free, &total));
    facts.memory_bytes = static_cast<int64_t>(total);
    devices.push_back(std::move(facts));
  }
  return devices;
}

}  // namespace aicf
