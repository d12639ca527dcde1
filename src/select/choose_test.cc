// Which candidate wins, and that records and forced choices decide it.
#include "select/choose.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error.h"
#include "kernels/common/kernel_revision.h"
#include "select/cuda_problem.h"
#include "select/layout.h"
#include "select/library_call.h"
#include "select/select.h"

namespace aicf {
namespace {

// y = x w, with w transposed in memory as a linear layer has it.
Graph product(int64_t m, int64_t n, int64_t k, DType dtype) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {dtype, {Dim(m), Dim(k)}});
  const ValueId w = graph.add_input("w", {dtype, {Dim(n), Dim(k)}});
  graph.add_output(graph.add(Op::matmul, {x, w}, {{"transpose_y", true}}), "y");
  return graph;
}

// Of the library's routine that runs; "" if none does.
std::string library_text(const KernelCall& call) {
  const auto* library = std::get_if<LibraryRun>(&call.what);
  return library == nullptr ? "" : library->text;
}

KernelCall choose_for(const Graph& graph, const std::string& target, const SelectOptions& options = {}) {
  return select_kernels(graph, Target::from_name(target), options).calls.at(0);
}

TEST(Choose, candidates_are_ranked_and_the_first_wins) {
  const KernelCall call = choose_for(product(256, 1024, 1024, DType::bf16), "sm_90");
  const auto& list = call.choice.candidates;
  ASSERT_GT(list.size(), 20u);
  EXPECT_EQ(call.choice.chosen, 0u);
  EXPECT_EQ(own_row(call)->way, list[0].way);
  EXPECT_TRUE(is_wgmma(std::get<MatmulWay>(list[0].way))) << to_string(list[0]);
  for (const Candidate& candidate : list) EXPECT_GT(candidate.estimate_us, 0) << to_string(candidate);
  ASSERT_TRUE(call.choice.key);
  EXPECT_EQ(call.choice.key->op, "matmul");
  EXPECT_EQ(call.choice.key->units, 132);
}

// Products of f32 by parts compete with those without by their estimates: few rows have no use for tiles of
// 128.
TEST(Choose, large_products_of_f32_run_by_parts) {
  const auto row_of = [](const Graph& graph, const char* target) {
    return own_row(choose_for(graph, target))->row;
  };
  const Graph large = product(2048, 2048, 512, DType::f32);
  EXPECT_EQ(row_of(large, "sm_90"), "matmul_tf32x3");
  for (const char* target : {"sm_80", "sm_89", "compute_80"}) EXPECT_EQ(row_of(large, target), "matmul_simt");
  EXPECT_EQ(row_of(product(2048, 2048, 512, DType::f64), "sm_90"), "matmul_simt");
  EXPECT_EQ(row_of(product(8, 2048, 2048, DType::f32), "sm_90"), "matmul_simt");
  EXPECT_EQ(row_of(product(64, 64, 64, DType::f32), "sm_90"), "matmul_simt");
  SelectOptions options;
  options.forced = {{"matmul", "matmul_simt"}};
  EXPECT_EQ(own_row(choose_for(large, "sm_90", options))->row, "matmul_simt");
}

// A batch of products of small matrices, of rows that begin anywhere where n is odd.
Graph small_products(int64_t batch, int64_t m, int64_t n, int64_t k, DType dtype) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {dtype, {Dim(batch), Dim(m), Dim(k)}});
  const ValueId y = graph.add_input("y", {dtype, {Dim(batch), Dim(k), Dim(n)}});
  graph.add_output(graph.add(Op::matmul, {x, y}), "z");
  return graph;
}

