// Compile-only: every instruction, random programs over random windows, epilogues, on every architecture.
// What the code computes is checked where there is a GPU.
#include "kernels/tile/cuda/tile_cuda.h"

#include <gtest/gtest.h>

#include <array>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/tile/testing/one_op.h"
#include "kernels/tile/testing/random_tile.h"

namespace aicf {
namespace {

using cuda_testing::expect_compiles;

using namespace tile_testing;

// Row-major in a random order of axes, some axes with gaps, reversed or, for inputs, repeated.
CudaWindow random_window(Engine& engine, DType dtype, const Shape& sizes, bool output) {
  CudaWindow window{dtype, Dim(pick(engine, 0, 2) * 8), sizes, std::vector<Dim>(sizes.size())};
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  if (pick(engine, 0, 3) == 0) std::shuffle(order.begin(), order.end(), engine);
  Dim stride(pick(engine, 0, 5) == 0 ? 3 : 1);
  for (size_t i = order.size(); i-- > 0;) {
    const bool repeats = !output && pick(engine, 0, 4) == 0;
    window.strides[order[i]] = repeats ? Dim(0) : pick(engine, 0, 9) == 0 ? Dim(0) - stride : stride;
    if (!repeats) stride = stride * sizes[order[i]] + Dim(pick(engine, 0, 6) == 0 ? 8 : 0);
  }
  return window;
}

Shape random_sizes(Engine& engine, SymbolRanges& ranges) {
  const std::vector<int64_t> lengths = {0,   1,   2,   3,   7,    8,    12,   64,
                                        100, 128, 384, 768, 1000, 4096, 5000, 70000};
  Shape sizes;
  for (int64_t rank = pick(engine, 0, 4); rank > 0; --rank) {
    sizes.emplace_back(pick(engine, lengths));
    if (pick(engine, 0, 3) > 0) continue;
    const std::string name = "n" + std::to_string(rank);
    ranges[name] = {0, pick(engine, lengths)};
    sizes.back() = Dim::symbol(name) * Dim(pick(engine, 0, 1) ? 8 : 1);
  }
  return sizes;
}

struct Case {
  TileProgram program;
  SymbolRanges ranges;
  CudaProblem problem;
};

// Row scalars are loaded from and stored to windows that repeat along the inner axes.
void repeat_inner(CudaWindow& window, size_t inner) {
  for (size_t i = window.strides.size() - inner; i < window.strides.size(); ++i) window.strides[i] = Dim(0);
}

void make_windows(Engine& engine, Case& c) {
  const Shape sizes = random_sizes(engine, c.ranges);
  const auto inner = static_cast<size_t>(pick(engine, 0, static_cast<int64_t>(sizes.size())));
  for (DType dtype : c.program.inputs) c.problem.inputs.push_back(random_window(engine, dtype, sizes, false));
  for (DType dtype : c.program.outputs)
    c.problem.outputs.push_back(random_window(engine, dtype, sizes, true));
  for (const auto& stage : c.program.stages)
    for (const TileInstr& instr : stage) {
      const auto at = static_cast<size_t>(instr.operand);
      if (instr.op == TileOp::load && instr.dst >= kTileScalarBase) repeat_inner(c.problem.inputs[at], inner);
      if (instr.op == TileOp::store_scalar)
        repeat_inner(c.problem.outputs[at - c.program.inputs.size()], inner);
    }
  c.problem.params = {Dim(static_cast<int64_t>(inner))};
}

TEST(TileCuda, RandomProgramsCompile) {
  AICF_NEEDS_NVRTC();
  Engine engine(20);
  for (const auto& [number, target] : cuda_testing::kArchs) {
    std::vector<std::string> sources;
    for (int i = 0; i < 10; ++i) {
      Case c;
      RandomOptions options;
      options.stages = static_cast<int>(pick(engine, 1, 3));
      c.program = random_program(engine, options);
      make_windows(engine, c);
      c.problem.program = &c.program;
      c.problem.ranges = &c.ranges;
      const CudaCode code = find_cuda_kernel("tile")->generate(c.problem);
      EXPECT_EQ(code, find_cuda_kernel("tile")->generate(c.problem));
      sources.push_back(code.source);
    }
    expect_compiles(sources, target);
  }
}

// One program that uses every pointwise instruction in every type.
TEST(TileCuda, EveryInstructionCompiles) {
  Engine engine(1);
  std::vector<std::string> sources;
  for (TileType type : {TileType::f32, TileType::f64, TileType::i32, TileType::i64, TileType::mask}) {
    const DType dtype = tile_testing::memory_of(type);
    for (int first = static_cast<int>(TileOp::neg); first < static_cast<int>(TileOp::reduce_sum);
         first += 18) {
      ProgramBuilder builder(engine);
      const int x = builder.add_input(dtype), mask = builder.add_input(DType::boolean);
      const int16_t a = builder.load(x), m = builder.load(mask);
      for (int i = first; i < std::min(first + 18, static_cast<int>(TileOp::reduce_sum)); ++i) {
        const TileOpInfo& info = tile_op_info(static_cast<TileOp>(i));
        if (info.types.find(tile_type_letter(type)) == std::string_view::npos) continue;
        std::vector<int16_t> args(static_cast<size_t>(info.arity), a);
        if (static_cast<TileOp>(i) == TileOp::select) args[0] = m;
        const int16_t result = builder.apply(static_cast<TileOp>(i), type, args, 1);
        for (DType to : all_dtypes())
          if (tile_register_type(to) == builder.type_of(result)) {
            builder.store(to, result);
            break;
          }
      }
      Case c;
      c.program = builder.finish();
      if (c.program.outputs.empty()) continue;
      const Shape sizes = {Dim(100)};
      for (DType input : c.program.inputs) c.problem.inputs.push_back({input, Dim(0), sizes, {Dim(1)}});
      for (DType output : c.program.outputs) c.problem.outputs.push_back({output, Dim(0), sizes, {Dim(1)}});
      c.problem.params = {Dim(1)};
      c.problem.program = &c.program;
      sources.push_back(find_cuda_kernel("tile")->generate(c.problem).source);
    }
  }
  AICF_NEEDS_NVRTC();
  expect_compiles(sources, "sm_80");
}

TEST(TileCuda, EpiloguesCompile) {
  AICF_NEEDS_NVRTC();
  Engine engine(3);
  for (const auto& [number, target] : cuda_testing::kArchs) {
    std::vector<std::string> sources;
    for (int i = 0; i < 6; ++i) {
      Case c;
      RandomOptions options;
      options.dtypes = {DType::f32, DType::bf16, DType::f16, DType::i32, DType::f64, DType::i64};
      c.program = random_program(engine, options);
      make_windows(engine, c);
      c.problem.inputs[0] = {DType::f16, Dim(0), {Dim(4)}, {Dim(1)}};  // the kernel's own
      c.problem.program = &c.program;
      c.problem.ranges = &c.ranges;
      CudaParams params;
      const CudaEpilogue epilogue = cuda_epilogue(c.problem, 1, params);
      CudaLaunch launch;
      launch.function = "k";
      launch.params = params.dims();
      sources.push_back(epilogue.text + cuda_kernel_head(c.problem, launch, false) +
                        "const Epilogue e = " + epilogue.make +
                        ";\nEpilogue::Acc a[8], b[1];\nfor (auto& x : a) x = threadIdx.x;\nb[0] = 3;\n"
                        "e.apply(e.row(blockIdx.x), 8, a);\ne.apply(e.row(1), 3, b);\n}\n");
    }
    expect_compiles(sources, target);
  }
}

// A sigmoid's cheap form is for what ends in half types alone.
TEST(TileCuda, SigmoidsThatEndInHalvesAreCheap) {
  const auto text = [](DType result, TileOp last) {
    TileProgram program{{DType::f16}, {result}, std::vector<TileRegister>(4, {TileType::f32}), {}, {}};
    program.stages = {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                       {.op = TileOp::sigmoid, .type = TileType::f32, .dst = 1, .a = 0},
                       {.op = TileOp::mul, .type = TileType::f32, .dst = 2, .a = 0, .b = 1},
                       {.op = last, .type = TileType::f32, .dst = 3, .a = 2},
                       {.op = TileOp::store, .type = TileType::f32, .a = 3, .operand = 1}}};
    const Shape sizes{Dim(32), Dim(64)};
    CudaProblem problem;
    problem.inputs = {{DType::f16, Dim(0), sizes, {Dim(64), Dim(1)}}};
    problem.outputs = {{result, Dim(0), sizes, {Dim(64), Dim(1)}}};
    problem.params = {Dim(0)};
    problem.program = &program;
    return find_cuda_kernel("tile")->generate(problem).source;
  };
  for (const TileOp last : {TileOp::neg, TileOp::round_f16})
    EXPECT_NE(text(DType::f16, last).find("sigmoid_half("), std::string::npos);
  EXPECT_EQ(text(DType::f32, TileOp::neg).find("sigmoid_half("), std::string::npos);
  EXPECT_NE(text(DType::f32, TileOp::round_f16).find("sigmoid_half("), std::string::npos);
  EXPECT_EQ(text(DType::f16, TileOp::log).find("sigmoid_half("), std::string::npos);
}

// gelu(x) and (x sigmoid(x) + x): beside each other and for halves, products are added in one instruction.
TEST(TileCuda, ProductsAreAddedInOneInstructionBesideGelu) {
  const auto text = [](DType result, TileOp function, DType gelu = DType::f16) {
    if (result != DType::f16) gelu = result;
    TileProgram program{{DType::f16}, {gelu, result}, std::vector<TileRegister>(5, {TileType::f32}), {}, {}};
    program.stages = {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                       {.op = function, .type = TileType::f32, .dst = 1, .a = 0},
                       {.op = TileOp::sigmoid, .type = TileType::f32, .dst = 2, .a = 0},
                       {.op = TileOp::mul, .type = TileType::f32, .dst = 3, .a = 0, .b = 2},
                       {.op = TileOp::add, .type = TileType::f32, .dst = 4, .a = 0, .b = 3},
                       {.op = TileOp::store, .type = TileType::f32, .a = 1, .operand = 1},
                       {.op = TileOp::store, .type = TileType::f32, .a = 4, .operand = 2}}};
    const Shape sizes{Dim(32), Dim(64)};
    CudaProblem problem;
    problem.inputs = {{DType::f16, Dim(0), sizes, {Dim(64), Dim(1)}}};
    problem.outputs.assign(2, {result, Dim(0), sizes, {Dim(64), Dim(1)}});
    problem.outputs[0].dtype = gelu;
    problem.params = {Dim(0)};
    problem.program = &program;
    return find_cuda_kernel("tile")->generate(problem).source;
  };
  const std::string half = text(DType::f16, TileOp::gelu_tanh);
  EXPECT_NE(half.find("__fmaf_rn("), std::string::npos);
  EXPECT_NE(half.find("gelu_tanh_beside_slope("), std::string::npos);
  EXPECT_EQ(text(DType::f32, TileOp::gelu_tanh).find("__fmaf_rn("), std::string::npos);
  EXPECT_EQ(text(DType::f16, TileOp::tanh).find("__fmaf_rn("), std::string::npos);
  // A gelu that is kept in f32 is none of them.
  EXPECT_EQ(text(DType::f16, TileOp::gelu_tanh, DType::f32).find("__fmaf_rn("), std::string::npos);
}

