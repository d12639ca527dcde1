#include "runtime/cpu/kept_states.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "base/limits.h"
#include "kernels/common/custom_kernel.h"
#include "plan/arena.h"

namespace aicf {
namespace {

bool calls_custom_op(const Plan& plan, const Step& step) {
  if (is_custom_kernel(step.kernel)) return true;
  return std::any_of(step.bodies.begin(), step.bodies.end(), [&](int32_t number) {
    const std::vector<Step>& steps = plan.bodies[static_cast<size_t>(number)].steps;
    return std::any_of(steps.begin(), steps.end(),
                       [&](const Step& inner) { return calls_custom_op(plan, inner); });
  });
}

}  // namespace

KeptStates::KeptStates(const Plan& plan, const EntryPlan& entry, const SymbolValues& sizes) {
  const auto last = std::find_if(entry.steps.rbegin(), entry.steps.rend(),
                                 [&](const Step& step) { return calls_custom_op(plan, step); });
  // The last custom op counts too: it may have written some of its results.
  std::set<size_t> written;
  for (auto step = last; step != entry.steps.rend(); ++step)
    for (const TensorRef& output : step->outputs)
      if (const auto buffer = static_cast<size_t>(output.buffer);
          entry.buffers[buffer].kind == BufferKind::kVariable)
        written.insert(buffer);
  int64_t bytes = 0;
  for (const size_t buffer : written) {
    pieces_.push_back({buffer, bytes, evaluate(entry.buffers[buffer].bytes, sizes)});
    bytes = checked_add(bytes, align_up(pieces_.back().bytes));
  }
  if (bytes == 0) return;
  require_memory(bytes, "copies of states beside custom ops of entry " + entry.name);
  copies_ = std::make_unique<CpuMemory>(bytes);
}

bool KeptStates::keeps(size_t buffer) const {
  return std::any_of(pieces_.begin(), pieces_.end(),
                     [&](const Piece& piece) { return piece.buffer == buffer; });
}

void KeptStates::keep(const std::vector<std::byte*>& addresses) {
  for (const Piece& piece : pieces_)
    if (piece.bytes > 0)
      std::memcpy(copies_->data() + piece.offset, addresses[piece.buffer], static_cast<size_t>(piece.bytes));
}

void KeptStates::put_back(const std::vector<std::byte*>& addresses) const {
  for (const Piece& piece : pieces_)
    if (piece.bytes > 0)
      std::memcpy(addresses[piece.buffer], copies_->data() + piece.offset, static_cast<size_t>(piece.bytes));
}

}  // namespace aicf
