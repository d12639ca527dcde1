// Compile-only: every instruction, random programs over random windows, epilogues, on every architecture.
// What the code computes is checked where there is a GPU.
#include "kernels/tile/cuda/tile_cuda.h"

#include <gtest/gtest.h>

#include "build/testing/compile_texts.h"
#include "kernels/tile/cuda/tile_half_sums.h"
#include "kernels/tile/testing/random_tile.h"

namespace aicf {
namespace {

using cuda_testing::no_nvrtc;
using namespace tile_testing;

const char* const kTargets[] = {"sm_80", "sm_86", "sm_89", "sm_90a"};

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
  if (no_nvrtc()) GTEST_SKIP() << "NVRTC is not installed";
  Engine engine(20);
  for (const char* target : kTargets) {
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
    compile_cuda(sources, target);
  }
}

// One program that uses every pointwise instruction in every type.
TEST(TileCuda, EveryInstructionCompiles) {
  if (no_nvrtc()) GTEST_SKIP() << "NVRTC is not installed";
  Engine engine(1);
  std::vector<std::string> sources;
  for (TileType type : {TileType::f32, TileType::f64, TileType::i32, TileType::i64, TileType::mask}) {
    constexpr DType kMemory[] = {DType::f32, DType::f64, DType::i32, DType::i64, DType::boolean};
    const DType dtype = kMemory[static_cast<int>(type)];
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
  compile_cuda(sources, "sm_80");
}

TEST(TileCuda, EpiloguesCompile) {
  if (no_nvrtc()) GTEST_SKIP() << "NVRTC is not installed";
  Engine engine(3);
  for (const char* target : kTargets) {
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
    compile_cuda(sources, target);
  }
}

// acc + x, with the accumulator rounded first or not, stored as f16.
TileProgram sum_with(TileOp first, DType accumulator) {
  TileProgram program;
  program.inputs = {accumulator, DType::f16};
  program.outputs = {DType::f16};
  program.registers.assign(4, {TileType::f32});
  program.stages = {{{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
                     {.op = first, .type = TileType::f32, .dst = 1, .a = 0},
                     {.op = TileOp::load, .type = TileType::f32, .dst = 2, .operand = 1},
                     {.op = TileOp::add, .type = TileType::f32, .dst = 3, .a = 1, .b = 2},
                     {.op = TileOp::store, .type = TileType::f32, .a = 3, .operand = 2}}};
  return program;
}

TEST(TileCuda, EpilogueTilesHaveTheHalfTypeThatTheyAreRoundedToFirst) {
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::round_f16, DType::f32)), DType::f16);
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::round_bf16, DType::f32)), DType::bf16);
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::neg, DType::bf16)), DType::bf16);
  EXPECT_EQ(epilogue_tile(sum_with(TileOp::neg, DType::f32)), std::nullopt);
  TileProgram both = sum_with(TileOp::round_f16, DType::f32);
  both.stages[0][3].b = 0;  // the sum itself, too
  EXPECT_EQ(epilogue_tile(both), std::nullopt);
  TileProgram stored = sum_with(TileOp::neg, DType::f32);
  stored.stages[0] = {stored.stages[0][0],
                      {.op = TileOp::store, .type = TileType::f32, .a = 0, .operand = 2}};
  EXPECT_EQ(epilogue_tile(stored), DType::f16);
}

// Which values are sums of halves, by the operation that each one is.
std::vector<TileOp> half_sum_ops(const TileProgram& program, std::optional<DType> tile) {
  const TileValues values = tile_values(program, [](int) { return true; });
  const auto sums = half_sums(values, {tile, program.inputs[1]});
  std::vector<TileOp> ops;
  for (size_t i = 0; i < sums.size(); ++i)
    if (sums[i]) ops.push_back(values.values[i].op);
  return ops;
}