// Every x y plus the row's largest, beside gelu(x) and sigmoid(x): the product is an earlier stage's, whose
// operands are no longer there.
TEST(TileCuda, ProductsOfAnEarlierStageAreNotMadeAgainBesideGelu) {
  AICF_NEEDS_NVRTC();
  const TileRegister row{TileType::f32, true};
  TileProgram program{{DType::f16, DType::f16},
                      std::vector<DType>(3, DType::f16),
                      std::vector<TileRegister>(6, row),
                      {TileType::f32},
                      {}};
  program.stages = {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                     {.op = TileOp::load, .type = TileType::f32, .dst = 5, .operand = 1},
                     {.op = TileOp::gelu_tanh, .type = TileType::f32, .dst = 1, .a = 0},
                     {.op = TileOp::store, .type = TileType::f32, .a = 1, .operand = 2},
                     {.op = TileOp::sigmoid, .type = TileType::f32, .dst = 2, .a = 0},
                     {.op = TileOp::store, .type = TileType::f32, .a = 2, .operand = 3},
                     {.op = TileOp::mul, .type = TileType::f32, .dst = 3, .a = 0, .b = 5},
                     {.op = TileOp::reduce_max, .type = TileType::f32, .dst = kTileScalarBase, .a = 3}},
                    {{.op = TileOp::add, .type = TileType::f32, .dst = 4, .a = 3, .b = kTileScalarBase},
                     {.op = TileOp::store, .type = TileType::f32, .a = 4, .operand = 4}}};
  check_tile_program(program);
  for (const bool across : {false, true}) {
    const Shape sizes{Dim(4096), Dim(768)};
    const CudaWindow window{
        DType::f16, Dim(0), sizes,
        across ? std::vector<Dim>{Dim(1), Dim(4096)} : std::vector<Dim>{Dim(768), Dim(1)}};
    CudaProblem problem;
    problem.inputs = {window, window};
    problem.outputs = {window, window, window};
    problem.params = {Dim(1)};
    problem.program = &program;
    expect_compiles({find_cuda_kernel("tile")->generate(problem).source}, "sm_90a");
  }
}

