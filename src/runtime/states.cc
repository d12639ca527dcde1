#include "runtime/states.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "base/limits.h"
#include "plan/arena.h"

namespace aicf {
namespace {

UserError lost_states(const std::string& names) {
  return UserError(ErrorCode::kU_lost_states, "a run that failed may have written states")
      .with_value(names)
      .with_expected("states that a run left whole")
      .with_remedy("reset the states, or set them as they were before that run");
}

}  // namespace

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

void States::lose(const std::string& name) {
  if (const auto at = states_.find(name); at != states_.end()) at->second.lost = true;
}

void States::require_known() const {
  std::string lost;
  for (const auto& [name, state] : states_)
    if (state.lost) lost += (lost.empty() ? "" : ", ") + name;
  if (!lost.empty()) throw lost_states(lost);
}

Array States::get(const std::string& name) const {
  const State& state = find(name);
  if (state.lost) throw lost_states(name);
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
  State& state = states_.at(name);
  model_.device().upload(address_of(state), value.data(), state.bytes, {});
  model_.device().wait({});
  state.lost = false;
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
  for (auto& [name, state] : states_) state.lost = false;
}

void States::copy_from(const States& other) {
  for (const auto& [name, state] : other.states_) {
    State& own = states_.at(name);
    model_.device().copy(address_of(own), other.address_of(state), state.bytes, {});
    own.lost = state.lost;
  }
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
