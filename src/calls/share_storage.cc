// Large results take the memory of operands that they replace element by element, on a GPU: all that calls
// did with the operand's root they then do with the result's.
#include <utility>

#include "calls/call_windows.h"
#include "calls/legality.h"
#include "calls/rule_site.h"

namespace aicf {
namespace {

// Smaller ones are not worth it: code that may overwrite what it reads cannot move reads past writes.
constexpr int64_t kLeastBytes = int64_t{1} << 28;

class Sharer {
 public:
  explicit Sharer(CallGraph& calls) : calls_(calls), legality_(calls) {}

  void run() {
    for (size_t i = 0; i < calls_.calls.size(); ++i)
      for (size_t output = 0; output < calls_.calls[i].outputs.size(); ++output) share(i, output);
    for (KernelCall& call : calls_.calls) call.elementwise.clear();
  }

 private:
  void share(size_t index, size_t output) {
    const KernelCall& call = calls_.calls[index];
    const Window& result = call.outputs[output];
    if (!calls_.is_temp(result.root) || legality_.life(result.root).first != index ||
        most_bytes(calls_, result.root) < kLeastBytes)
      return;
    for (int32_t number : call.elementwise)
      if (replaces(index, static_cast<size_t>(number), output))
        return rename(call.inputs[static_cast<size_t>(number)].root, result.root, index);
  }

  // Whether the input's memory is free from this call on, and is what the result needs.
  bool replaces(size_t index, size_t input, size_t output) const {
    const KernelCall& call = calls_.calls[index];
    const Window& result = call.outputs[output];
    Window from = call.inputs[input];
    const ValueId root = std::exchange(from.root, result.root);
    if (!calls_.is_temp(root) || calls_.is_output(root) || !(from == result) ||
        legality_.life(root).end != index + 1 || !(bytes(root) == bytes(result.root)))
      return false;
    return count_root(call.inputs, root) == 1 && !has_root(call.outputs, root);
  }

  // All that the calls up to this one did with `from` they do with `to`.
  void rename(ValueId from, ValueId to, size_t index) {
    for (size_t i = legality_.life(from).first; i <= index; ++i) {
      KernelCall call = legality_.replace(i, KernelCall());
      for (auto* list : {&call.inputs, &call.outputs})
        for (Window& w : *list)
          if (w.root == from) w.root = to;
      legality_.replace(i, std::move(call));
    }
    for (Window& w : calls_.placement)
      if (w.root == from) w.root = to;
  }

  Dim bytes(ValueId root) const {
    const TensorType& type = calls_.type_of(root);
    return element_count(type.shape) * Dim(dtype_bytes(type.dtype));
  }

  CallGraph& calls_;
  Legality legality_;
};

}  // namespace

void share_storage(const RuleSite& site) { Sharer(site.graph).run(); }

}  // namespace aicf