TEST(TileCuda, SumsOfHalvesNeedBothOperandsInOneHalfType) {
  const std::vector<TileOp> one{TileOp::add};
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::round_f16, DType::f32), DType::f16), one);
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::round_bf16, DType::f32), DType::bf16), std::vector<TileOp>());
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::round_f16, DType::f32), std::nullopt), std::vector<TileOp>());
  EXPECT_EQ(half_sum_ops(sum_with(TileOp::neg, DType::f16), DType::f16), std::vector<TileOp>());

  // (acc + x rounded) + x: the second sum takes the first one only once it is rounded.
  for (const bool rounds : {true, false}) {
    TileProgram twice = sum_with(TileOp::round_f16, DType::f32);
    twice.registers.assign(6, {TileType::f32});
    twice.stages[0][4] = {
        .op = rounds ? TileOp::round_f16 : TileOp::neg, .type = TileType::f32, .dst = 4, .a = 3};
    twice.stages[0].push_back({.op = TileOp::add, .type = TileType::f32, .dst = 5, .a = 4, .b = 2});
    twice.stages[0].push_back({.op = TileOp::store, .type = TileType::f32, .a = 5, .operand = 2});
    EXPECT_EQ(half_sum_ops(twice, DType::f16).size(), rounds ? 2u : 1u);
  }
}

