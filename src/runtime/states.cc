#include "runtime/states.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/limits.h"
#include "plan/arena.h"

namespace aicf {
States::States(const Model& model) : model_(model) {
  const std::set<std::string> owned = owned_variables(model.plan());
  int64_t bytes = 0;
  for (const PlanVariable& v : model.plan().variables) {
    if (!owned.contains(v.name)) continue;
    State state{v.dtype, evaluate(v.sizes, {}), 0, 0};
    if (std::any_of(state.sizes.begin(), state.sizes.end(), [](int64_t size) { return size < 0; }))
      throw UserError(ErrorCode::kU_bad_artifact, "a state has a negative size").with_op(v.name);
    state.bytes = checked_mul(element_count(state.sizes), dtype_bytes(v.dtype));
    state.offset = aligned_offset(bytes, state.bytes);
    bytes = checked_add(state.offset, align_up(state.bytes));
    states_.emplace(v.name, std::move(state));
  }
  if (model.device().uses_host_memory()) require_memory(bytes, "states");
  memory_ = model.device().allocate(bytes);
  memory_->will_fill(0, bytes);
  reset();
}

std::vector<std::string> States::names() const {
  std::vector<std::string> names;
  for (const auto& [name, state] : states_) names.push_back(name);
  return names;
}

const States::State& States::find(const std::string& name) const {
  auto at = states_.find(name);
  if (at == states_.end())
    throw UserError(ErrorCode::kU_unknown_param, "the model has no state of this name").with_value(name);
  return at->second;
}

Array States::get(const std::string& name) const {
  const State& state = find(name);
  Array copy(state.dtype, state.sizes);
  model_.device().download(copy.mutable_data(), address_of(state), state.bytes, {});
  model_.device().wait({});
  return copy;
}

void States::check(const std::string& name, const Array& value) const {
  const State& state = find(name);
  if (state.dtype != value.dtype() || state.sizes != value.sizes())
    throw UserError(ErrorCode::kU_input_shape, "a state has the wrong dtype or shape")
        .with_value(name)
        .with_expected(std::string(dtype_name(state.dtype)) + to_string(state.sizes))
        .with_actual(std::string(dtype_name(value.dtype())) + to_string(value.sizes()));
}

void States::set(const std::string& name, const Array& value) {
  check(name, value);
  const State& state = find(name);
  model_.device().upload(address_of(state), value.data(), state.bytes, {});
  model_.device().wait({});
}

void States::reset() {
  if (states_.empty()) return;
  std::vector<Transfer> transfers;
  for (const auto& [name, state] : states_) {
    auto at = model_.weights().find(name);
    if (at != model_.weights().end()) {
      transfers.push_back({address_of(state), at->second.data(), state.bytes});
    } else {
      model_.device().zero(address_of(state), state.bytes, {});
    }
  }
  model_.device().upload_all(transfers);
}

void States::copy_from(const States& other) {
  for (const auto& [name, state] : other.states_)
    model_.device().copy(address_of(states_.at(name)), other.address_of(state), state.bytes, {});
  model_.device().wait({});
}

std::byte* States::address_of(const Buffer& buffer) const {
  auto at = states_.find(buffer.name);
  if (at == states_.end()) return nullptr;
  if (at->second.bytes < buffer.max_bytes)
    throw UserError(ErrorCode::kU_bad_artifact, "the plan uses more of a variable than it has")
        .with_op(buffer.name);
  return address_of(at->second);
}

}  // namespace aicf