TEST(Choose, many_small_products_have_blocks_of_whole_ones) {
  const auto way_of = [](const Graph& graph) {
    const CallGraph calls = select_kernels(graph, Target::from_name("sm_90"), {});
    EXPECT_EQ(calls.calls.size(), 1u) << "no copies";
    return std::get<MatmulWay>(own_row(calls.calls.back())->way);
  };
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16})
    for (const int64_t side : {5, 8, 16})
      EXPECT_TRUE(is_batched(way_of(small_products(100000, side, side, side, dtype)))) << side;
  EXPECT_TRUE(loads_all_of_k(way_of(small_products(5000, 49, 49, 64, DType::f16))));
  EXPECT_EQ(way_of(small_products(5000, 29, 29, 29, DType::f16)).unit, MatmulUnit::warp);
  EXPECT_TRUE(is_wgmma(way_of(small_products(768, 64, 64, 32, DType::f16))));
  EXPECT_FALSE(is_for_small_products(way_of(small_products(2, 8, 8, 8, DType::f16))));
}

// Three convolutions, the first over three channels, and what makes the last one's result no output.
CallGraph convolutions(int64_t images, int64_t maps, int64_t side, const std::string& target) {
  Graph graph("main");
  ValueId x = graph.add_input("x", {DType::f32, {Dim(images), Dim(3), Dim(side), Dim(side)}});
  for (const int64_t channels : {int64_t{3}, maps, maps}) {
    const ValueId w = graph.add_constant(Array(DType::f32, {maps, channels, 3, 3}));
    x = graph.add(Op::conv, {x, w},
                  {{"strides", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}});
  }
  graph.add_output(graph.add(Op::relu, {x}), "y");
  return select_kernels(graph, Target::from_name(target), {});
}

// Where convolutions of f32 by parts clearly gain, what they read and make lies channels-last, also what one
// makes that cannot run so; nothing is copied in a run.
TEST(Choose, convolutions_of_f32_run_by_parts_channels_last) {
  const auto rows = [](const CallGraph& calls) {
    std::vector<std::string> list;
    for (const KernelCall& call : calls.calls) list.push_back(own_row(call)->row);
    return list;
  };
  const auto last = [](const CallGraph& calls) {
    std::vector<bool> list;
    for (size_t i = 0; i < 3; ++i) list.push_back(calls.calls[i].outputs[0].strides[1] == Dim(1));
    return list;
  };
  using Rows = std::vector<std::string>;
  const CallGraph large = convolutions(12, 64, 128, "sm_90"), small = convolutions(1, 16, 12, "sm_90");
  EXPECT_EQ(rows(large), (Rows{"conv_simt", "conv_tf32x3", "conv_tf32x3", "tile"}));
  EXPECT_EQ(last(large), (std::vector<bool>{true, true, true}));
  EXPECT_EQ(rows(small), (Rows{"conv_simt", "conv_simt", "conv_simt", "tile"}));
  EXPECT_EQ(last(small), (std::vector<bool>{false, false, false}));
  EXPECT_EQ(rows(convolutions(12, 64, 128, "sm_80")), (Rows{"conv_simt", "conv_simt", "conv_simt", "tile"}));
}

// Channels first, as the caller has them, in and out.
CallGraph lone_convolution(DType dtype, const Ints& x, const Ints& w, int64_t groups = 1, bool bias = false) {
  const auto shape = [](const Ints& sizes) { return Shape(sizes.begin(), sizes.end()); };
  const size_t spatial = x.size() - 2;
  const int64_t pad = w.back() / 2;
  Graph graph("main");
  std::vector<ValueId> operands{graph.add_input("x", {dtype, shape(x)}),
                                graph.add_input("w", {dtype, shape(w)})};
  if (bias) operands.push_back(graph.add_input("b", {dtype, {Dim(w[0])}}));
  graph.add_output(graph.add(Op::conv, operands,
                             {{"strides", Ints(spatial, 1)},
                              {"pads", Ints(2 * spatial, pad)},
                              {"dilations", Ints(spatial, 1)},
                              {"groups", groups}}),
                   "y");
  return select_kernels(graph, Target::from_name("sm_90"), {});
}

