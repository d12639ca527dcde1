// The states that a run may have written when a custom op stops it half-way: copied before the run, put back
// when it throws. A plan writes states where they lie as soon as nobody reads the old value any more, so
// those that steps after the last custom op write need no copy.
#pragma once

#include <memory>
#include <vector>

#include "plan/plan.h"
#include "runtime/cpu/cpu_memory.h"

namespace aicf {

class KeptStates {
 public:
  // over_limit if the copies take more memory than AICF_MAX_MEMORY allows.
  KeptStates(const Plan& plan, const EntryPlan& entry, const SymbolValues& sizes);
  bool keeps(size_t buffer) const;
  // `addresses` are those of the entry's buffers.
  void keep(const std::vector<std::byte*>& addresses);
  void put_back(const std::vector<std::byte*>& addresses) const;

 private:
  struct Piece {
    size_t buffer;
    int64_t offset, bytes;  // in copies_
  };
  std::vector<Piece> pieces_;
  std::unique_ptr<CpuMemory> copies_;  // null: there are none
};

}  // namespace aicf