// A sum that is stored as its type has no elements in f32; one that goes into a function has them.
TEST(TileCuda, EpiloguesAddHalvesTwoAtATime) {
  const auto text = [](const TileProgram& program) {
    const CudaWindow tile{DType::f16, Dim(0), {Dim(32), Dim(64)}, {Dim(64), Dim(1)}};
    CudaProblem problem;
    problem.inputs = {tile, tile};
    problem.outputs = {tile};
    problem.program = &program;
    CudaParams params;
    return cuda_epilogue(problem, 1, params).text;
  };
  TileProgram plain = sum_with(TileOp::round_f16, DType::f32), gelu = plain;
  EXPECT_NE(text(plain).find("add_halves(h"), std::string::npos);
  EXPECT_EQ(text(plain).find("const float v"), std::string::npos);
  gelu.registers.assign(6, {TileType::f32});
  gelu.stages[0][4] = {.op = TileOp::round_f16, .type = TileType::f32, .dst = 4, .a = 3};
  gelu.stages[0].push_back({.op = TileOp::gelu, .type = TileType::f32, .dst = 5, .a = 4});
  gelu.stages[0].push_back({.op = TileOp::store, .type = TileType::f32, .a = 5, .operand = 2});
  EXPECT_NE(text(gelu).find("gelu_f16("), std::string::npos);
  EXPECT_NE(text(gelu).find("value(h"), std::string::npos);
  EXPECT_EQ(text(gelu).find("tile::add("), std::string::npos);
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

// y = x / sum(x) * scale, where the scale is the same for all rows: it is read before the launch waits for x
// if no launch writes it.
TEST(TileCuda, ConstantsThatRowsShareAreReadBeforeTheWait) {
  TileProgram program;
  program.inputs = {DType::f16, DType::f16};
  program.outputs = {DType::f16};
  program.registers.assign(4, {TileType::f32});
  program.scalars = {TileType::f32};
  const auto x = TileInstr{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0};
  program.stages = {{x, {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = kTileScalarBase, .a = 0}},
                    {x,
                     {.op = TileOp::load, .type = TileType::f32, .dst = 1, .operand = 1},
                     {.op = TileOp::div, .type = TileType::f32, .dst = 2, .a = 0, .b = kTileScalarBase},
                     {.op = TileOp::mul, .type = TileType::f32, .dst = 3, .a = 2, .b = 1},
                     {.op = TileOp::store, .type = TileType::f32, .a = 3, .operand = 2}}};
  const Shape sizes{Dim(4096), Dim(768)};
  CudaProblem problem;
  problem.inputs = {{DType::f16, Dim(0), sizes, {Dim(768), Dim(1)}},
                    {DType::f16, Dim(0), sizes, {Dim(0), Dim(1)}}};
  problem.outputs = {problem.inputs[0]};
  problem.params = {Dim(1)};
  problem.program = &program;
  for (const bool constant : {true, false}) {
    problem.inputs[1].constant = constant;
    const CudaCode code = find_cuda_kernel("tile")->generate(problem);
    EXPECT_EQ(code.launches.at(0).early_inputs, constant ? std::vector<int32_t>{1} : std::vector<int32_t>());
    EXPECT_EQ(code.source.find("load<16>(x1") < code.source.find("wait_for_inputs"), constant);
    EXPECT_LT(code.source.find("wait_for_inputs"), code.source.find("load<16>(x0"));
  }
}

// x per row, summed, as an f32 row scalar.
TileProgram row_sum(DType input) {
  TileProgram program;
  program.inputs = {input};
  program.outputs = {DType::f32};
  program.registers.assign(1, {TileType::f32});
  program.scalars = {TileType::f32};
  program.stages = {
      {{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0},
       {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = kTileScalarBase, .a = 0}},
      {{.op = TileOp::store_scalar, .type = TileType::f32, .a = kTileScalarBase, .operand = 1}}};
  check_tile_program(program);
  return program;
}

// How a sum is added must not follow from the longest row that was planned for, nor from the number of rows,
// nor from what vectors fit: all of them take the tree over the elements' numbers.
TEST(TileCuda, SumsOfRowsInRegistersAreTreesOverTheElementsNumbers) {
  for (const DType dtype : {DType::f32, DType::bf16})
    for (const int64_t length : {1, 3, 5, 64, 100, 384, 1000, 4096, 32768})
      for (const int64_t rows : {1, 7, 40000})
        for (const bool symbolic : {false, true}) {
          const SymbolRanges ranges{{"n", {1, length}}};
          const Dim columns = symbolic ? Dim::symbol("n") : Dim(length);
          const Shape sizes{Dim(rows), columns};
          const TileProgram program = row_sum(dtype);
          CudaProblem problem;
          problem.inputs = {{dtype, Dim(0), sizes, {columns, Dim(1)}}};
          problem.outputs = {{DType::f32, Dim(0), sizes, {Dim(1), Dim(0)}}};
          problem.params = {Dim(1)};
          problem.program = &program;
          problem.ranges = &ranges;
          const std::string text = find_cuda_kernel("tile")->generate(problem).source;
          const bool tree = text.find("::reduce_items<") != std::string::npos ||
                            text.find("::reduce_block_items<") != std::string::npos;
          EXPECT_TRUE(tree) << dtype_name(dtype) << " " << rows << " x " << to_string(sizes);
          if (!no_nvrtc() && rows == 7) compile_cuda({text}, "sm_90a");
        }
}

// y = x - sum(x) per row, and the sum of y over the rows: two launches, the second of which adds parts.
TEST(TileCuda, SumsOverRowsTakeASecondLaunch) {
  TileProgram program;
  program.inputs = {DType::bf16};
  program.outputs = {DType::bf16, DType::f32};
  program.registers.assign(2, {TileType::f32});
  program.scalars = {TileType::f32};
  const int16_t sum = kTileScalarBase;
  const TileInstr load{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0};
  program.stages = {{load, {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = sum, .a = 0}},
                    {load,
                     {.op = TileOp::sub, .type = TileType::f32, .dst = 1, .a = 0, .b = sum},
                     {.op = TileOp::store, .type = TileType::f32, .a = 1, .operand = 1},
                     {.op = TileOp::store, .type = TileType::f32, .a = 1, .operand = 2, .imm_i = 1}}};
  check_tile_program(program);
  for (int64_t columns : {200, 768}) {
    const Shape sizes{Dim(5000), Dim(columns)};
    const std::vector<Dim> strides{Dim(columns), Dim(1)};
    CudaProblem problem;
    problem.inputs = {{DType::bf16, Dim(0), sizes, strides}};
    problem.outputs = {{DType::bf16, Dim(0), sizes, strides}, {DType::f32, Dim(0), sizes, {Dim(0), Dim(1)}}};
    problem.program = &program;
    problem.params = {Dim(1)};
    for (const int arch : {80, 90}) {
      problem.arch = arch;
      const CudaCode code = find_cuda_kernel("tile")->generate(problem);
      ASSERT_EQ(code.launches.size(), 2u);
      EXPECT_EQ(code.workspace_bytes, code.launches[0].grid[0] * Dim(columns * 4));
      EXPECT_EQ(code.source.find("RowsAhead") != std::string::npos, arch == 90);
      if (no_nvrtc()) continue;
      for (const char* target : kTargets)
        if (arch == 80 || target == std::string("sm_90a")) compile_cuda({code.source}, target);
    }
  }
}

// y = x - sum(x) per row, over many rows that a block's registers do not hold: from sm_90 on a block goes
// through several, and has the next one brought into shared memory, if its rows begin and end at whole 16
// bytes and two fit.
TEST(TileCuda, ManyLongRowsAreFetchedAhead) {
  TileProgram program;
  program.inputs = {DType::bf16};
  program.outputs = {DType::bf16};
  program.registers.assign(2, {TileType::f32});
  program.scalars = {TileType::f32};
  const TileInstr load{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0};
  program.stages = {{load, {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = kTileScalarBase, .a = 0}},
                    {load,
                     {.op = TileOp::sub, .type = TileType::f32, .dst = 1, .a = 0, .b = kTileScalarBase},
                     {.op = TileOp::store, .type = TileType::f32, .a = 1, .operand = 1}}};
  check_tile_program(program);
  struct Rows {
    int64_t rows, length, stride;
    int arch;
    bool fetched;
  };
  for (const Rows& c : std::vector<Rows>{{8192, 50304, 50304, 90, true},
                                         {600, 33280, 33288, 90, true},
                                         {8192, 50304, 50304, 80, false},
                                         {100, 50304, 50304, 90, false},
                                         {8192, 50257, 50257, 90, false},
                                         {8192, 50304, 50308, 90, false},
                                         {8192, 65536, 65536, 90, false}}) {
    const Shape sizes{Dim(c.rows), Dim(c.length)};
    CudaProblem problem;
    problem.inputs = {{DType::bf16, Dim(0), sizes, {Dim(c.stride), Dim(1)}}};
    problem.outputs = problem.inputs;
    problem.program = &program;
    problem.params = {Dim(1)};
    problem.arch = c.arch;
    const CudaCode code = find_cuda_kernel("tile")->generate(problem);
    EXPECT_EQ(code.source.find("RowsAhead") != std::string::npos, c.fetched) << c.rows << " x " << c.length;
    if (c.fetched) {
      EXPECT_EQ(code.launches.at(0).shared_bytes, 2 * 2 * c.length);
      EXPECT_LT(*code.launches.at(0).grid[0].constant(), c.rows);
    }
    if (!no_nvrtc()) compile_cuda({code.source}, c.arch == 90 ? "sm_90a" : "sm_80");
  }
}

// A softmax's powers may be cheap where they are computed once more for results of half types, never in the
// sum.
TEST(TileCuda, PowersOfLongRowsThatEndInHalvesAreCheap) {
  const auto cheap = [](int64_t length, DType result, TileOp function) {
    TileProgram program;
    program.inputs = {DType::bf16};
    program.outputs = {result};
    program.registers.assign(3, {TileType::f32});
    program.scalars = {TileType::f32, TileType::f32};
    const int16_t top = kTileScalarBase, sum = kTileScalarBase + 1;
    const TileInstr load{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0};
    const TileInstr difference{.op = TileOp::sub, .type = TileType::f32, .dst = 1, .a = 0, .b = top};
    const TileInstr power{.op = function, .type = TileType::f32, .dst = 2, .a = 1};
    program.stages = {
        {load, {.op = TileOp::reduce_max, .type = TileType::f32, .dst = top, .a = 0}},
        {load, difference, power, {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = sum, .a = 2}},
        {load,
         difference,
         power,
         {.op = TileOp::mul, .type = TileType::f32, .dst = 1, .a = 2, .b = sum},
         {.op = TileOp::store, .type = TileType::f32, .a = 1, .operand = 1}}};
    check_tile_program(program);
    const Shape sizes{Dim(8192), Dim(length)};
    CudaProblem problem;
    problem.inputs = {{DType::bf16, Dim(0), sizes, {Dim(length), Dim(1)}}};
    problem.outputs = {{result, Dim(0), sizes, {Dim(length), Dim(1)}}};
    problem.program = &program;
    problem.params = {Dim(1)};
    problem.arch = 90;
    const std::string text = find_cuda_kernel("tile")->generate(problem).source;
    const size_t at = text.find("exp_half(");
    EXPECT_TRUE(at == std::string::npos || text.find("tile::exp(") < at);  // the sum's are as before
    return at != std::string::npos;
  };
  EXPECT_TRUE(cheap(50304, DType::bf16, TileOp::exp));
  EXPECT_FALSE(cheap(50304, DType::f32, TileOp::exp));
  EXPECT_FALSE(cheap(50304, DType::bf16, TileOp::tanh));
  EXPECT_FALSE(cheap(4096, DType::bf16, TileOp::exp));  // they stay in registers
}

}  // namespace
}  // namespace aicf