// A convolution whose result has its pixels as neighbours is stored so by the kernel that the copy engine
// feeds, over a copy of x alone and of w.
TEST(Choose, convolutions_store_pixels_as_neighbours) {
  const auto chosen = [](const CallGraph& calls) { return to_string(own_row(calls.calls.back())->way); };
  const CallGraph halves = lone_convolution(DType::f16, {55, 96, 32, 32}, {96, 96, 3, 3});
  EXPECT_TRUE(chosen(halves).starts_with("halo ")) << chosen(halves);
  EXPECT_EQ(halves.calls.size(), 3u);
  EXPECT_EQ(halves.calls.back().outputs[0].strides[3], Dim(1));
  const CallGraph floats = lone_convolution(DType::f32, {55, 96, 32, 32}, {96, 96, 3, 3});
  EXPECT_EQ(own_row(floats.calls.back())->row, "conv_tf32x3");
  const CallGraph grouped = lone_convolution(DType::f32, {8, 192, 64, 64}, {192, 48, 3, 3}, 4);
  EXPECT_EQ(own_row(grouped.calls.back())->row, "conv_tf32x3");
  const CallGraph volumes = lone_convolution(DType::f16, {38, 64, 8, 28, 28}, {64, 64, 3, 3, 3});
  EXPECT_TRUE(chosen(volumes).starts_with("halo ")) << chosen(volumes);
  // Most of the rows that the copy engine would write are zeros.
  const CallGraph narrow = lone_convolution(DType::f16, {38, 16, 8, 28, 28}, {16, 16, 3, 3, 3});
  EXPECT_TRUE(chosen(narrow).starts_with("gathered ")) << chosen(narrow);
  EXPECT_EQ(narrow.calls.size(), 1u);
  // A copy is made for the copy engine alone.
  const CallGraph odd = lone_convolution(DType::f16, {903, 16, 17, 17}, {16, 16, 3, 3});
  EXPECT_EQ(odd.calls.size(), 1u);
  // Small ones of few channels read x as it lies.
  const CallGraph few = lone_convolution(DType::f16, {4, 16, 24, 24}, {16, 16, 3, 3});
  EXPECT_EQ(few.calls.size(), 1u);
}

// A gradient of weights reads the copy of x that the convolution before it has.
TEST(Choose, weight_gradients_read_the_copy_of_a_convolution) {
  Graph graph("main");
  const auto add = [&](const char* name, int64_t a, int64_t b, int64_t size) {
    return graph.add_input(name, {DType::f16, {Dim(a), Dim(b), Dim(size), Dim(size)}});
  };
  const ValueId x = add("x", 55, 96, 32), w = add("w", 96, 96, 3), dy = add("dy", 55, 96, 32);
  const Ints ones{1, 1}, pads{1, 1, 1, 1};
  graph.add_output(graph.add(Op::conv, {x, w}, {{"strides", ones}, {"pads", pads}, {"dilations", ones}}),
                   "y");
  graph.add_output(
      graph.add(Op::conv_weight_gradient, {x, dy},
                {{"kernel", Shape{Dim(3), Dim(3)}}, {"strides", ones}, {"pads", pads}, {"dilations", ones}}),
      "dw");
  const CallGraph calls = select_kernels(graph, Target::from_name("sm_90"), {});
  const KernelCall &conv = calls.calls.at(2), &gradient = calls.calls.at(3);
  EXPECT_EQ(own_row(gradient)->row, "weight_gradient_wgmma");
  EXPECT_EQ(gradient.inputs[0], conv.inputs[0]);
  EXPECT_EQ(gradient.inputs[0].strides[1], Dim(1));
}

