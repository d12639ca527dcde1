#include "calls/call_costs.h"

#include <algorithm>
#include <utility>

#include "select/cost_model.h"

namespace aicf {
namespace {

// Measured on H100 and H200: a block from its first instruction to its last if it has little to do, and a
// barrier between two stages of a bundle beyond that.
constexpr double kBlockTime = 0.8, kBarrierTime = 0.3;
// What one block moves and computes, per microsecond.
constexpr double kBlockBytes = 20e3, kBlockFlops = 1.5e5;
constexpr double kFullBlock = 512;     // threads of a multiprocessor that keep it as busy as more would
constexpr double kFullShared = 114e3;  // bytes of its shared memory: two such blocks fill it

double edge_of(const CodeContext& context) { return context.target.facts().edge_microseconds; }

// At most; every block of a scatter reads all indices.
double index_bytes(const KernelCall& scatter, const CodeContext& context) {
  const Window& indices = scatter.inputs[1];
  const auto count = bounds(element_count(indices.sizes), context.ranges).hi;
  return static_cast<double>(count) * dtype_bytes(indices.dtype);
}

double blocks_of(const CudaLaunch& launch, const CodeContext& context) {
  double blocks = 1;
  for (const Dim& along : launch.grid)
    blocks *= static_cast<double>(std::max<int64_t>(bounds(along, context.ranges).hi, 0));
  return blocks;
}

// Of the multiprocessors, those that its blocks keep busy.
double part_of_device(const CudaLaunch& launch, const CodeContext& context) {
  const double of_one =
      std::max(launch.block / kFullBlock, static_cast<double>(launch.shared_bytes) / kFullShared);
  return std::min(
      1.0, blocks_of(launch, context) * std::min(of_one, 1.0) / context.target.facts().multiprocessors);
}

// Of whatever launches the call has.
double time_alone(const KernelCall& call, const CodeContext& context) {
  return std::max(price_of(call, context), edge_of(context) + kBlockTime);
}

std::vector<MemberCost> member_costs(const Bundle& bundle, const CodeContext& context) {
  std::vector<MemberCost> costs;
  for (const auto& [call, stage] : bundle.members) {
    costs.push_back(member_cost(call, call_code(call, context, CodeForm::member).launches[0], context));
    costs.back().stage = stage;
  }
  return costs;
}

}  // namespace

double price_of(const KernelCall& call, const CodeContext& context) {
  const Choice& choice = call.choice;
  if (!choice.candidates.empty()) return choice.candidates[choice.chosen].price_us;
  if (std::holds_alternative<GroupedProducts>(call.what)) return ways_of(call, context)[0].microseconds;
  const RowCall* row = own_row(call);
  return row == nullptr ? 0 : estimate_microseconds(call, row->row, context.target, context.ranges);
}

CallCost cost_of(const KernelCall& call, const CodeContext& context) {
  const double edge = edge_of(context);
  if (const auto* bundle = std::get_if<Bundle>(&call.what)) {
    CallCost cost = bundle_cost(member_costs(*bundle, context), context.target);
    const size_t launches = call_code(bundle->members[0].call, context, CodeForm::member).launches.size();
    cost.time += static_cast<double>(launches - 1) * (edge + kBlockTime);
    return cost;
  }
  if (const auto* group = std::get_if<GroupedProducts>(&call.what)) {
    double sum = 0;
    for (const KernelCall& member : group->members) sum += time_alone(member, context) - edge;
    return {edge + sum, sum};
  }
  const auto* fusion = std::get_if<PrologueFusion>(&call.what);
  if (fusion != nullptr || row_call(call) == nullptr) {
    const double alone = time_alone(fusion != nullptr ? *fusion->consumer : call, context);
    return {alone, alone - edge};
  }
  const std::vector<CudaLaunch> launches = call_code(call, context, CodeForm::kernel).launches;
  const double count = std::max(static_cast<double>(launches.size()), 1.0);
  const double alone = std::max(time_alone(call, context), count * (edge + kBlockTime));
  double part = 0;  // on average over its launches
  for (const CudaLaunch& launch : launches) part += part_of_device(launch, context) / count;
  return {alone, (alone - count * edge) * part};
}

MemberCost member_cost(const KernelCall& call, const CudaLaunch& launch, const CodeContext& context) {
  const std::string& row = row_call(call)->row;
  const Work work = largest_work(call, row, context.ranges);
  MemberCost cost{.blocks = bounds(launch.grid[0], context.ranges).hi,
                  .part = part_of_device(launch, context)};
  const auto blocks = static_cast<double>(std::max<int64_t>(cost.blocks, 1));
  double block_bytes = work.bytes / blocks;
  if (facts_of(row).work == WorkForm::kScatter) block_bytes += index_bytes(call, context);
  cost.block_time = kBlockTime + std::max(block_bytes / kBlockBytes, work.flops / blocks / kBlockFlops);
  cost.bytes_time = work.bytes / context.target.facts().bytes_per_microsecond;
  return cost;
}

CallCost bundle_cost(const std::vector<MemberCost>& members, const Target& target) {
  struct Stage {
    int64_t blocks = 0;
    double slowest = 0;
  };
  std::vector<Stage> stages;
  double bytes_time = 0, busy = 0;
  for (const MemberCost& member : members) {
    const auto number = static_cast<size_t>(member.stage);
    stages.resize(std::max(stages.size(), number + 1));
    Stage& stage = stages[number];
    stage.blocks += member.blocks;
    stage.slowest = std::max(stage.slowest, member.block_time);
    bytes_time += member.bytes_time;
    busy += std::max(member.block_time, member.bytes_time) * member.part;
  }
  const double edge = target.facts().edge_microseconds;
  if (stages.size() == 1) {
    const double time = std::max(stages[0].slowest, bytes_time);
    return {edge + time, std::min(busy, time)};
  }
  int64_t widest = 1;
  for (const Stage& stage : stages) widest = std::max(widest, stage.blocks);
  const int cluster = bundle_blocks(widest, target);
  double time = edge + kBarrierTime * static_cast<double>(stages.size() - 1);
  for (const Stage& stage : stages)
    time += stage.slowest * static_cast<double>((stage.blocks + cluster - 1) / cluster);
  const double part = std::min(1.0, static_cast<double>(cluster) / target.facts().multiprocessors);
  return {time, (time - edge) * part};
}

}  // namespace aicf
