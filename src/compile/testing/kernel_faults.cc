#include "compile/testing/kernel_faults.h"

#include <algorithm>
#include <cstring>
#include <random>
#include <vector>

#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"

namespace aicf::testing {
namespace {

const char* const kKinds[] = {"lost tail", "lost term", "dropped term", "one off", "wrong scale"};

// A tensor in memory: element `index` of its row-major order.
struct Place {
  const TensorRef& ref;
  std::vector<int64_t> sizes, strides;
  std::byte* base;

  Place(const TensorRef& tensor, const SymbolValues& symbols, std::byte* buffer)
      : ref(tensor),
        sizes(evaluate(tensor.sizes, symbols)),
        base(buffer + bytes() * evaluate(tensor.offset, symbols)) {
    for (const Dim& stride : tensor.strides) strides.push_back(evaluate(stride, symbols));
  }
  int64_t bytes() const { return dtype_bytes(ref.dtype); }
  int64_t count() const {
    int64_t count = 1;
    for (const int64_t size : sizes) count *= size;
    return count;
  }
  // Its place along `axis`, and where it is `moved` places on along it, or at its end.
  int64_t along(int64_t index, size_t axis) const {
    for (size_t a = sizes.size(); --a > axis;) index /= sizes[a];
    return index % sizes[axis];
  }
  std::byte* at(int64_t index, size_t axis = 0, int64_t moved = 0) const {
    std::byte* place = base;
    for (size_t a = sizes.size(); a-- > 0; index /= sizes[a]) {
      int64_t i = index % sizes[a];
      if (a == axis) i = std::min(i + moved, sizes[a] - 1);
      place += bytes() * i * strides[a];
    }
    return place;
  }
  std::vector<std::byte> read(size_t axis = 0, int64_t moved = 0) const {
    std::vector<std::byte> all(static_cast<size_t>(count() * bytes()));
    for (int64_t i = 0; i < count(); ++i)
      std::memcpy(all.data() + i * bytes(), at(i, axis, moved), static_cast<size_t>(bytes()));
    return all;
  }
  void write(const std::vector<std::byte>& all) const {
    for (int64_t i = 0; i < count(); ++i)
      std::memcpy(at(i), all.data() + i * bytes(), static_cast<size_t>(bytes()));
  }
};

bool overlap(const Place& a, const Place& b) {
  const auto last = [](const Place& p) { return p.at(p.count() - 1) + p.bytes(); };
  return a.base < last(b) && b.base < last(a);
}

// Every step a sequence of its own, so that memory can be changed between two.
class FaultySequence final : public Sequence {
 public:
  FaultySequence(Device& device, const Plan& plan, const EntryPlan& entry, const SymbolValues& sizes,
                 const BufferAddresses& addresses, const KernelFault& fault, bool* changed)
      : sizes_(sizes), addresses_(addresses.entry), fault_(fault), changed_(changed) {
    for (const Step& step : entry.steps) {
      auto alone = std::make_unique<EntryPlan>(entry);
      alone->steps = {step};
      steps_.push_back({device.bind(plan, *alone, nullptr, sizes, addresses),
                        step_key(plan, step) == fault.step, nullptr});
      steps_.back().plan = std::move(alone);
    }
  }
  ~FaultySequence() override {
    for (One& one : steps_) one.sequence.reset();
  }
  void set_address(int32_t buffer, std::byte* address) override {
    addresses_[static_cast<size_t>(buffer)] = address;
    for (One& one : steps_) one.sequence->set_address(buffer, address);
  }
  void run(Stream stream) override {
    for (One& one : steps_)
      if (one.faulty)
        run_wrong(one, stream);
      else
        one.sequence->run(stream);
  }
  void finish(Stream stream) override {
    for (One& one : steps_) one.sequence->finish(stream);
  }

 private:
  struct One {
    std::unique_ptr<Sequence> sequence;
    bool faulty;
    std::unique_ptr<EntryPlan> plan;
  };

  Place place(const TensorRef& ref) const {
    return {ref, sizes_, addresses_[static_cast<size_t>(ref.buffer)]};
  }

  // What the faulty kernel reads of its operand.
  std::vector<std::byte> misread(const Place& x) const {
    const auto axis = static_cast<size_t>(fault_.axis);
    std::vector<std::byte> all = fault_.kind == FaultKind::kOneOff ? x.read(axis, 1) : x.read();
    if (fault_.kind == FaultKind::kOneOff) return all;
    for (int64_t i = 0; i < x.count(); ++i)
      if (fault_.kind == FaultKind::kDroppedTerm || x.along(i, axis) == x.sizes[axis] - 1)
        std::memset(all.data() + i * x.bytes(), 0, static_cast<size_t>(x.bytes()));
    return all;
  }

  // What the faulty kernel leaves of a right result.
  std::vector<std::byte> miswritten(const Place& y, const std::vector<std::byte>& before) const {
    std::vector<std::byte> all = y.read();
    const size_t last = y.sizes.size() - 1;
    for (int64_t i = 0; i < y.count(); ++i) {
      std::byte* element = all.data() + i * y.bytes();
      if (fault_.kind == FaultKind::kLostTail) {
        const int64_t lost = std::max<int64_t>(1, y.sizes[last] / 16);
        if (y.along(i, last) >= y.sizes[last] - lost)
          std::memcpy(element, before.data() + i * y.bytes(), static_cast<size_t>(y.bytes()));
      } else {
        Array one(y.ref.dtype, {});
        std::memcpy(one.mutable_data(), element, static_cast<size_t>(y.bytes()));
        one.set_f64(0, 1.0625 * one.get_f64(0));
        std::memcpy(element, one.data(), static_cast<size_t>(y.bytes()));
      }
    }
    return all;
  }