// With one tap at every position each image is a product that reads and writes pixels as they lie.
TEST(Choose, pointwise_convolutions_of_channels_first_are_products) {
  for (const DType dtype : {DType::f16, DType::f32})
    for (const bool bias : {false, true}) {
      const CallGraph calls = lone_convolution(dtype, {35, 96, 28, 28}, {96, 96, 1, 1}, 1, bias);
      ASSERT_EQ(calls.calls.size(), 1u);
      const KernelCall& call = calls.calls[0];
      EXPECT_TRUE(own_row(call)->row.starts_with("matmul")) << own_row(call)->row;
      EXPECT_EQ(call.inputs[0].sizes, (Shape{Dim(35), Dim(96), Dim(96)}));
      EXPECT_EQ(call.inputs[1].sizes, (Shape{Dim(35), Dim(96), Dim(784)}));
      EXPECT_EQ(call.outputs[0].sizes, (Shape{Dim(35), Dim(96), Dim(784)}));
      EXPECT_EQ(call.inputs.size(), bias ? 3u : 2u);
      if (bias) {
        EXPECT_EQ(call.inputs[2].strides, (std::vector<Dim>{Dim(0), Dim(1), Dim(0)}));
      }
    }
  EXPECT_TRUE(own_row(lone_convolution(DType::f16, {35, 96, 28, 28}, {96, 24, 1, 1}, 4).calls.back())
                  ->row.starts_with("conv"));
}

// Images of one channel of so many sides, by kernels of so many; padded by one.
Graph convolution(int64_t images, int64_t maps, int64_t side, int64_t kernel, DType dtype) {
  Graph graph("main");
  const ValueId x = graph.add_input("x", {dtype, {Dim(images), Dim(1), Dim(side), Dim(side)}});
  const ValueId w = graph.add_input("w", {dtype, {Dim(maps), Dim(1), Dim(kernel), Dim(kernel)}});
  graph.add_output(
      graph.add(Op::conv, {x, w},
                {{"strides", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}}),
      "y");
  return graph;
}

// Estimates decide between rows on the same units, whatever their priorities.
TEST(Choose, the_cheapest_row_of_the_same_units_wins) {
  const auto row = [](const Graph& graph) { return own_row(choose_for(graph, "sm_90"))->row; };
  ASSERT_GT(find_cuda_kernel("conv_depthwise")->priority, find_cuda_kernel("conv_simt")->priority);
  EXPECT_EQ(row(convolution(16, 3, 32, 32, DType::f32)), "conv_simt");
  EXPECT_EQ(row(convolution(16, 3, 32, 3, DType::f32)), "conv_depthwise");
  const KernelCall call = choose_for(convolution(16, 3, 32, 32, DType::f32), "sm_90");
  for (const Candidate& candidate : call.choice.candidates)
    EXPECT_GE(candidate.estimate_us, call.choice.candidates[0].estimate_us) << to_string(candidate);
}

// A product over the taps of single channels is left to the depthwise row, also of halves, whose products are
// measured.
TEST(Choose, depthwise_convolutions_of_halves_take_the_row_made_for_them) {
  Graph graph;
  const ValueId x = graph.add_input("x", {DType::f16, {Dim(4), Dim(64), Dim(9), Dim(9)}}),
                w = graph.add_input("w", {DType::f16, {Dim(64), Dim(1), Dim(7), Dim(7)}});
  graph.add_output(graph.add(Op::conv, {x, w},
                             {{"strides", Ints{1, 1}},
                              {"pads", Ints{3, 3, 3, 3}},
                              {"dilations", Ints{1, 1}},
                              {"groups", int64_t{64}}}),
                   "y");
  const KernelCall call = choose_for(graph, "sm_90");
  EXPECT_EQ(own_row(call)->row, "conv_depthwise");
  EXPECT_GT(call.choice.candidates.size(), 1u);
}

TEST(Choose, every_call_has_a_choice_on_the_cpu_too) {
  const KernelCall call = choose_for(product(4, 8, 16, DType::f32), "cpu");
  ASSERT_EQ(call.choice.candidates.size(), 1u);
  EXPECT_FALSE(call.choice.key);
  EXPECT_EQ(call.reason, "only candidate");
}