// Sums over few rows of few columns: a block has columns of several places.
TEST(TileCuda, ShortSumsOfFewColumnsShareABlock) {
  TileProgram program{{DType::f32}, {DType::f32}, {{TileType::f32}}, {TileType::f32}, {}};
  program.stages = {
      {{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
       {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = kTileScalarBase, .a = 0}},
      {{.op = TileOp::store_scalar, .type = TileType::f32, .a = kTileScalarBase, .operand = 1}}};
  check_tile_program(program);
  const auto launch = [&](int64_t places, int64_t length, int64_t columns) {
    CudaProblem problem;
    const Shape sizes{Dim(places), Dim(columns), Dim(length)};
    problem.inputs = {{DType::f32, Dim(0), sizes, {Dim(length * columns), Dim(1), Dim(columns)}}};
    problem.outputs = {{DType::f32, Dim(0), sizes, {Dim(columns), Dim(1), Dim(0)}}};
    problem.params = {Dim(1)};
    problem.program = &program;
    const CudaCode code = find_cuda_kernel("tile")->generate(problem);
    if (cuda_testing::has_nvrtc()) {
      expect_compiles({code.source}, "sm_90a");
    }
    EXPECT_EQ(code.launches[0].function, "tile_columns_reduce_sum");
    return code.launches[0];
  };
  for (const int64_t places : {8192, 65536})
    EXPECT_LE(2 * *launch(places, 26, 32).grid[0].constant(), places);
  launch(4096, 26, 34);  // vectors of two columns
  EXPECT_GE(*launch(1000, 4096, 32).grid[0].constant(), 1000) << "long rows have a block";
}

// Offsets count the updates' elements, which may be many more than the sums'.
TEST(TileCuda, ScatteredRowsBeyondNarrowOffsetsAreReadWithWideOnes) {
  AICF_NEEDS_NVRTC();
  const TileProgram program{{DType::f16, DType::f16},
                            {DType::f16},
                            std::vector<TileRegister>(3, {TileType::f32}),
                            {},
                            {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                              {.op = TileOp::load, .type = TileType::f32, .dst = 1, .operand = 1},
                              {.op = TileOp::add, .type = TileType::f32, .dst = 2, .a = 0, .b = 1},
                              {.op = TileOp::store, .type = TileType::f32, .a = 2, .operand = 2}}}};
  const std::vector<Dim> strides{Dim(1024), Dim(1)};
  const CudaWindow table{DType::f16, Dim(0), {Dim(1000), Dim(1024)}, strides};
  const SymbolRanges ranges{{"n", {0, int64_t{1} << 21}}};
  for (const Dim& rows : {Dim(128), Dim(int64_t{1} << 21), Dim::symbol("n")}) {
    CudaProblem problem;
    problem.inputs = {table,
                      {DType::f16, Dim(0), {rows, Dim(1024)}, strides},
                      {DType::i64, Dim(0), {rows, Dim(1)}, {Dim(1), Dim(1)}}};
    problem.outputs = {table};
    problem.params = {Dim(0)};
    problem.indexed = 1;
    problem.program = &program;
    problem.ranges = &ranges;
    const std::string text = find_cuda_kernel("tile_scattered")->generate(problem).source;
    EXPECT_EQ(text.find("using Index = int64_t") != std::string::npos, !(rows == Dim(128)));
    expect_compiles({text}, "sm_90a");
  }
}

}  // namespace
}  // namespace aicf
