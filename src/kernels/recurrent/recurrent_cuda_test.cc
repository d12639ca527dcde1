// Recurrent layers on CUDA: plans fit the machine, and texts of random problems compile without a stack.
#include <set>

#include "codegen/testing/compile_texts.h"
#include "codegen/testing/needs_nvrtc.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/recurrent/recurrent_mma_plan.h"
#include "kernels/testing/cuda_texts.h"
#include "kernels/testing/layout_text.h"

namespace aicf {
namespace {

using cuda_testing::RandomWindows;

constexpr int64_t kGates[] = {4, 3, 1, 1};

int64_t power_of_two(int64_t least) {
  int64_t power = 1;
  while (power < least) power *= 2;
  return power;
}

TEST(RecurrentCuda, EveryUnitHasALaneAndEveryBlockAUnit) {
  int placed = 0;
  for (int64_t hidden : {1, 5, 31, 33, 64, 100, 129, 256, 300, 391, 512, 600, 1024})
    for (int64_t gates : {1, 3, 4})
      for (int64_t batch : {1, 3, 64})
        for (bool back : {false, true}) {
          const RecurrentWork work = {
              hidden, back ? gates * hidden : hidden, back ? 1 : gates, back ? gates : 1, 4, batch, 50, 2,
              back};
          const auto plan = recurrent_plan(work);
          if (!plan) continue;
          ++placed;
          const int64_t of_block = plan->units_of_block();
          EXPECT_GE(plan->cluster * of_block, hidden);
          EXPECT_LT((plan->cluster - 1) * of_block, hidden);
          EXPECT_LE(power_of_two(int64_t{plan->units} * plan->rows) * plan->teams, 32);
          EXPECT_LE(plan->shared_bytes, shared_limit(90));
        }
  EXPECT_GT(placed, 150);
  EXPECT_FALSE(recurrent_plan({4096, 4096, 4, 1, 4, 1, 50, 1}));
}

// Lanes that split a short depth would each add a few products, and then mostly one another's sums.
TEST(RecurrentCuda, FewLanesSplitAShortDepth) {
  const auto teams = [](int64_t hidden) {
    return recurrent_plan({hidden, hidden, 3, 1, 4, 64, 20, 1})->teams;
  };
  EXPECT_EQ(teams(5), 32);
  EXPECT_EQ(teams(64), 4);
  EXPECT_EQ(teams(100), 2);
  EXPECT_EQ(teams(256), 1);
}

// Registers are those of a quarter of a multiprocessor, whose warps are whole ones.
TEST(RecurrentCuda, RegistersAreThoseOfAQuarter) {
  EXPECT_EQ(registers_of_thread(4), 255);
  EXPECT_EQ(registers_of_thread(9), 168);
  EXPECT_EQ(registers_of_thread(12), 168);
  EXPECT_EQ(registers_of_thread(13), 128);
}

RecurrentWork halves(int64_t gates, int64_t hidden, int64_t batch, int64_t directions = 2) {
  return {hidden, hidden, gates, 1, 2, batch, 50, directions};
}

TEST(RecurrentCuda, MatrixUnitsTakeEverySizeAndEveryUnitHasAWarp) {
  for (const int64_t hidden : {1, 5, 37, 64, 200, 391, 512, 600, 1000, 1024, 1500, 1900})
    for (const int64_t gates : {1, 3, 4})
      for (const int64_t batch : {1, 7, 64, 100}) {
        const auto plans = recurrent_mma_plans(halves(gates, hidden, batch));
        ASSERT_FALSE(plans.empty()) << hidden << " " << gates;
        for (const RecurrentMmaPlan& plan : plans) {
          const int64_t of_block = int64_t{plan.groups} * (gates == 4 ? 8 : 16), chunks = (hidden + 31) / 32,
                        own = (chunks + plan.slices - 1) / plan.slices;
          EXPECT_GE(plan.cluster * of_block, hidden);
          EXPECT_LE(plan.warps(), 16);
          EXPECT_LE(plan.in_registers + plan.in_shared, own);
          EXPECT_LE(plan.shared_bytes, shared_limit(90));
        }
      }
  EXPECT_TRUE(recurrent_mma_plans({512, 512, 3, 1, 4, 64, 50, 2}).empty());
}

TEST(RecurrentCuda, MatrixUnitsTakeLargeLayersAndLeaveTinyOnes) {
  const auto cheaper_by_mma = [](const RecurrentWork& work) {
    const auto plan = recurrent_plan(work);
    return !plan || recurrent_mma_plans(work).at(0).cycles < plan->cycles;
  };
  EXPECT_FALSE(cheaper_by_mma(halves(1, 32, 1, 1)));
  EXPECT_FALSE(cheaper_by_mma(halves(3, 48, 1, 1)));
  EXPECT_TRUE(cheaper_by_mma(halves(3, 512, 64)));
  EXPECT_TRUE(cheaper_by_mma(halves(4, 1024, 16)));
  EXPECT_FALSE(recurrent_plan(halves(1, 1500, 1, 1)));
}

// Where the weights fit one multiprocessor, no block waits for another one.
TEST(RecurrentCuda, SmallLayersNeedNoCluster) {
  for (const int64_t gates : {1, 3, 4})
    for (const int64_t batch : {1, 9, 64})
      EXPECT_EQ(recurrent_mma_plans(halves(gates, 64, batch)).at(0).cluster, 1) << gates << " " << batch;
  for (const int64_t gates : {1, 3, 4})
    EXPECT_EQ(recurrent_plan({64, 64, gates, 1, 4, 64, 20, 1})->cluster, 1) << gates;
  EXPECT_GT(recurrent_mma_plans(halves(4, 512, 64)).at(0).cluster, 1);
  EXPECT_GT(recurrent_plan({512, 512, 4, 1, 4, 1, 20, 1})->cluster, 1);
}

struct Layer {
  DType dtype;
  int64_t cell, hidden, direction;
};

CudaProblem forward_problem(RandomWindows& random, const Layer& layer) {
  const Dim length = random.size(1, 70), batch = random.size(1, 40), hidden(layer.hidden);
  const Dim gates(kGates[layer.cell] * layer.hidden), directions(layer.direction == 2 ? 2 : 1);
  const auto window = [&](const Shape& sizes) { return random.window(layer.dtype, sizes); };
  CudaProblem p;
  p.inputs = {window({length, batch, directions * gates}), window({directions, batch, hidden}),
              window({directions, gates, hidden})};
  p.inputs[2].constant = random.below(2) == 0;
  if (random.below(2) == 0) p.inputs.push_back(window({directions, gates}));
  if (layer.cell == 0) p.inputs.push_back(window({directions, batch, hidden}));
  const bool keep = random.below(2) == 0;
  const Dim kept(keep && layer.cell < 2 ? 4 : 0), cells(layer.cell == 0 ? 1 : 0);
  for (const Dim& count : {Dim(1), cells, kept})
    p.outputs.push_back(window({length, batch, directions * count * hidden}));
  p.params = {Dim(layer.cell), Dim(layer.direction), Dim(keep)};
  return p;
}

CudaProblem backward_problem(RandomWindows& random, const Layer& layer) {
  const Dim length = random.size(1, 70), batch = random.size(1, 40), hidden(layer.hidden);
  const Dim gates(kGates[layer.cell] * layer.hidden), directions(layer.direction == 2 ? 2 : 1);
  const auto window = [&](const Shape& sizes) { return random.window(layer.dtype, sizes); };
  const auto steps = [&](int64_t count) { return window({length, batch, directions * Dim(count) * hidden}); };
  const bool is_lstm = layer.cell == 0;
  CudaProblem p;
  p.inputs = {window({directions, gates, hidden}),
              window({directions, batch, hidden}),
              steps(1),
              steps(is_lstm),
              steps(layer.cell < 2 ? 4 : 0),
              steps(1)};
  if (is_lstm) p.inputs.push_back(window({directions, batch, hidden}));
  if (is_lstm && random.below(2) == 0) p.inputs.push_back(steps(1));
  p.outputs = {window({length, batch, directions * gates}), window({directions, batch, hidden}),
               window({directions, batch, hidden * Dim(is_lstm)})};
  p.params = {Dim(layer.cell), Dim(layer.direction)};
  return p;
}

CudaProblem ready(RandomWindows& random, CudaProblem problem) {
  problem.arch = 90;
  problem.ranges = &random.ranges();
  return problem;
}

TEST(RecurrentCuda, Compiles) {
  std::vector<std::string> texts;
  std::set<bool> in_clusters;
  uint64_t seed = 0;
  for (const Layer& layer :
       {Layer{DType::f32, 0, 64, 0}, Layer{DType::bf16, 1, 37, 2}, Layer{DType::f32, 2, 200, 1},
        Layer{DType::f16, 3, 5, 0}, Layer{DType::f32, 0, 384, 2}, Layer{DType::f16, 0, 384, 2},
        Layer{DType::f16, 0, 100, 0}})
    for (bool back : {false, true}) {
      RandomWindows random(++seed);
      CudaProblem p = ready(random, back ? backward_problem(random, layer) : forward_problem(random, layer));
      const CudaKernel* row = find_cuda_kernel(back ? "recurrent_backward_cluster" : "recurrent_cluster");
      ASSERT_NE(row, nullptr);
      Problem asked;
      for (const CudaWindow& window : p.inputs) asked.inputs.push_back({window.dtype, window.sizes});
      EXPECT_TRUE(row->can_run(asked));
      const CudaCode code = row->generate(p);
      EXPECT_EQ(code, row->generate(p));
      in_clusters.insert(code.launches[0].cluster > 1);
      texts.push_back(code.source);
    }
  EXPECT_EQ(in_clusters.size(), 2u);
  AICF_NEEDS_NVRTC();
  const std::vector<std::string> images = compile_cuda(texts, "sm_90a");
  for (size_t i = 0; i < images.size(); ++i) EXPECT_EQ(cuda_testing::stack_bytes(images[i]), 0) << texts[i];
}

CudaProblem dense_problem(const Layer& layer, int64_t batch, bool back) {
  const Dim length(20), rows(batch), hidden(layer.hidden), gates(kGates[layer.cell] * layer.hidden);
  const auto window = [&](const Shape& sizes) { return cuda_testing::dense(layer.dtype, sizes); };
  const bool is_lstm = layer.cell == 0;
  const CudaWindow steps = window({length, rows, hidden}), none = window({length, rows, Dim(0)}),
                   kept = window({length, rows, Dim(4) * hidden}), w = window({Dim(1), gates, hidden}),
                   h = window({Dim(1), rows, hidden}), x = window({length, rows, gates}),
                   cells = is_lstm ? steps : none, c = is_lstm ? h : window({Dim(1), rows, Dim(0)});
  CudaProblem p;
  if (back)
    p.inputs = {w, h, steps, cells, kept, steps}, p.outputs = {x, h, c};
  else
    p.inputs = {x, h, w}, p.outputs = {steps, cells, none};
  if (is_lstm) p.inputs.push_back(c);
  p.params = {Dim(layer.cell), Dim(layer.direction), Dim(0)};
  p.arch = 90;
  return p;
}

// Lanes exchange halves of their sums by choosing between registers: a compiler that sees an array at an
// index which it does not know compares that with every index, and the code is several times as long.
TEST(RecurrentCuda, SumsOfLanesTakeFewInstructions) {
  std::vector<CudaUnit> units;
  std::vector<int64_t> most;
  for (const bool back : {false, true}) {
    const CudaProblem p = dense_problem({DType::f32, 1, 64, 0}, 64, back);
    const RecurrentWork work =
        back ? RecurrentWork{64, 192, 1, 3, 4, 64, 20, 1, 1} : RecurrentWork{64, 64, 3, 1, 4, 64, 20, 1};
    const RecurrentPlan plan = *recurrent_plan(work);
    const int64_t sums = work.products * plan.units * plan.rows, lanes = 32 / plan.teams,
                  weights = (work.depth + lanes - 1) / lanes * work.products * plan.units;
    ASSERT_GT(sums, 8);
    const CudaKernel* row = find_cuda_kernel(back ? "recurrent_backward_cluster" : "recurrent_cluster");
    // As beside other kernels in a module, which the compiler optimises in parts.
    units.push_back({row->generate(p).source, "sm_90a", {.kernels = 2}});
    // Each weight is loaded once and multiplied once, each sum halved by at most four instructions.
    most.push_back(16 * (4 * weights + 8 * sums + 600));
  }
  AICF_NEEDS_NVRTC();
  const std::vector<std::string> images = compile_cuda(units);
  for (size_t i = 0; i < images.size(); ++i)
    EXPECT_LE(cuda_testing::code_bytes(images[i]), most[i]) << units[i].source;
}

// Of a long depth most weights lie in shared memory: loads of a few chunks at a time are on their way to
// registers.
TEST(RecurrentCuda, WeightsOfALongDepthNeedNoStack) {
  const CudaProblem p = dense_problem({DType::f16, 0, 391, 0}, 2, true);
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_no_stack({find_cuda_kernel("recurrent_backward_cluster")->generate(p).source},
                                "sm_90a");
}

TEST(RecurrentCuda, HostAndDeviceSplitADepthAlike) {
  const CudaKernel* row = find_cuda_kernel("recurrent_cluster");
  std::vector<std::string> texts;
  for (const int64_t hidden : {1, 5, 16, 37, 64, 72, 93, 100, 129, 160, 256, 391, 512}) {
    const CudaProblem p = dense_problem({DType::f32, 1, hidden, 0}, 9, false);
    const RecurrentPlan plan = *recurrent_plan({hidden, hidden, 3, 1, 4, 9, 20, 1});
    const CudaCode code = row->generate(p);
    const size_t type = code.source.find("aicf::RecurrentLayer");
    ASSERT_NE(type, std::string::npos);
    cuda_testing::LayoutText text(code.source);
    text.use("Layer", code.source.substr(type, code.source.find("::run") - type));
    text.equal("Layer::Product::Split::kTeams", plan.teams);
    text.equal("Layer::kShared", code.launches[0].shared_bytes);
    texts.push_back(text.text());
  }
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_compiles(texts, "sm_90a");
}

bool is_mma(const KernelVariant& variant) {
  const auto* way = std::get_if<RecurrentWay>(&variant.way);
  return way != nullptr && way->unit == RecurrentUnit::kMma;
}

TEST(RecurrentCuda, WaysOfMatrixUnitsCompile) {
  const CudaKernel* row = find_cuda_kernel("recurrent_cluster");
  std::vector<std::string> texts;
  uint64_t seed = 0;
  for (const Layer& layer :
       {Layer{DType::f16, 3, 5, 0}, Layer{DType::bf16, 1, 37, 2}, Layer{DType::bf16, 2, 200, 1},
        Layer{DType::f16, 0, 391, 2}, Layer{DType::bf16, 1, 600, 1}, Layer{DType::f16, 0, 1024, 0},
        Layer{DType::bf16, 1, 1024, 2}, Layer{DType::f16, 2, 1500, 2}, Layer{DType::bf16, 0, 1000, 1}}) {
    RandomWindows random(++seed);
    CudaProblem p = ready(random, forward_problem(random, layer));
    // Every text once, the ways in turn.
    const std::vector<KernelVariant> ways = cuda_variants(*row, p);
    const size_t count = static_cast<size_t>(std::count_if(ways.begin(), ways.end(), is_mma));
    ASSERT_GT(count, 0u);
    for (size_t i = 0, turn = seed % count; i < ways.size(); ++i) {
      if (!is_mma(ways[i]) || turn-- != 0) continue;
      p.way = ways[i].way;
      const CudaCode code = row->generate(p);
      EXPECT_EQ(code, row->generate(p));
      EXPECT_NE(code.source.find("RecurrentMmaLayer"), std::string::npos);
      texts.push_back(code.source);
    }
  }
  ASSERT_EQ(texts.size(), 9u);
  AICF_NEEDS_NVRTC();
  const std::vector<std::string> images = compile_cuda(texts, "sm_90a");
  for (size_t i = 0; i < images.size(); ++i) EXPECT_EQ(cuda_testing::stack_bytes(images[i]), 0) << texts[i];
}

TEST(RecurrentCuda, HostAndDeviceAgreeOnSharedMemory) {
  const CudaKernel* row = find_cuda_kernel("recurrent_cluster");
  std::vector<std::string> texts;
  uint64_t seed = 20;
  for (const int64_t cell : {0, 1, 2})
    for (const int64_t hidden : {37, 200, 512, 1024}) {
      RandomWindows random(++seed);
      CudaProblem p = ready(random, forward_problem(random, {DType::bf16, cell, hidden, 2}));
      for (const KernelVariant& variant : cuda_variants(*row, p)) {
        if (!is_mma(variant)) continue;
        p.way = variant.way;
        const CudaCode code = row->generate(p);
        const size_t type = code.source.find("aicf::RecurrentMmaLayer");
        cuda_testing::LayoutText text(code.source);
        text.use("Layer", code.source.substr(type, code.source.find("::run") - type));
        text.equal("sizeof(Layer::Shared)", code.launches[0].shared_bytes);
        text.equal("Layer::kWarps * 32", code.launches[0].block);
        texts.push_back(text.text());
      }
    }
  EXPECT_GT(texts.size(), 20u);
  AICF_NEEDS_NVRTC();
  cuda_testing::expect_compiles(texts, "sm_90a");
}

}  // namespace
}  // namespace aicf