TEST(Choose, a_record_decides_and_a_forced_choice_decides_over_it) {
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  Records records;
  records.add_layer("user", {{*plain.choice.key, to_string(plain.choice.candidates[3]), 5, 6, ""}});
  SelectOptions options;
  options.records = &records;
  const KernelCall recorded = choose_for(graph, "sm_90", options);
  EXPECT_EQ(recorded.choice.chosen, 3u);
  EXPECT_EQ(recorded.choice.source, ChoiceSource::kRecord);
  EXPECT_EQ(own_row(recorded)->way, plain.choice.candidates[3].way);
  options.forced = {{"matmul", "matmul_simt"}};
  const KernelCall forced = choose_for(graph, "sm_90", options);
  EXPECT_EQ(own_row(forced)->row, "matmul_simt");
  EXPECT_EQ(forced.choice.source, ChoiceSource::kForced);
  options.forced = {{"conv", "matmul_simt"}};
  EXPECT_EQ(choose_for(graph, "sm_90", options).choice.chosen, 3u);
}

TEST(Choose, the_reason_says_the_estimate_and_a_price_that_measurements_have_changed) {
  EXPECT_EQ(time_text({"kernel", {}, 7.06}), "estimated 7.1 us");
  EXPECT_EQ(time_text({"kernel", {}, 7.06, 6.3}), "estimated 7.1 us, priced 6.3 us");
  const KernelCall moved = choose_for(product(512, 1024, 768, DType::bf16), "sm_90");
  const Candidate& first = moved.choice.candidates[0];
  EXPECT_LT(first.price_us, first.estimate_us);
  EXPECT_EQ(moved.reason, "first of " + std::to_string(moved.choice.candidates.size()) +
                              " candidates by measurements of like problems, " + time_text(first));
}

std::vector<double> estimates(const KernelCall& call) {
  std::vector<double> list;
  for (const Candidate& candidate : call.choice.candidates) list.push_back(candidate.estimate_us);
  return list;
}

TEST(Choose, a_record_changes_the_price_of_its_candidate_and_no_estimate) {
  constexpr double kMeasured = 1e3;  // more than any estimate
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  const auto& before = plain.choice.candidates;
  const auto slowest = std::max_element(before.begin(), before.end(), [](const auto& a, const auto& b) {
    return a.estimate_us < b.estimate_us;
  });
  const auto recorded = [&](const KernelCall& of) {
    Records records;
    records.add_layer("user", {{*of.choice.key, to_string(*slowest), kMeasured, 6, ""}});
    SelectOptions options;
    options.records = &records;
    return choose_for(graph, "sm_90", options);
  };
  const KernelCall like = choose_for(product(250, 1024, 1024, DType::bf16), "sm_90");
  // By a like problem's record it takes no longer than the first.
  for (const auto& [call, price] :
       {std::pair(recorded(plain), kMeasured), {recorded(like), before[0].price_us}}) {
    EXPECT_EQ(call.choice.source, ChoiceSource::kRecord);
    EXPECT_EQ(estimates(call), estimates(plain));
    for (size_t i = 0; i < before.size(); ++i)
      EXPECT_EQ(call.choice.candidates[i].price_us, i == call.choice.chosen ? price : before[i].price_us)
          << to_string(before[i]);
  }
}

TEST(Choose, ways_are_estimated_for_the_named_target) {
  // The time of a product of few rows is that of its weights.
  const Graph graph = product(8, 4096, 4096, DType::f16);
  const auto memory = [](const char* target) {
    return Target::from_name(target).facts().bytes_per_microsecond;
  };
  const CudaKernel& kernel = *find_cuda_kernel("matmul_tensor_core");
  const SymbolRanges ranges;
  int compared = 0;
  for (const char* target : {"sm_80", "sm_86", "sm_89"}) {
    const KernelCall call = choose_for(graph, target);
    const CudaProblem problem = cuda_problem(call, Target::from_name(target), ranges);
    EXPECT_EQ(problem.machine.multiprocessors, Target::from_name(target).facts().multiprocessors);
    for (const Candidate& own : call.choice.candidates)
      for (const KernelVariant& counted : cuda_variants(kernel, problem)) {
        if (own.kernel != kernel.name || !(own.way == counted.way)) continue;
        EXPECT_NEAR(own.estimate_us / counted.microseconds, memory("sm_90") / memory(target), 1e-6)
            << target << " " << to_string(own);
        ++compared;
      }
  }
  EXPECT_GT(compared, 6);
}

