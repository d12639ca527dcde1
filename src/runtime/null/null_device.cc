#include "runtime/null/null_device.h"

#include "runtime/bind_control.h"
#include "runtime/bind_launch.h"
#include "runtime/bind_step.h"
#include "runtime/code_image.h"

namespace aicf {
namespace {

class NullMemory final : public DeviceMemory {
 public:
  NullMemory(int64_t bytes, std::shared_ptr<int64_t> allocated)
      : array_(DType::u8, {bytes}), allocated_(std::move(allocated)) {
    *allocated_ += bytes;
  }
  ~NullMemory() override { *allocated_ -= array_.bytes(); }
  std::byte* data() override { return static_cast<std::byte*>(array_.mutable_data()); }
  int64_t bytes() const override { return array_.bytes(); }

 private:
  Array array_;  // aligned as device memory is
  std::shared_ptr<int64_t> allocated_;
};

class NullSequence final : public Sequence {
 public:
  NullSequence(const Plan& plan, const EntryPlan& entry, const SymbolValues& sizes,
               const std::vector<std::byte*>& addresses, std::shared_ptr<std::vector<NullRecord>> records)
      : entry_(entry), calls_(entry.steps.size()), records_(std::move(records)) {
    for (size_t i = 0; i < entry.steps.size(); ++i) {
      bind_step(plan, entry, static_cast<int32_t>(i), sizes, calls_[i], patches_);
      check_launches(entry, entry.steps[i], calls_[i], sizes);
      if (!entry.steps[i].bodies.empty()) bind_control(plan, entry.steps[i], calls_[i], sizes);
    }
    for (size_t b = 0; b < addresses.size(); ++b)
      if (addresses[b] != nullptr) set_address(static_cast<int32_t>(b), addresses[b]);
  }

  void set_address(int32_t buffer, std::byte* address) override {
    for (const AddressPatch& patch : patches_) {
      if (patch.buffer != buffer) continue;
      BoundCall& call = calls_[static_cast<size_t>(patch.step)];
      (patch.output ? call.outputs : call.inputs)[static_cast<size_t>(patch.operand)].data =
          address + patch.byte_offset;
    }
  }

  void run(Stream stream) override {
    for (size_t i = 0; i < calls_.size(); ++i) {
      NullRecord record{entry_.steps[i].kernel, {}, stream};
      for (const auto* args : {&calls_[i].inputs, &calls_[i].outputs})
        for (const TensorArg& arg : *args) record.addresses.push_back(arg.data);
      records_->push_back(std::move(record));
    }
  }

  void finish(Stream) override {}

 private:
  const EntryPlan& entry_;
  std::vector<BoundCall> calls_;
  std::vector<AddressPatch> patches_;
  std::shared_ptr<std::vector<NullRecord>> records_;
};

class RecordingDevice final : public NullDevice {
 public:
  explicit RecordingDevice(bool own_memory) : own_memory_(own_memory) {}
  bool uses_host_memory() const override { return !own_memory_; }
  void order(Stream before, Stream after) override { records_->push_back({"", {}, after, before}); }
  std::string_view name() const override { return "null"; }
  int fitness(std::string_view) const override { return 1; }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override {
    return std::make_unique<NullMemory>(bytes, allocated_);
  }
  std::shared_ptr<const Code> load_code(const Variant& variant) override {
    for (const Array& image : variant.code) check_code_image(image);
    return nullptr;
  }
  std::unique_ptr<Sequence> bind(const Plan& plan, const EntryPlan& entry, const Code*,
                                 const SymbolValues& sizes, const BufferAddresses& addresses) override {
    return std::make_unique<NullSequence>(plan, entry, sizes, addresses.entry, records_);
  }
  const std::vector<NullRecord>& records() const override { return *records_; }
  int64_t allocated_bytes() const override { return *allocated_; }

 private:
  bool own_memory_;
  std::shared_ptr<int64_t> allocated_ = std::make_shared<int64_t>(0);
  std::shared_ptr<std::vector<NullRecord>> records_ = std::make_shared<std::vector<NullRecord>>();
};

}  // namespace

std::shared_ptr<NullDevice> make_null_device(bool own_memory) {
  return std::make_shared<RecordingDevice>(own_memory);
}

}  // namespace aicf
