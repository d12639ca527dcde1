// Rows: what is read early or ahead, how sums are added, how many launches there are. The texts compile.
#include <gtest/gtest.h>

#include <map>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/common/cuda_machine.h"

namespace aicf {
namespace {

using cuda_testing::expect_compiles;

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
  // A member of a bundle waits for none: its launch has begun with another member.
  problem.inputs[1].constant = true;
  problem.form = CodeForm::member;
  const CudaCode code = find_cuda_kernel("tile")->generate(problem);
  EXPECT_EQ(code.launches.at(0).early_inputs, std::vector<int32_t>());
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

// Rows of one vector each: a thread has one to itself, so that a block of 64 threads has 64.
TEST(TileCuda, ShortRowsHaveAThreadEach) {
  const TileProgram program = row_sum(DType::f32);
  const Shape sizes{Dim(4096), Dim(4)};
  CudaProblem problem;
  problem.inputs = {{DType::f32, Dim(0), sizes, {Dim(4), Dim(1)}}};
  problem.outputs = {{DType::f32, Dim(0), sizes, {Dim(1), Dim(0)}}};
  problem.params = {Dim(1)};
  problem.program = &program;
  const CudaCode code = find_cuda_kernel("tile")->generate(problem);
  EXPECT_EQ(code.launches.at(0).block, 64);
  EXPECT_EQ(code.launches[0].grid[0], Dim(4096 / 64));
}

// Of many short rows a thread asks for 64 bytes before it computes: of one row, if neighbouring threads still
// take 64 bytes of it at once, and of several rows. Few rows are spread over more threads.
TEST(TileCuda, ManyShortRowsAreLoadedSeveralAtOnce) {
  TileProgram program;  // y = (x - sum(x)) * scale + shift, of a scale per column and a shift per row
  program.inputs = {DType::f16, DType::f16, DType::f32};
  program.outputs = {DType::f16, DType::f32};
  program.registers.assign(3, {TileType::f32});
  program.scalars = {TileType::f32, TileType::f32};
  const int16_t sum = kTileScalarBase, shift = kTileScalarBase + 1;
  const TileInstr load{.op = TileOp::load, .type = TileType::f32, .dst = 0, .operand = 0};
  program.stages = {{load, {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = sum, .a = 0}},
                    {load,
                     {.op = TileOp::load, .type = TileType::f32, .dst = 1, .operand = 1},
                     {.op = TileOp::load, .type = TileType::f32, .dst = shift, .operand = 2},
                     {.op = TileOp::sub, .type = TileType::f32, .dst = 0, .a = 0, .b = sum},
                     {.op = TileOp::mul, .type = TileType::f32, .dst = 1, .a = 0, .b = 1},
                     {.op = TileOp::add, .type = TileType::f32, .dst = 2, .a = 1, .b = shift},
                     {.op = TileOp::store, .type = TileType::f32, .a = 2, .operand = 3},
                     {.op = TileOp::store_scalar, .type = TileType::f32, .a = sum, .operand = 4}}};
  std::vector<std::string> texts;
  const auto code_of = [&](const TileProgram& of, int64_t rows, int64_t length) {
    const Shape sizes{Dim(rows), Dim(length)};
    const std::vector<Dim> along{Dim(length), Dim(1)}, per_row{Dim(1), Dim(0)}, per_column{Dim(0), Dim(1)};
    CudaProblem problem;
    problem.inputs = {{of.inputs[0], Dim(0), sizes, along}};
    if (of.inputs.size() > 1) {
      problem.inputs.push_back({DType::f16, Dim(0), sizes, per_column});
      problem.inputs.push_back({DType::f32, Dim(0), sizes, per_row});
      problem.outputs.push_back({DType::f16, Dim(0), sizes, along});
    }
    problem.outputs.push_back({DType::f32, Dim(0), sizes, per_row});
    problem.params = {Dim(1)};
    problem.program = &of;
    CudaCode code = find_cuda_kernel("tile")->generate(problem);
    texts.push_back(code.source);
    return code;
  };
  const auto holds = [](const CudaCode& code, const std::string& text) {
    return code.source.find(text) != std::string::npos;
  };
  const TileProgram f32_sum = row_sum(DType::f32), f16_sum = row_sum(DType::f16);
  const CudaCode wide = code_of(f32_sum, 133691, 128);
  EXPECT_TRUE(holds(wide, "kItems = 4, kGroup = 8;"));
  EXPECT_FALSE(holds(wide, "kRows"));
  const CudaCode narrow = code_of(f16_sum, 311102, 64);
  EXPECT_TRUE(holds(narrow, "kItems = 2, kGroup = 4;") && holds(narrow, "kRows = 2;"));
  EXPECT_EQ(narrow.launches.at(0).grid[0], Dim((311102 + 127) / 128));
  EXPECT_TRUE(holds(code_of(f16_sum, 1489535, 16), "kRows = 4;"));
  EXPECT_FALSE(holds(code_of(f16_sum, 4096, 64), "kRows"));
  for (const int64_t rows : {1 << 20, (1 << 20) + 1})
    for (const int64_t length : {8, 16, 30, 31})
      EXPECT_TRUE(holds(code_of(program, rows, length), "kRows")) << rows << " x " << length;
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
}

// Sums along the outer axis of 16 vectors of columns: few threads side by side, so that a short axis takes
// one launch and a long one several blocks on every multiprocessor.
TEST(TileCuda, FewColumnsHaveFewThreadsSideBySide) {
  const TileProgram program = row_sum(DType::f32);
  const Shape sizes{Dim(64), Dim(512)};
  CudaProblem problem;
  problem.inputs = {{DType::f32, Dim(0), sizes, {Dim(1), Dim(64)}}};
  problem.outputs = {{DType::f32, Dim(0), sizes, {Dim(1), Dim(0)}}};
  problem.params = {Dim(1)};
  problem.program = &program;
  const CudaCode code = find_cuda_kernel("tile")->generate(problem);
  EXPECT_EQ(code.launches.size(), 1U);
  EXPECT_GE(*code.launches.at(0).grid[0].constant(), 8);
  problem.inputs[0].sizes[1] = problem.outputs[0].sizes[1] = Dim(1 << 20);
  const CudaCode split = find_cuda_kernel("tile")->generate(problem);
  EXPECT_EQ(split.launches.size(), 2U);
  EXPECT_GE(*split.launches[0].grid[0].constant(), kMultiprocessors);
  EXPECT_LE(*split.launches[0].grid[0].constant(), CudaMachine().filling_blocks());
}

// Rows too odd for wide accesses: whole words are loaded and shifted, but where half of the bytes are aligned
// anyway. All of them are on their way before the first is used, and none goes through memory.
TEST(TileCuda, OddRowsAreLoadedInWholeWords) {
  const TileProgram f32_sum = row_sum(DType::f32), f16_sum = row_sum(DType::f16),
                    bf16_sum = row_sum(DType::bf16);
  std::vector<std::string> texts;
  const auto code_of = [&](const TileProgram& of, int64_t length, int64_t offset) {
    const Shape sizes{Dim(4349), Dim(length)};
    CudaProblem problem;
    problem.inputs = {{of.inputs[0], Dim(offset), sizes, {Dim(length), Dim(1)}}};
    problem.outputs = {{DType::f32, Dim(0), sizes, {Dim(1), Dim(0)}}};
    problem.params = {Dim(1)};
    problem.program = &of;
    CudaCode code = find_cuda_kernel("tile")->generate(problem);
    texts.push_back(code.source);
    return code.source;
  };
  const auto vector_of = [](const std::string& text) {
    return std::stoi(text.substr(text.find("kVector = ") + std::string("kVector = ").size()));
  };
  struct Case {
    const TileProgram& program;
    int64_t length, offset;
    int vector;
    bool shifted;
  };
  const Case cases[] = {
      {f16_sum, 1747, 0, 8, true},  {f32_sum, 1747, 0, 4, true},  {f16_sum, 1746, 0, 8, true},
      {f16_sum, 1748, 0, 4, false}, {f32_sum, 1746, 0, 2, false}, {f16_sum, 1744, 0, 8, false},
      {f16_sum, 1744, 1, 8, true},  {f16_sum, 40001, 0, 8, true}, {f16_sum, 5, 0, 4, true},
      {f16_sum, 3, 0, 2, false},    {bf16_sum, 289, 0, 8, true},  {f32_sum, 3, 0, 2, false},
  };
  for (const Case& each : cases) {
    const std::string text = code_of(each.program, each.length, each.offset);
    EXPECT_EQ(vector_of(text), each.vector) << each.length << " + " << each.offset;
    EXPECT_EQ(text.find("load_shifted") != std::string::npos, each.shifted) << each.length;
  }
  // A wide vector beside one of bytes: three words.
  TileProgram program;
  program.inputs = {DType::boolean, DType::f16};
  program.outputs = {DType::f32};
  program.registers = {{TileType::mask}, {TileType::f32}, {TileType::f32}};
  program.scalars = {TileType::f32};
  program.stages = {
      {{.op = TileOp::load, .type = TileType::mask, .dst = 0, .operand = 0},
       {.op = TileOp::to_f32, .type = TileType::mask, .dst = 1, .a = 0},
       {.op = TileOp::load, .type = TileType::f32, .dst = 2, .operand = 1},
       {.op = TileOp::mul, .type = TileType::f32, .dst = 2, .a = 1, .b = 2},
       {.op = TileOp::reduce_sum, .type = TileType::f32, .dst = kTileScalarBase, .a = 2}},
      {{.op = TileOp::store_scalar, .type = TileType::f32, .a = kTileScalarBase, .operand = 2}}};
  check_tile_program(program);
  const Shape sizes{Dim(4349), Dim(347)};
  CudaProblem problem;
  for (const DType dtype : program.inputs)
    problem.inputs.push_back({dtype, Dim(0), sizes, {Dim(347), Dim(1)}});
  problem.outputs = {{DType::f32, Dim(0), sizes, {Dim(1), Dim(0)}}};
  problem.params = {Dim(1)};
  problem.program = &program;
  texts.push_back(find_cuda_kernel("tile")->generate(problem).source);
  EXPECT_EQ(vector_of(texts.back()), 16);
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack(texts, "sm_90");
}

// How a sum is added must not follow from the longest row that was planned for, nor from the number of rows,
// nor from what vectors fit: all of them take the tree over the elements' numbers.
TEST(TileCuda, SumsOfRowsInRegistersAreTreesOverTheElementsNumbers) {
  std::vector<std::string> texts;
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
          if (rows == 7) texts.push_back(text);
        }
  AICF_NEEDS_NVRTC();
  expect_compiles(texts, "sm_90a");
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
                     {.op = TileOp::store_sum, .type = TileType::f32, .a = 1, .operand = 2}}};
  check_tile_program(program);
  std::map<std::string, std::vector<std::string>> texts;  // by target
  for (int64_t columns : {200, 768, 1536, 4096, 8192}) {
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
      EXPECT_EQ(code.source.find("RowPrefetch") != std::string::npos, arch == 90);
      for (const auto& [number, target] : cuda_testing::kArchs)
        if (number == arch || arch == 80) texts[target].push_back(code.source);
    }
  }
  AICF_NEEDS_NVRTC();
  for (const auto& [target, sources] : texts) expect_compiles(sources, target);
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
  std::map<std::string, std::vector<std::string>> texts;  // by target
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
    EXPECT_EQ(code.source.find("RowPrefetch") != std::string::npos, c.fetched) << c.rows << " x " << c.length;
    if (c.fetched) {
      EXPECT_EQ(code.launches.at(0).shared_bytes, 2 * 2 * c.length);
      EXPECT_LT(*code.launches.at(0).grid[0].constant(), c.rows);
    }
    texts[c.arch == 90 ? "sm_90a" : "sm_80"].push_back(code.source);
  }
  AICF_NEEDS_NVRTC();
  for (const auto& [target, sources] : texts) expect_compiles(sources, target);
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