TEST(Choose, a_librarys_call_is_estimated_by_its_work_and_priced_by_its_record) {
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  const std::string name = "matmul_cublaslt/" + to_string(CublasLtCall{130101, {}, -1, -1, 4096, {1}});
  Records records;
  records.add_layer("user", {{*plain.choice.key, name, 5, 6, ""}});
  SelectOptions recorded, forced;
  recorded.records = &records;
  forced.forced = {{"*", name}};
  const Candidate by_record = choose_for(graph, "sm_90", recorded).choice.candidates.back();
  const Candidate by_name = choose_for(graph, "sm_90", forced).choice.candidates.back();
  EXPECT_EQ(by_record.price_us, 5);
  EXPECT_EQ(by_name.price_us, by_name.estimate_us);
  EXPECT_EQ(by_record.estimate_us, by_name.estimate_us);
  EXPECT_GT(by_name.estimate_us, Target::from_name("sm_90").facts().edge_microseconds);
}

TEST(Choose, a_record_of_a_choice_that_is_gone_is_passed_over) {
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  Records records;
  records.add_layer("user", {{*plain.choice.key, "matmul_tensor_core/of another version", 5, 6, ""}});
  SelectOptions options;
  options.records = &records;
  const KernelCall call = choose_for(graph, "sm_90", options);
  EXPECT_EQ(call.choice.source, ChoiceSource::kRank);
  EXPECT_NE(call.reason.find("passed over"), std::string::npos) << call.reason;
}

// A row that had one way when the record was written.
TEST(Choose, a_record_that_names_no_way_means_the_rows_first) {
  Graph graph("main");
  std::vector<ValueId> operands;
  for (const char* name : {"q", "k", "v"})
    operands.push_back(graph.add_input(name, {DType::f32, {Dim(2), Dim(4), Dim(160), Dim(32)}}));
  graph.add_output(graph.add(Op::attention, operands, {{"scale", 0.125}}), "y");
  const KernelCall plain = choose_for(graph, "sm_90");
  ASSERT_GT(plain.choice.candidates.size(), 1u);
  EXPECT_EQ(to_string(plain.choice.candidates[0]).rfind("attention_simt/simt ", 0), 0u);
  const std::string third = to_string(plain.choice.candidates[2]);
  for (const auto& [name, chosen] : {std::pair(std::string("attention_simt"), 0u), {third, 2u}}) {
    const std::vector<Record> written = {{*plain.choice.key, name, 5, 6, "nvrtc 13.0"}};
    Records records;
    records.add_layer("user", parse_records(to_string(written), "test"));
    SelectOptions options;
    options.records = &records;
    const KernelCall call = choose_for(graph, "sm_90", options);
    EXPECT_EQ(call.choice.source, ChoiceSource::kRecord) << name;
    EXPECT_EQ(call.choice.chosen, chosen) << name;
  }
}

TEST(Choose, a_record_of_another_revision_of_the_kernel_is_passed_over) {
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  const std::string name = to_string(plain.choice.candidates[3]);
  const std::string now = record_versions("nvrtc 13.0", name);
  EXPECT_EQ(now, "nvrtc 13.0 kernel " + std::to_string(kernel_revision("matmul_tensor_core")));
  for (const auto& [versions, source] :
       {std::pair(now, ChoiceSource::kRecord), {"nvrtc 13.0 kernel 999", ChoiceSource::kRank}}) {
    Records records;
    records.add_layer("user", {{*plain.choice.key, name, 5, 6, versions}});
    SelectOptions options;
    options.records = &records;
    const KernelCall call = choose_for(graph, "sm_90", options);
    EXPECT_EQ(call.choice.source, source) << versions;
    EXPECT_EQ(call.reason.find("passed over") != std::string::npos, source == ChoiceSource::kRank)
        << call.reason;
  }
}

