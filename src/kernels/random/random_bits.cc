// random_bits: Philox4x32-10 (Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", 2011). Element i
// takes word i mod 4 of the block with counter (i/4 low, i/4 high, step low, stream) under the key (seed low,
// seed high): a function of the element's logical index alone.
#include <array>

#include "kernels/indexing/walk.h"

namespace aicf {

namespace {

std::array<uint32_t, 4> philox(std::array<uint32_t, 4> counter, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * counter[0], p1 = uint64_t{0xCD9E8D57} * counter[2];
    counter = {static_cast<uint32_t>(p1 >> 32) ^ counter[1] ^ key0, static_cast<uint32_t>(p1),
               static_cast<uint32_t>(p0 >> 32) ^ counter[3] ^ key1, static_cast<uint32_t>(p0)};
    key0 += 0x9E3779B9;
    key1 += 0xBB67AE85;
  }
  return counter;
}

struct RandomPlan {
  WalkSpace elements;  // output
  int64_t elements_per_tile, stream;
};

void run_random_bits(const BoundCall& call, int64_t tile, std::byte*) {
  const RandomPlan& plan = stored_plan<RandomPlan>(call);
  const auto seed = static_cast<uint64_t>(read_index(bytes_of(call.inputs[0]), true));
  const auto step = static_cast<uint64_t>(read_index(bytes_of(call.inputs[1]), true));
  const int64_t first = tile * plan.elements_per_tile,
                end = std::min(first + plan.elements_per_tile, plan.elements.count);
  Walk walk(plan.elements, first);
  std::array<uint32_t, 4> block{};
  for (int64_t i = first; i < end; ++i, walk.next()) {
    const auto number = static_cast<uint64_t>(i) / 4;
    if (i % 4 == 0 || i == first)
      block = philox({static_cast<uint32_t>(number), static_cast<uint32_t>(number >> 32),
                      static_cast<uint32_t>(step), static_cast<uint32_t>(plan.stream)},
                     static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32));
    std::memcpy(bytes_of(call.outputs[0]) + walk[0], &block[static_cast<size_t>(i % 4)], sizeof(uint32_t));
  }
}

}  // namespace

bool can_run_random_bits(const Problem& p) {
  return p.inputs.size() == 2 && p.inputs[0].dtype == DType::i64 && p.inputs[1].dtype == DType::i64 &&
         p.outputs.size() == 1 && p.outputs[0].dtype == DType::i32;
}

void prepare_random_bits(BoundCall& call) {
  check_counts(call, "random_bits", 2, 2, 1, 0);
  check_size(static_cast<int64_t>(call.outputs.size()), 1, "random_bits", "outputs");
  for (const TensorArg& arg : call.inputs) {
    check_tensor(arg, "random_bits", "seed or step");
    check_dtype(arg, DType::i64, "random_bits", "seed or step");
    for (int i = 0; i < arg.rank; ++i) check_size(arg.sizes[i], 1, "random_bits", "size of seed or step");
  }
  const TensorArg& out = call.outputs[0];
  check_tensor(out, "random_bits", "output");
  check_dtype(out, DType::i32, "random_bits", "output");
  RandomPlan plan = {};
  for (int i = 0; i < out.rank; ++i) plan.elements.add_axis(out.sizes[i], {byte_stride(out, i)});
  plan.stream = call.params[0];
  plan.elements_per_tile = split_work(call, plan.elements.count, 1);
  call.run = run_random_bits;
  store_plan(call, plan);
}

}  // namespace aicf