  void run_wrong(One& one, Stream stream) {
    const Step& step = one.plan->steps[0];
    std::vector<Place> outputs;
    for (const TensorRef& ref : step.outputs) outputs.push_back(place(ref));
    if (fault_.kind == FaultKind::kLostTail || fault_.kind == FaultKind::kWrongScale) {
      const Place& y = outputs[static_cast<size_t>(fault_.operand)];
      const std::vector<std::byte> before = y.read();
      one.sequence->run(stream);
      const std::vector<std::byte> right = y.read(), wrong = miswritten(y, before);
      *changed_ = *changed_ || right != wrong;
      return y.write(wrong);
    }
    const Place x = place(step.inputs[static_cast<size_t>(fault_.operand)]);
    const std::vector<std::byte> operand = x.read();
    const auto contents = [&] {
      std::vector<std::vector<std::byte>> all;
      for (const Place& y : outputs) all.push_back(y.read());
      return all;
    };
    // A right run first, to see whether the fault changes anything; what it wrote is put back.
    const std::vector<std::vector<std::byte>> before = contents();
    one.sequence->run(stream);
    const std::vector<std::vector<std::byte>> right = contents();
    for (size_t i = 0; i < outputs.size(); ++i) outputs[i].write(before[i]);
    x.write(operand);
    x.write(misread(x));
    one.sequence->run(stream);
    const std::vector<std::vector<std::byte>> wrong = contents();
    x.write(operand);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (overlap(x, outputs[i])) outputs[i].write(wrong[i]);
      // The workspace of control flow is bytes.
      *changed_ = *changed_ || (step.outputs[i].dtype != DType::u8 && right[i] != wrong[i]);
    }
  }

  const SymbolValues sizes_;
  std::vector<std::byte*> addresses_;
  const KernelFault fault_;
  bool* changed_;
  std::vector<One> steps_;
};

class FaultyDevice final : public HostDevice {
 public:
  FaultyDevice(KernelFault fault, bool* changed)
      : cpu_(make_cpu_device({1, detect_isa()})), fault_(std::move(fault)), changed_(changed) {}
  std::string_view name() const override { return cpu_->name(); }
  int fitness(std::string_view target) const override { return cpu_->fitness(target); }
  std::unique_ptr<DeviceMemory> allocate(int64_t bytes) override { return cpu_->allocate(bytes); }
  std::shared_ptr<const Code> load_code(const Variant& variant) override { return cpu_->load_code(variant); }
  std::unique_ptr<Sequence> bind(const Plan& plan, const EntryPlan& entry, const Code* code,
                                 const SymbolValues& sizes, const BufferAddresses& addresses) override {
    if (entry.name == kInitEntry) return cpu_->bind(plan, entry, code, sizes, addresses);
    return std::make_unique<FaultySequence>(*cpu_, plan, entry, sizes, addresses, fault_, changed_);
  }

 private:
  const std::shared_ptr<Device> cpu_;
  const KernelFault fault_;
  bool* changed_;
};

}  // namespace

std::string KernelFault::text() const {
  return std::string(kKinds[static_cast<size_t>(kind)]) + ", operand " + std::to_string(operand) + ", axis " +
         std::to_string(axis) + " of " + step;
}

std::string step_key(const Plan& plan, const Step& step) {
  std::string key = step.kernel;
  for (const auto* list : {&step.inputs, &step.outputs})
    for (const TensorRef& ref : *list) key += " " + to_string(ref.sizes);
  if (step.program >= 0) key += "\n" + to_string(plan.programs[static_cast<size_t>(step.program)]);
  return key;
}

namespace {

bool only_moves(const Plan& plan, const Step& step) {
  if (step.program < 0) return false;
  const std::string text = to_string(plan.programs[static_cast<size_t>(step.program)]);
  for (size_t at = 0; (at = text.find(" = ", at)) != std::string::npos; at += 3)
    if (!text.substr(at + 3).starts_with("load.") && !text.substr(at + 3).starts_with("store.")) return false;
  return true;
}

}  // namespace

KernelFault draw_fault(const Plan& plan, uint64_t seed) {
  std::mt19937_64 engine(seed * 0x9E3779B97F4A7C15 + 1);
  const std::vector<Step>& steps = plan.entries[0].steps;
  for (;;) {
    const Step& step = steps[engine() % steps.size()];
    KernelFault fault{static_cast<FaultKind>(engine() % 5), step_key(plan, step)};
    const bool writes = fault.kind == FaultKind::kLostTail || fault.kind == FaultKind::kWrongScale;
    const std::vector<TensorRef>& operands = writes ? step.outputs : step.inputs;
    if (operands.empty()) continue;
    fault.operand = static_cast<int>(engine() % operands.size());
    const TensorRef& ref = operands[static_cast<size_t>(fault.operand)];
    if (!is_float(ref.dtype) && (writes || ref.dtype != DType::boolean)) continue;
    if (ref.sizes.empty()) continue;
    fault.axis = static_cast<int>(engine() % ref.sizes.size());
    fault.copies = only_moves(plan, step);
    return fault;
  }
}

std::shared_ptr<Device> make_faulty_cpu(const KernelFault& fault, bool* changed) {
  return std::make_shared<FaultyDevice>(fault, changed);
}

}  // namespace aicf::testing