TEST(Choose, a_library_is_a_candidate_by_an_exact_record_only) {
  const Graph graph = product(256, 1024, 1024, DType::bf16);
  const KernelCall plain = choose_for(graph, "sm_90");
  const std::string name = "matmul_cublaslt/" + to_string(CublasLtCall{130101, {}, -1, -1, 4096, {1}});
  const auto recorded = [&](const ProblemKey& key) {
    Records records;
    records.add_layer("user", {{key, name, 5, 6, ""}});
    return records;
  };
  const Records exact = recorded(*plain.choice.key);
  SelectOptions options;
  options.records = &exact;
  const KernelCall call = choose_for(graph, "sm_90", options);
  const auto& library = std::get<LibraryRun>(call.what);
  EXPECT_EQ("matmul_cublaslt/" + library.text, name);
  EXPECT_EQ(library.workspace_bytes, 4096);
  EXPECT_EQ(library.fallback, *row_call(plain));  // what runs where the library is not wanted
  options.libraries = false;
  EXPECT_EQ(library_text(choose_for(graph, "sm_90", options)), "");
  options.libraries = true;
  const Records near = recorded(*choose_for(product(250, 1024, 1024, DType::bf16), "sm_90").choice.key);
  options.records = &near;
  EXPECT_EQ(library_text(choose_for(graph, "sm_90", options)), "");
  const std::string with_bias = "matmul_cublaslt/" + to_string(CublasLtCall{130101, {}, 2, -1, 0, {1}});
  options.forced = {{"*", with_bias}};  // not what this step computes
  EXPECT_EQ(library_text(choose_for(graph, "sm_90", options)), "");
  options.forced = {{"*", name}};
  EXPECT_EQ("matmul_cublaslt/" + library_text(choose_for(graph, "sm_90", options)), name);
}

TEST(Choose, epilogues_that_a_library_can_compute) {
  const auto form = [](DType dtype, bool adds, const std::string& activation, const Dim& rows) {
    Graph graph("main");
    const ValueId x = graph.add_input("x", {dtype, {rows, Dim(64)}});
    const ValueId w = graph.add_input("w", {dtype, {Dim(64), Dim(32)}});
    const ValueId b = graph.add_input("b", {dtype, {Dim(32)}});
    const ValueId r = graph.add_input("r", {dtype, {rows, Dim(32)}});
    // The graph's matmul alone: its epilogue is the region given below.
    graph.add_output(graph.add(Op::matmul, {x, w}), "y");
    SelectOptions options;
    options.ranges["rows"] = {1, 8};
    KernelCall call = select_kernels(graph, Target::from_name("sm_90"), options).calls.at(0);
    const Shape out = {rows, Dim(32)};
    call.inputs.push_back(broadcast_window(row_major_window(b, graph.type(b)), out));
    call.inputs.push_back(row_major_window(r, graph.type(r)));
    Region region;
    const ValueId tile = region.body.add_input("tile", {DType::f32, out});
    const ValueId bias = region.body.add_input("b", {dtype, {Dim(32)}});
    const ValueId rest = region.body.add_input("r", {dtype, out});
    ValueId v = is_half(dtype) ? region.body.add(Op::cast, {tile}, {{"dtype", dtype}}) : tile;
    if (adds) v = region.body.add(Op::add, {region.body.add(Op::add, {v, bias}), rest});
    if (activation == "relu") v = region.body.add(Op::relu, {v});
    if (activation == "tanh" || activation == "none")
      v = region.body.add(Op::gelu, {v}, {{"approximate", activation}});
    region.body.add_output(v, "y");
    const auto form = library_form(call, "matmul", &region);
    return form ? std::optional(std::get<CublasLtCall>(*form)) : std::nullopt;
  };
  const auto plain = form(DType::f32, true, "", Dim(8));
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->bias, 2);
  EXPECT_EQ(plain->addend, 3);
  EXPECT_EQ(form(DType::f32, true, "relu", Dim(8))->activation, CublasLtActivation::kRelu);
  EXPECT_EQ(form(DType::f32, true, "tanh", Dim(8))->activation, CublasLtActivation::kGelu);
  EXPECT_FALSE(form(DType::f32, true, "none", Dim(8)));  // the library's GELU is the one by tanh
  EXPECT_FALSE(form(DType::f32, true, "", Dim::symbol("rows")));
  // Of halves the product is rounded before anything is added, which a library does not do.
  EXPECT_TRUE(form(DType::f16, false, "", Dim(8)));
  EXPECT_EQ(form(DType::bf16, false, "relu", Dim(8))->activation, CublasLtActivation::kRelu);
  EXPECT_FALSE(form(DType::f16, true, "", Dim(8)));
  EXPECT_FALSE(form(DType::bf16, false, "tanh", Dim(8)));
}

