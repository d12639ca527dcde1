// Pieces of CUDA text that all tile kernels share: constants, statements of values, offsets of views. Names:
// v<i> is value i, x<i> the loaded vector of operand i, y<i> what output i gets, o<i> an offset.
#pragma once

#include <string>
#include <vector>

#include "kernels/common/cuda_text.h"
#include "kernels/tile/cuda/tile_space.h"
#include "kernels/tile/cuda/tile_values.h"

namespace aicf {

std::string_view tile_cuda_type(TileType type);     // "float", …, "bool"
std::string_view tile_memory_type(DType dtype);     // as cuda_type, but uint8_t for masks
std::string tile_constant(const TileValue& value);  // "0x1.8p+1f"
// "v7", or the constant itself.
std::string tile_reference(const TileValues& program, int value);
// The memory element `element` of a load as a register's value.
std::string tile_loaded(DType dtype, const std::string& element);
// The value's expression over the references of its operands; loads have none.
std::string tile_expression(const TileValues& program, int value);
// Whether neighbours share work in the value, a function of arrays: gelu_tanh whose result ends in halves.
bool tile_shares_work(const TileValues& program, int value);
// "const float v7 = expression;", and for what elements are divided by "const aicf::tile::Divisor d7(v7);".
std::string tile_definition(const TileValues& program, int value, const std::string& expression);
// The value that a store writes: rounding to the memory's own type is left to the store.
int stored_value(const TileValues& program, const TileStore& store, DType memory);
// Letters, digits and _: a kernel's name from what the program computes, "add_rsqrt_mul".
std::string tile_program_name(const TileValues& program);

// Sums of coordinate times stride, each different sum once.
class TileOffsets {
 public:
  TileOffsets(const TileSpace& space, CudaParams& params) : space_(space), params_(params) {}
  // A size or stride as text of type Index: "384" or "Index(p0)".
  std::string number(const Dim& dim);
  // "a0 * 384 + a1" over axes [first, last), whose coordinates have the given names; "0" if all strides are
  // 0.
  std::string sum(const TileView& view, size_t first, size_t last,
                  const std::vector<std::string>& coordinates);
  // Statements that split `index` (a variable of type Size, which they consume) over sizes, last axis
  // fastest, declaring `const Index <name><axis>`.
  std::string split(const std::string& index, const Shape& sizes, const std::string& name);

 private:
  const TileSpace& space_;
  CudaParams& params_;
};

// "using Index = …; using Size = …;"
std::string tile_index_types(const TileSpace& space);
inline constexpr char kTileIncludes[] =
    "#include \"prelude.cuh\"\n#include \"tile/cuda/tile_memory.cuh\"\n#include "
    "\"tile/cuda/tile_reduce.cuh\"\n";

inline constexpr char kMomentsInclude[] = "#include \"tile/cuda/tile_moments.cuh\"\n";

}  // namespace aicf
