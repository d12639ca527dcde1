// What the text of a struct Epilogue (tile_cuda.h) is made of: its members, the offsets of a row, the loads
// of its operands, the statements of its values. Base of the epilogues of tiles and of whole rows, and of
// updates that a program makes.
#pragma once

#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "kernels/tile/cuda/tile_cuda.h"
#include "kernels/tile/cuda/tile_text.h"

namespace aicf {

// Sizes and strides become members of the struct, because its functions do not see the kernel's arguments.
class EpilogueMembers {
 public:
  // any_sizes: see CodeForm.
  EpilogueMembers(CudaParams& params, bool any_sizes) : params_(params), any_sizes_(any_sizes) {}
  std::string number(const Dim& dim);  // "384" or the member "q0"
  std::string declarations() const;
  std::string arguments() const;

 private:
  CudaParams& params_;
  bool any_sizes_;
  std::vector<Dim> dims_;
};

class EpilogueWriter {
 public:
  EpilogueWriter(const CudaProblem& problem, size_t own_inputs, CudaParams& params)
      : EpilogueWriter(problem, own_inputs, is_dual_gemm(problem) ? 2 : 1, {}, params) {}

 protected:
  // `accumulators`: the program's first inputs that are no operands. Without one, results stay in registers.
  EpilogueWriter(const CudaProblem& problem, size_t own_inputs, size_t accumulators,
                 std::vector<GatheredOperand> gathered, CudaParams& params);
  // The program's first operands are accumulators, the others are views from 0 on, behind which those of the
  // indices of gathered ones stand.
  bool is_accumulator(int operand) const { return static_cast<size_t>(operand) < accumulators_; }
  size_t view_of(int operand) const { return static_cast<size_t>(operand) - accumulators_; }
  size_t outputs_from() const { return program_.inputs.size() - accumulators_; }
  const TileValue& value(int id) const { return values_.values[static_cast<size_t>(id)]; }
  // The same for all rows.
  bool is_shared(size_t view) const { return offsets_[view] < 0; }
  CudaEpilogue struct_text(const std::string& functions) const;
  std::string row_function();
  std::string address(size_t view);
  // "aicf::tile::Vec<aicf::f16, V> x1;" and the statement that loads it from the row's columns from c on. An
  // operand that repeats along the row has one element.
  std::string vector_text(size_t view) const;
  std::string load_text(const std::string& x, size_t view);
  // A struct of vectors and a function that fetches it: the elements of V columns of those of the operands
  // that are `shared`, or are not, apart from what is done with them, so that they can be asked for early.
  std::string fetch_function(const std::string& name, const std::vector<size_t>& views, bool shared);
  // "      const float v3 = …;" of a value per element.
  std::string element_text(int id) const;
  // A store in three parts: the array y<output>, one element of it, the vector that goes to memory.
  std::string result_array(const TileStore& store) const;
  std::string result_text(const TileStore& store) const;
  std::string store_text(const TileStore& store);
  std::string memory_text(size_t view, const std::string& vector);  // only the last of them
  int stored(const TileStore& store) const;                         // the value that it writes
  std::string vector_of(int operand) const;                         // the fetched elements of an operand
  static std::string accumulator(int operand) { return operand == 0 ? "acc" : "acc1"; }
  std::string loaded(int operand) const;
  // The rounding that gave the tile its type.
  bool is_rounded_tile(const TileValue& value) const;

  const TileProgram& program_;
  const size_t accumulators_;
  std::optional<DType> tile_type_;
  EpilogueMembers members_;
  TileValues values_;
  TileSpace space_;
  bool has_axis_ = true, has_sums_ = false;

 private:
  // Where a row begins in a view: coordinates times strides, or, of a gathered one, what its index says.
  struct RowOffset {
    std::vector<Dim> strides;
    int gathered = -1;  // its number among those
    bool operator==(const RowOffset&) const = default;
  };
  std::string operand_name(size_t view) const;
  int offset_of(size_t view);
  std::string sum_text(const std::vector<Dim>& strides);
  Dim stride(size_t view) const { return has_axis_ ? space_.views[view].strides.back() : Dim(0); }
  bool contiguous(size_t view) const { return is_number(stride(view), 1); }
  bool repeats(size_t view) const { return is_number(stride(view), 0); }
  std::string alignment(size_t view) const;
  std::string output_number(const TileStore& store) const {
    return std::to_string(view_of(store.operand) - outputs_from());
  }

  size_t own_inputs_;
  std::vector<GatheredOperand> gathered_;
  std::vector<RowOffset> patterns_;  // distinct ones
  std::vector<int> offsets_;         // per view: which of them; -1: none
};

}  // namespace aicf