TEST(Choose, convolutions_and_attention_of_a_library) {
  const auto chosen = [](const Graph& graph, const std::string& name) {
    SelectOptions options;
    options.forced = {{"*", name}};
    return choose_for(graph, "sm_90", options);
  };
  Graph attention("main");
  std::vector<ValueId> operands;
  for (const char* name : {"q", "k", "v"})
    operands.push_back(attention.add_input(name, {DType::bf16, {Dim(1), Dim(4), Dim(128), Dim(64)}}));
  attention.add_output(attention.add(Op::attention, operands, {{"scale", 0.125}}), "y");
  const std::string call = "91901 attention workspace 16 engine 1";
  const KernelCall found = chosen(attention, "attention_cudnn/" + call);
  EXPECT_EQ(library_text(found), call);
  EXPECT_EQ(std::get<LibraryRun>(found.what).workspace_bytes, 16);
  EXPECT_EQ(own_row(found)->row, "attention_wgmma");  // what runs where the library is not wanted
  EXPECT_EQ(library_text(chosen(attention, "conv_cudnn/91901 conv workspace 0 engine 1")), "");

  // Operands are stored with channels innermost, and the result if asked for.
  const auto convolution = [](bool turned) {
    Graph graph("main");
    const auto operand = [&](const char* name, const Shape& sizes) {
      const ValueId stored = graph.add_input(name, {DType::f16, sizes});
      return graph.add(Op::transpose, {stored}, {{"perm", Ints{0, 3, 1, 2}}});
    };
    const ValueId x = operand("x", {Dim(2), Dim(8), Dim(8), Dim(64)});
    const ValueId w = operand("w", {Dim(32), Dim(3), Dim(3), Dim(64)});
    const ValueId bias = graph.add_input("b", {DType::f16, {Dim(32)}});
    const Attrs attrs = {{"strides", Ints{1, 1}}, {"pads", Ints{1, 1, 1, 1}}, {"dilations", Ints{1, 1}}};
    const ValueId y = graph.add(Op::conv, {x, w, bias}, attrs);
    graph.add_output(turned ? graph.add(Op::transpose, {y}, {{"perm", Ints{0, 2, 3, 1}}}) : y, "y");
    return graph;
  };
  const std::string with_bias = "conv_cudnn/91901 conv bias 2 workspace 0 engine 1";
  EXPECT_EQ("conv_cudnn/" + library_text(chosen(convolution(true), with_bias)), with_bias);
  EXPECT_EQ(library_text(chosen(convolution(false), with_bias)), "");
  const std::string other = "conv_cudnn/91901 conv workspace 0 engine 1";  // without the bias
  EXPECT_EQ(library_text(chosen(convolution(true), other)), "");
}

TEST(Choose, keys_tell_regions_apart_but_not_by_size) {
  const auto key = [](int64_t n, double constant) {
    Region region;
    const ValueId x = region.body.add_input("x", {DType::f32, {Dim(n)}});
    const ValueId c = region.body.add_constant(Array::scalar_f64(DType::f32, constant));
    region.body.add_output(region.body.add(Op::add, {x, c}), "y");
    KernelCall call;
    call.what = RowCall();
    return problem_key(call, "matmul", &region, Target::from_name("sm_90"), {}).region;
  };
  EXPECT_EQ(key(4, 1.0), key(8, 1.0));
  EXPECT_NE(key(4, 1.0), key(4, 2.0));
}

}  // namespace
}  // namespace aicf
