#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "select/selector.h"

namespace aicf {
namespace {

// Smaller ones are not worth it: code that may overwrite what it reads cannot move reads past writes.
constexpr int64_t kLeastBytes = int64_t{1} << 28;

class Sharer {
 public:
  // `types`: of a root that is nobody else's memory, else null.
  Sharer(CallGraph& calls, const SymbolRanges& ranges, std::function<const TensorType*(ValueId)> types)
      : calls_(calls), ranges_(ranges), types_(std::move(types)) {
    for (size_t i = 0; i < calls_.calls.size(); ++i)
      for (const auto* list : {&calls_.calls[i].inputs, &calls_.calls[i].outputs})
        for (const Window& w : *list) {
          uses_.try_emplace(w.root, i, i);
          uses_.at(w.root).second = i;
        }
  }

  void run() {
    for (size_t i = 0; i < calls_.calls.size(); ++i)
      for (size_t output = 0; output < calls_.calls[i].outputs.size(); ++output) share(i, output);
    for (KernelCall& call : calls_.calls) call.elementwise.clear();
  }

 private:
  void share(size_t index, size_t output) {
    const KernelCall& call = calls_.calls[index];
    const Window& result = call.outputs[output];
    if (types_(result.root) == nullptr || uses_.at(result.root).first != index ||
        bytes_of(result.root) < kLeastBytes)
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
    if (types_(root) == nullptr || is_output(root) || !(from == result) || uses_.at(root).second != index ||
        !(bytes(root) == bytes(result.root)))
      return false;
    const auto other = [&](const std::vector<Window>& list, size_t own) {
      for (size_t i = 0; i < list.size(); ++i)
        if (i != own && list[i].root == root) return true;
      return false;
    };
    return !other(call.inputs, input) && !other(call.outputs, call.outputs.size());
  }

  // All that the calls up to this one did with `from` they do with `to`.
  void rename(ValueId from, ValueId to, size_t index) {
    for (size_t i = uses_.at(from).first; i <= index; ++i)
      for (auto* list : {&calls_.calls[i].inputs, &calls_.calls[i].outputs})
        for (Window& w : *list)
          if (w.root == from) w.root = to;
    for (Window& w : calls_.placement)
      if (w.root == from) w.root = to;
    uses_.at(to).first = uses_.at(from).first;
    uses_.erase(from);
  }

  bool is_output(ValueId root) const {
    const auto& roots = calls_.output_roots;
    return std::find(roots.begin(), roots.end(), root) != roots.end();
  }
  Dim bytes(ValueId root) const {
    const TensorType& type = *types_(root);
    return element_count(type.shape) * Dim(dtype_bytes(type.dtype));
  }
  int64_t bytes_of(ValueId root) const { return bounds(bytes(root), ranges_).hi; }

  CallGraph& calls_;
  const SymbolRanges& ranges_;
  std::function<const TensorType*(ValueId)> types_;
  std::map<ValueId, std::pair<size_t, size_t>> uses_;  // by root: the first and the last call
};

}  // namespace

void Selector::share_storage() {
  const auto types = [&](ValueId root) -> const TensorType* {
    if (root >= graph_.value_count()) {
      const ExtraValue& extra = result_.extra[static_cast<size_t>(root - graph_.value_count())];
      return extra.kind == ExtraValue::Kind::kTemp ? &extra.type : nullptr;
    }
    const Value& value = graph_.value(root);
    return value.role == Role::kTemp && !made_at_load_.contains(root) ? &value.type : nullptr;
  };
  Sharer(result_, options_.ranges, types).run();
}

}  // namespace aicf
