// What an Executable owns beside the model: states, and params that some entry writes, in one piece of the
// device's memory. Contents are read and written while no run is under way, which the Executable sees to; the
// calls return when the bytes are there. The model outlives this.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "runtime/model.h"

namespace aicf {

class States {
 public:
  // With their contents at load.
  explicit States(const Model& model);

  std::vector<std::string> names() const;
  // unknown_param if there is none of this name, lost_states if it is lost; check and set: input_shape if
  // dtype or sizes differ.
  Array get(const std::string& name) const;
  void check(const std::string& name, const Array& value) const;
  void set(const std::string& name, const Array& value);
  // All as at load.
  void reset();
  // A run that failed may have written this variable: it is lost until it is set or reset.
  void lose(const std::string& name);
  // lost_states if one is lost.
  void require_known() const;
  // Of the same model.
  void copy_from(const States& other);
  // Where a buffer of a plan lives that is one of these; null if it is none. bad_artifact if it is too small.
  std::byte* address_of(const Buffer& buffer) const;

 private:
  struct State {
    DType dtype;
    std::vector<int64_t> sizes;
    int64_t bytes = 0, offset = 0;  // in memory_
    bool lost = false;
  };
  const State& find(const std::string& name) const;
  std::byte* address_of(const State& state) const { return memory_->data() + state.offset; }

  const Model& model_;
  std::map<std::string, State> states_;
  std::unique_ptr<DeviceMemory> memory_;
};

}  // namespace aicf
