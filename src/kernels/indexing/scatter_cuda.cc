// CUDA rows of scatter_elements and scatter_nd.
#include "kernels/indexing/scatter_cuda.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <set>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/indexing/copy_cuda.h"
#include "kernels/indexing/scatter_any_order_cuda.h"
#include "kernels/indexing/scatter_buckets_cuda.h"
#include "kernels/indexing/scatter_exact_cuda.h"
#include "kernels/indexing/scatter_text.h"
#include "kernels/order/merge_cuda.h"
#include "kernels/tile/cuda/tile_cuda.h"

namespace aicf {

namespace {

constexpr int64_t kManyLines = 8192;  // enough threads, each walking its updates
constexpr int64_t kFewUpdates = 16;   // per line: a walk is shorter than a sort
// Of scatter_order.cuh.
constexpr int64_t kOrderBlock = 1024, kMostOrdered = 4 * kOrderBlock;
constexpr int64_t kMostDigitBits = 8, kFewestDigitBits = 5;
constexpr int64_t kMostStartsOfBlock = 1 << 16;
constexpr int64_t kPlacesOfUpdate = 8;    // at most, where an order is shared
constexpr int64_t kLongChunksInline = 8;  // of a run, at most, that who adds them folds
// Of sort_scanned_updates; the third: bytes of shared memory beside those of the updates.
constexpr int64_t kSortScanBlock = 512, kSortScanWarps = kSortScanBlock / 32, kSortScanShared = 24 * 1024;

ScatterReduction reduction_of(const Dim& param) {
  return static_cast<ScatterReduction>(param.require_constant("reduction of a scatter"));
}
// A scatter whose updates a program makes: the call as a whole, text that defines the program's struct
// Updates, and the expression that makes one.
struct MadeUpdates {
  const CudaProblem* kernel = nullptr;
  std::string text;
  std::function<std::string(CudaParams&)> make;
  bool reports = false;  // an index of a table may be an error
};

// The launches of a scatter: of problem's own operands and updates, or of those that a program makes.
struct ScatterForm {
  const CudaProblem& problem;  // with a window of the updates
  const MadeUpdates* made = nullptr;

  const CudaProblem& kernel() const { return made != nullptr ? *made->kernel : problem; }
  bool reports() const { return made != nullptr && made->reports; }
  CudaCode empty_code() const {
    CudaCode code = scatter_code();
    if (made != nullptr) code.source += made->text;
    return code;
  }
  // Statements that define `updates`, where they come from.
  std::string updates_text(const std::string& type, CudaParams& params) const {
    return "  const auto updates = " +
           (made != nullptr ? made->make(params) : pointer_text(type, "in2", true)) + ";\n";
  }
};

// `at` of a Fold.
std::string at_text(const SortedUpdates& u) {
  const std::string unit = std::to_string(u.unit);
  if (u.carried)
    return "  const auto at = aicf::stored<" + unit + ">([](const " + u.item() +
           "* item) { return reinterpret_cast<const " + u.type + "*>(item); });\n";
  return "  const auto at = aicf::updates_at<" + unit + ">(s, updates, offset);\n";
}

// Elements that a thread can move as one, of the updates, the output and, if `with_x`, of x.
int64_t scatter_unit(const CudaProblem& problem, const ScatterProblem& s, bool with_x) {
  CudaWalk block(with_x ? 3 : 2);
  block.sizes = s.block.sizes;
  for (size_t tensor = 0; tensor < block.strides.size(); ++tensor)
    block.strides[tensor] = s.block.strides[tensor];
  const CudaWindow &updates = problem.inputs[2], &out = problem.outputs[0];
  std::vector<Dim> bases = {updates.offset, out.offset};
  const auto add_all = [&](const std::vector<Dim>& strides) {
    bases.insert(bases.end(), strides.begin(), strides.end());
  };
  add_all(s.lines.strides[1]);
  add_all(s.places.strides[0]);
  if (with_x) {
    bases.push_back(problem.inputs[0].offset);
    add_all(s.places.strides[1]);
  }
  return widest_unit(block, bases, dtype_bytes(out.dtype));
}

// Whether updates reach so little of the output that finding where those of every place begin takes longer
// than writing what they reach twice.
bool are_few(const CudaProblem& problem, const ScatterProblem& s) {
  constexpr double kBytesOfStart = 32;
  const auto number = [&](const Dim& dim) { return static_cast<double>(size_to_choose_by(dim, problem)); };
  const double row = number(s.block.count()) * dtype_bytes(problem.outputs[0].dtype);
  return 2 * row * number(s.lines.count()) < kBytesOfStart * number(s.targets);
}

// Whether runs are so short that the block that applies one may add up a longer one as well.
bool has_short_runs(const CudaProblem& problem, const ScatterProblem& s) {
  return 2 * size_to_choose_by(s.lines.count(), problem) <=
         kScatterChunk * size_to_choose_by(s.targets, problem);
}

// How the blocks of one launch find the updates of their places.
enum class ScanWay : uint8_t {
  kNone,   // by an order that other launches make
  kFound,  // every thread goes through all that the block finds
  kSorted  // the block sorts what it finds
};
struct Scan {
  ScanWay way = ScanWay::kNone;
  int64_t unit = 1;   // elements of a thread
  double cycles = 0;  // until blocks have found their updates, or until these are in order
};

// Of the launches that put updates in order.
double order_cycles(const CudaProblem& problem, const ScatterProblem& s) {
  constexpr double kSortCycles = 17000, kCyclesOfSorted = 0.2;
  constexpr double kBlockSortCycles = 9800, kCyclesOfSortedInBlock = 2.5;
  const auto updates = static_cast<double>(size_to_choose_by(s.lines.count(), problem));
  return updates <= kMostOrdered ? kBlockSortCycles + updates * kCyclesOfSortedInBlock
                                 : kSortCycles + updates * kCyclesOfSorted;
}

// Whether every block can look through all updates in less time than they are sorted, in cycles: a launch
// each to sort, count and combine, against the indices that all blocks of a multiprocessor read, and the
// updates that each of their warps finds, or what a block takes to sort these. `unit`: elements that a thread
// can move as one; where blocks sort, fewer spread over more of them.
Scan scan_of(const CudaProblem& problem, const ScatterProblem& s, int64_t unit) {
  constexpr double kBytesOfCycle = 4, kCyclesOfFound = 200, kOwnSortCycles = 3400, kBytesOfSortCycle = 6.5;
  const auto number = [&](const Dim& dim) { return static_cast<double>(size_to_choose_by(dim, problem)); };
  const double updates = number(s.lines.count()), targets = std::max(1.0, number(s.targets));
  const auto blocks = [&](int64_t of_thread) {
    return std::max(
        1.0, std::ceil(targets * number(s.block.count()) / static_cast<double>(of_thread * kScatterBlock)));
  };
  const double bytes = static_cast<double>(s.bounds.size()) * dtype_bytes(problem.inputs[1].dtype);
  const double found = updates / blocks(unit) * std::max(1.0, blocks(unit) / targets);
  const auto rounds = [&](int64_t of_thread) {
    return std::ceil(blocks(of_thread) / static_cast<double>(problem.machine.multiprocessors));
  };
  Scan best{ScanWay::kNone, unit, order_cycles(problem, s)};
  const auto note = [&](const Scan& scan) {
    if (scan.cycles < best.cycles) best = scan;
  };
  note({ScanWay::kFound, unit, rounds(unit) * (updates * bytes / kBytesOfCycle + found * kCyclesOfFound)});
  const int64_t most = (shared_limit(problem.arch) - kSortScanShared) / 4 - kScatterBlock * kSortScanWarps;
  // Long runs of a block would be added up one after the other.
  if (is_member(problem) || !has_short_runs(problem, s) ||
      upper_bound(s.lines.count(), problem.ranges) > most)
    return best;
  for (int64_t of_thread = 1; of_thread <= unit; of_thread *= 2)
    note({ScanWay::kSorted, of_thread,
          rounds(of_thread) * (updates * bytes / kBytesOfSortCycle + kOwnSortCycles)});
  return best;
}

// The same where every element of the output lies in a block, or not.
Scan scan_of_rows(const CudaProblem& problem, const ScatterProblem& s, bool covers) {
  const bool with_x = !is_one_element(problem.inputs[0]) && covers && !problem.replaces(0);
  return scan_of(problem, s, scatter_unit(problem, s, with_x));
}

// That a warp of scan_updates looks through at once.
int64_t updates_of_warp(int64_t updates) {
  constexpr int64_t kFewest = 128, kMost = 1024, kWarps = kScatterBlock / 32;
  const int64_t of_each = ceil_div(std::min(updates, kMost * kWarps), kWarps);
  return std::max(kFewest, static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(of_each))));
}

// Places that a block of scatters has elements of, at most.
int64_t places_of_block(const ScatterProblem& s, int64_t unit) {
  const int64_t per_line = s.block.count().constant().value_or(0) / unit;
  return per_line <= 1 ? kScatterBlock : std::min<int64_t>(kScatterBlock, kScatterBlock / per_line + 2);
}

CudaCode scan_code(const ScatterForm& form, ScatterProblem s, ScatterReduction reduction, bool copies,
                   const char* start, const Scan& scan) {
  const CudaProblem& problem = form.kernel();
  const bool sorts = scan.way == ScanWay::kSorted;
  CudaCode code = form.empty_code();
  code.source += includes({"indexing/scatter_scan.cuh"});
  code.member = is_member(problem);
  code.static_shared_bytes = kScatterBlock / 32 * 4;
  if (copies) add_copy(code, problem, 0, "copy");
  const Dim threads = s.targets * floordiv(s.block.count(), Dim(scan.unit));
  const std::string type = element_type(problem.outputs[0].dtype, reduction);
  CudaParams params;
  // Members that scatter to tables of other lengths share their text: no place is found by the first size.
  if (is_member(problem) && s.places.rank() > 0) s.places.sizes[0] = Dim(1);
  const int64_t most = upper_bound(s.lines.count(), problem.ranges), of_warp = updates_of_warp(most),
                places = places_of_block(s, scan.unit);
  std::string body =
      scatter_text(problem, s, max(threads, s.lines.count()), params) + form.updates_text(type, params);
  body += "  aicf::" + std::string(sorts ? "sort_scanned_updates" : "scan_updates") + "<" +
          reduction_number(reduction) + ", aicf::" + start + ", " + std::to_string(scan.unit) + ", " +
          std::to_string(sorts ? places : of_warp) + ">(s, " + (sorts ? "" : "block_index, ") + "in1, " +
          params.expr(s.lines.count()) + ", " +
          (is_member(problem) ? params.param(s.targets) : params.expr(s.targets)) + ", " +
          pointer_text(type, "in0", true) + ", updates, " + pointer_text(type, "out0", false) + ", error);\n";
  CudaLaunch launch = flat_launch(sorts ? "sort_scanned_updates" : "scan_updates",
                                  blocks_for(threads, kScatterBlock), kScatterBlock, params);
  launch.shared_bytes = kScatterBlock / 32 * of_warp * 4;
  if (sorts) {
    launch.block = static_cast<int32_t>(kSortScanBlock);
    launch.shared_bytes = (most + places * kSortScanWarps) * 4;
  }
  launch.reports_errors = true;
  add_kernel(code, problem, std::move(launch), body);
  return code;
}

// `covers`: every element of the output lies in a block.
CudaCode sorted_code(const ScatterForm& form, ScatterProblem s, ScatterReduction reduction, bool covers) {
  const CudaProblem &problem = form.problem, &kernel = form.kernel();
  const CudaWindow &x = problem.inputs[0], &out = problem.outputs[0];
  const bool in_place = problem.replaces(0), one = is_one_element(x);
  const OrderMemory memory = order_memory(problem.inputs.size(), problem.outputs.size());
  const Scan scan = memory == OrderMemory::kWorkspace ? scan_of_rows(problem, s, covers) : Scan{};
  const bool scans = scan.way != ScanWay::kNone;
  bool copies =
      !scans && !in_place && !one && scatter_unit(problem, s, true) < scatter_unit(problem, s, false);
  const bool few = memory == OrderMemory::kWorkspace && !scans && are_few(problem, s);
  copies = copies || (!in_place && (!covers || few));
  if (in_place || copies) {
    s.places.strides[1] = s.places.strides[0];
    s.block.strides[2] = s.block.strides[1];
  }
  s.places.merge_axes();
  s.block.merge_axes();
  const bool from_out = in_place || copies;
  int64_t unit = scatter_unit(problem, s, !one && !from_out);
  while (form.made != nullptr && !is_multiple(problem.inputs[2].sizes.back(), unit)) unit /= 2;
  const char* start = from_out ? "kInPlace" : one ? "kFromOne" : "kFromX";
  if (scans)
    return scan_code(form, s, reduction, copies, start, {scan.way, std::min(scan.unit, unit), scan.cycles});
  // Data decides how long a run is: of many updates, blocks of their own fold the chunks of long ones.
  const bool by_block = reduction != ScatterReduction::none && has_short_runs(problem, s) &&
                        upper_bound(s.lines.count(), problem.ranges) <= kMostOrdered;
  SortedUpdates updates =
      sorted_updates(kernel, s, out.dtype, reduction, s.block.count(), unit, !from_out, !by_block, memory);
  updates.carried = form.made == nullptr && memory == OrderMemory::kWorkspace && !updates.in_block &&
                    s.block.rank() == 0 && dtype_bytes(out.dtype) <= 4 && updates.sort.narrow;
  updates.reports = form.reports();
  CudaCode code = form.empty_code();
  code.workspace_bytes = updates.bytes;
  if (copies) add_copy(code, kernel, 0, "copy");
  add_tables(code, kernel, s, updates, 1, [&](CudaParams& params) {
    return (updates.carried ? "" : form.updates_text(updates.type, params)) + at_text(updates);
  });
  const Dim per_line = floordiv(s.block.count(), Dim(unit)),
            threads = (from_out ? s.lines.count() : s.targets) * per_line;
  CudaParams params;
  std::string body = scatter_text(kernel, s, threads, params) + tables_text(updates, params) +
                     form.updates_text(updates.type, params);
  body += "  aicf::apply_updates<" + updates.reduction + ", aicf::" + start + ", " +
          (by_block ? "true" : "false") + ", kHasLong, " + (updates.carried ? "true" : "false") + ", " +
          std::to_string(unit) + ">(s, sorted, " + params.expr(s.lines.count()) + ", " +
          params.expr(s.targets) + ", starts, partials, long_partials, " +
          pointer_text(updates.type, from_out ? "out0" : "in0", true) + ", updates, " +
          pointer_text(updates.type, "out0", false) + ");\n";
  CudaLaunch launch = flat_launch("apply_updates", blocks_for(threads, kScatterBlock), kScatterBlock, params);
  launch.reports_errors = form.reports();
  add_kernel(code, kernel, std::move(launch), body);
  return code;
}

CudaCode lines_code(const CudaProblem& problem, size_t axis, ScatterReduction reduction,
                    const char* function) {
  const CudaWindow &indices = problem.inputs[1], &updates = problem.inputs[2], &out = problem.outputs[0];
  CudaWalk lines(3);
  for (size_t i = 0; i < out.sizes.size(); ++i)
    if (i != axis) lines.add_axis(indices.sizes[i], {indices.strides[i], updates.strides[i], out.strides[i]});
  lines.merge_axes();
  CudaCode code = scatter_code();
  if (!problem.replaces(0)) add_copy(code, problem, 0, "copy");
  const std::string type = element_type(out.dtype, reduction);
  CudaParams params;
  const std::string body = "  using I = " + std::string(index_type(problem, lines.count())) +
                           ";\n  const aicf::ScatterLines<I, " + std::to_string(lines.rank()) + "> s = {" +
                           walk_value(lines, params) + ", I(" + params.expr(indices.sizes[axis]) + "), I(" +
                           params.expr(indices.strides[axis]) + "), I(" + params.expr(updates.strides[axis]) +
                           "), I(" + params.expr(out.strides[axis]) + "), " + params.expr(out.sizes[axis]) +
                           "};\n  aicf::" + function + "<" + reduction_number(reduction) + ">(s, in1, " +
                           pointer_text(type, "in2", true) + ", " + pointer_text(type, "out0", false) +
                           ", error);\n";
  CudaLaunch launch = flat_launch(function, blocks_for(lines.count(), 64), 64, params);
  launch.reports_errors = true;
  add_kernel(code, problem, std::move(launch), body);
  return code;
}

}  // namespace

SortedUpdates sorted_updates(const CudaProblem& problem, const ScatterProblem& s, DType dtype,
                             ScatterReduction reduction, const Dim& length, int64_t unit, bool has_starts,
                             bool cuts, OrderMemory memory) {
  const int64_t count = upper_bound(s.lines.count(), problem.ranges),
                targets = upper_bound(s.targets, problem.ranges);
  const bool half = is_half(dtype) && reduction != ScatterReduction::none;
  const bool own = memory == OrderMemory::kWorkspace;
  cuts = cuts && reduction != ScatterReduction::none;
  SortedUpdates u;
  u.reduction = reduction_number(reduction);
  u.type = element_type(dtype, reduction);
  u.value = half ? "float" : u.type;
  u.value_bytes = half ? 4 : dtype_bytes(dtype);
  u.unit = unit;
  u.length = length;
  u.sort = radix_sort(problem, s.lines.count(), targets - 1, is_narrow_item(targets, count));
  u.in_block = u.sort.narrow && count <= kMostOrdered;
  u.has_starts = has_starts || !own;
  u.index_bits = std::bit_width(static_cast<uint64_t>(std::max<int64_t>(count, 2) - 1));
  u.has_chunks = cuts && count > kScatterChunk;
  u.has_long_chunks = cuts && count > kLongChunksInline * kLongScatterChunk;
  u.targets = s.targets;
  const auto table = [&](const Dim& values, int64_t bytes) {
    return ceildiv(values * Dim(bytes), Dim(16)) * Dim(16);
  };
  u.order = memory == OrderMemory::kTaken ? "const_cast<char*>(reinterpret_cast<const char*>(in" +
                                                std::to_string(problem.inputs.size() - 1) + "))"
            : own ? "static_cast<char*>(workspace)"
                  : "reinterpret_cast<char*>(out" + std::to_string(problem.outputs.size() - 1) + ")";
  u.taken = memory == OrderMemory::kTaken;
  u.starts = table(u.sort.item_bytes(), 1);
  u.order_bytes = u.starts + (u.has_starts ? table(s.targets + Dim(1), u.sort.narrow ? 4 : 8) : Dim(0));
  u.scratch = own ? u.order_bytes : Dim(0);
  u.partials = u.scratch + (u.taken || u.in_block ? Dim(0) : u.sort.scratch_bytes());
  const auto windows = [&](bool any, int64_t chunk) {
    return any ? table(ceildiv(s.lines.count(), Dim(chunk)) * length, u.value_bytes) : Dim(0);
  };
  u.long_partials = u.partials + windows(u.has_chunks, kScatterChunk);
  u.bytes = u.long_partials + windows(u.has_long_chunks, kLongScatterChunk);
  return u;
}

namespace {

std::string order_text(const SortedUpdates& u, CudaParams& params) {
  return "  " + u.item() + "* sorted = reinterpret_cast<" + u.item() + "*>(" + u.order + ");\n  " +
         (u.sort.narrow ? "int32_t" : "int64_t") + "* starts = reinterpret_cast<" +
         (u.sort.narrow ? "int32_t" : "int64_t") + "*>(" + u.order + " + " + params.expr(u.starts) + ");\n";
}

// One launch; whether it finds starts, too.
bool add_block_order(CudaCode& code, const CudaProblem& problem, const SortedUpdates& u,
                     const std::function<std::string(CudaParams&, bool reports)>& reader) {
  const int64_t count = upper_bound(u.sort.count, problem.ranges),
                targets = upper_bound(u.targets, problem.ranges);
  const bool starts = u.has_starts && targets <= kMostStartsOfBlock;
  int64_t items = 1;
  while (items * kOrderBlock < count) items *= 2;
  const int64_t key_bits = std::bit_width(static_cast<uint64_t>(targets));
  const int64_t passes = std::max<int64_t>(1, ceil_div(key_bits, kMostDigitBits));
  const int64_t bits = std::max(kFewestDigitBits, ceil_div(key_bits, passes));
  const bool is_word = key_bits + u.index_bits <= 32;
  CudaParams params;
  const auto number = [](int64_t value) { return std::to_string(value) + ", "; };
  const std::string body =
      reader(params, true) + order_text(u, params) + "  aicf::order_in_block<" + number(items) +
      number(passes) + number(bits) + number(is_word ? u.index_bits : 32) +
      (is_word ? "uint32_t" : "uint64_t") + ">(read, report, int(" + params.expr(u.sort.count) + "), " +
      params.expr(u.targets) + ", sorted, " + (starts ? "starts" : "static_cast<int32_t*>(nullptr)") + ");\n";
  CudaLaunch order = flat_launch("order_updates", Dim(1), static_cast<int32_t>(kOrderBlock), params);
  order.shared_bytes = items * kOrderBlock * (is_word ? 4 : 8) + (int64_t{33 * 4} << bits);
  order.reports_errors = true;
  add_kernel(code, problem, std::move(order), body);
  return starts;
}

}  // namespace

std::string tables_text(const SortedUpdates& u, CudaParams& params) {
  const auto table = [&](bool any, const std::string& name, const Dim& at) {
    return "  " + u.value + "* " + name + " = " +
           (any ? "reinterpret_cast<" + u.value + "*>(static_cast<char*>(workspace) + " + params.expr(at) +
                      ")"
                : "nullptr") +
           ";\n";
  };
  return order_text(u, params) + table(u.has_chunks, "partials", u.partials) +
         table(u.has_long_chunks, "long_partials", u.long_partials) +
         "  constexpr bool kHasLong = " + (u.has_long_chunks ? "true" : "false") + ";\n";
}

void add_tables(CudaCode& code, const CudaProblem& problem, const ScatterProblem& s, const SortedUpdates& u,
                size_t indices, const std::function<std::string(CudaParams&)>& at) {
  const Dim count = s.lines.count(), threads = count * max(s.block.count(), Dim(1));
  const auto reader = [&](CudaParams& params, bool reports) {
    const std::string updates = u.carried ? pointer_text(u.type, "in2", true) : "aicf::kNotCarried";
    const auto item = [&](const std::string& flags, const std::string& error) {
      return "s.item<" + u.item() + ", " + flags + ">(in" + std::to_string(indices) + ", " + updates +
             ", i, " + error + "); };\n";
    };
    const std::string carried = u.carried ? ", true" : ", false";
    return scatter_text(problem, s, threads, params) + "  const auto read = [&](int64_t i) { return " +
           item("false" + carried, "nullptr") +
           (reports ? "  const auto report = [&](int64_t i) { " + item("true" + carried, "error") : "");
  };
  bool finds_starts = u.has_starts && !u.taken;
  if (!u.taken && u.in_block) {
    finds_starts = !add_block_order(code, problem, u, reader) && finds_starts;
  } else if (!u.taken) {
    const auto memory = [&](CudaParams& params) {
      return order_text(u, params) + "  char* scratch = static_cast<char*>(workspace) + " +
             params.expr(u.scratch) + ";\n";
    };
    add_radix_sort(code, problem, u.sort, memory, reader);
  }
  // Blocks that find starts, then those that fold chunks.
  const Dim per_line = floordiv(u.length, Dim(u.unit)),
            start_blocks = blocks_for(count + Dim(1), kScatterBlock);
  const auto fold_text = [&](CudaParams& params, int64_t chunk, const std::string& call) {
    const std::string parts = params.expr(per_line), windows = params.expr(ceildiv(count, Dim(chunk)));
    return "  if (flat < " + windows + " * " + parts + ") {\n  const int64_t window = flat / " + parts +
           ", offset = (flat - window * " + parts + ") * " + std::to_string(u.unit) + ";\n" + call + "  }\n";
  };
  const std::string kinds = "<" + u.reduction + ", " + std::to_string(u.unit) + ", " + u.type + ">";
  const std::string thread = "  int64_t flat = int64_t(blockIdx.x) * blockDim.x + threadIdx.x;\n";
  const auto blocks = [&](int64_t chunk) {
    return blocks_for(ceildiv(count, Dim(chunk)) * per_line, kScatterBlock);
  };
  if (finds_starts || u.has_chunks) {
    CudaParams params;
    std::string body = scatter_text(problem, s, threads, params) + tables_text(u, params) + thread;
    Dim grid(0);
    if (finds_starts) {
      body += "  if (blockIdx.x < " + params.expr(start_blocks) +
              ") {\n  const auto target_of = [&](int64_t i) { return sorted[i].is_last() ? int64_t(" +
              params.expr(u.targets) + ") : int64_t(sorted[i].key()); };\n  aicf::find_starts(target_of, " +
              params.expr(count) + ", flat, " + params.expr(u.targets) + ", starts);\n  return;\n  }\n" +
              "  flat -= " + params.expr(start_blocks * Dim(kScatterBlock)) + ";\n";
      grid = start_blocks;
    }
    if (u.has_chunks) {
      body += fold_text(params, kScatterChunk,
                        at(params) + "  aicf::fold_chunk" + kinds + "(sorted, " + params.expr(count) +
                            ", window, at, partials, " + params.expr(u.length) + ", offset);\n");
      grid = grid + blocks(kScatterChunk);
    }
    CudaLaunch launch = flat_launch("find_runs", grid, kScatterBlock, params);
    launch.reports_errors = u.reports && u.has_chunks;
    add_kernel(code, problem, std::move(launch), body);
  }
  if (u.has_long_chunks) {
    CudaParams params;
    const std::string body =
        tables_text(u, params) + thread +
        fold_text(params, kLongScatterChunk,
                  "  aicf::fold_long_chunk" + kinds + "(sorted, " + params.expr(count) +
                      ", window, partials, long_partials, " + params.expr(u.length) + ", offset);\n");
    add_kernel(code, problem,
               flat_launch("fold_long_chunks", blocks(kLongScatterChunk), kScatterBlock, params), body);
  }
}

namespace {

// Of whole rows, or what lies under an index.
struct RowScatter {
  ScatterProblem s;
  ScatterReduction reduction;
  bool covers = true;  // every element of the output lies in a block
};

// Whether sums of x and so many equal updates are whole numbers that the type has all of.
bool are_whole_sums(const CudaProblem& problem, const ScatterProblem& s) {
  const std::optional<double> x = problem.inputs[0].value, update = problem.inputs[2].value;
  const DType dtype = problem.outputs[0].dtype;
  if (!x || !update || (dtype != DType::f32 && dtype != DType::f64)) return false;
  const double most = std::ldexp(1.0, dtype == DType::f32 ? 24 : 53),
               count = static_cast<double>(upper_bound(s.lines.count(), problem.ranges));
  return std::trunc(*x) == *x && std::trunc(*update) == *update &&
         std::abs(*x) + count * std::abs(*update) <= most;
}

bool has_one_result(const CudaProblem& problem, const RowScatter& rows) {
  const DType dtype = problem.outputs[0].dtype;
  switch (rows.reduction) {
    case ScatterReduction::none:
      return is_one_element(problem.inputs[2]);
    case ScatterReduction::mul:
      return false;
    case ScatterReduction::add:
      if (are_whole_sums(problem, rows.s)) return true;
      break;
    case ScatterReduction::max:
    case ScatterReduction::min:
      if (is_float(dtype)) return true;
      break;
  }
  return dtype == DType::i32 || dtype == DType::i64;
}

// Whether maxima and minima of floats take longer by atomic operations than by an order, which rows of many
// elements share with each other and other scatters, or than by one launch whose blocks find the updates.
bool sorts_faster(const CudaProblem& problem, const RowScatter& rows) {
  const bool extreme = rows.reduction == ScatterReduction::max || rows.reduction == ScatterReduction::min;
  return extreme && is_float(problem.outputs[0].dtype) &&
         (!(rows.s.block.count() == Dim(1)) ||
          scan_of_rows(problem, rows.s, rows.covers).way != ScanWay::kNone);
}

// Whether every order of the updates gives the same bits, and the blocks of one launch do not find them
// before x is copied.
bool is_in_any_order(const CudaProblem& problem, const RowScatter& rows) {
  constexpr double kCyclesOfLaunch = 3000;
  if (is_member(problem) ||
      order_memory(problem.inputs.size(), problem.outputs.size()) != OrderMemory::kWorkspace)
    return false;
  if (!has_one_result(problem, rows) || sorts_faster(problem, rows)) return false;
  if (problem.replaces(0)) return true;
  const Scan scan = scan_of_rows(problem, rows.s, rows.covers);
  return scan.way == ScanWay::kNone || scan.cycles > kCyclesOfLaunch;
}

// The function that walks lines of few updates, or many lines; none where updates are sorted or in any order.
const char* lines_function(const CudaProblem& problem, size_t axis, const RowScatter& rows) {
  const CudaWindow &indices = problem.inputs[1], &out = problem.outputs[0];
  const ScatterReduction reduction = reduction_of(problem.params[1]);
  Dim line_count(1);
  for (size_t i = 0; i < out.sizes.size(); ++i)
    if (i != axis) line_count = line_count * indices.sizes[i];
  const int64_t per_line = upper_bound(indices.sizes[axis], problem.ranges);
  if (per_line <= kFewUpdates) return "scatter_short_lines";
  if (is_in_any_order(problem, rows)) return nullptr;
  // In whatever order.
  const bool exact =
      !is_float(out.dtype) || (reduction != ScatterReduction::add && reduction != ScatterReduction::mul);
  const bool many = upper_bound(line_count, problem.ranges) >= kManyLines;
  return many && (exact || (!is_half(out.dtype) && per_line <= kScatterChunk)) ? "scatter_lines" : nullptr;
}

// An axis that the indices do not run along belongs to the block under an index.
bool is_in_block(const CudaWindow& indices, size_t axis, size_t i) {
  return i != axis && (indices.strides[i] == Dim(0) || indices.sizes[i] == Dim(1));
}

bool has_own_indices(const CudaWindow& indices, size_t axis) {
  for (size_t i = 0; i < indices.sizes.size(); ++i)
    if (is_in_block(indices, axis, i) && !(indices.sizes[i] == Dim(1))) return false;
  return true;
}

std::optional<BucketScatter> elements_buckets(const CudaProblem& problem, size_t axis) {
  if (!has_own_indices(problem.inputs[1], axis)) return std::nullopt;
  return bucket_scatter(problem, axis);
}

std::optional<BucketScatter> elements_sums(const CudaProblem& problem, size_t axis) {
  const DType dtype = problem.outputs[0].dtype;
  if (reduction_of(problem.params[1]) != ScatterReduction::add || is_member(problem) ||
      !(is_half(dtype) || dtype == DType::f32) || !has_own_indices(problem.inputs[1], axis))
    return std::nullopt;
  return exact_sums(problem, axis);
}

RowScatter elements_rows(const CudaProblem& problem, size_t axis) {
  const CudaWindow &x = problem.inputs[0], &indices = problem.inputs[1], &updates = problem.inputs[2],
                   &out = problem.outputs[0];
  Shape placed;
  for (size_t i = 0; i < out.sizes.size(); ++i)
    if (!is_in_block(indices, axis, i)) placed.push_back(out.sizes[i]);
  const std::vector<Dim> logical = row_major_strides(placed);
  RowScatter rows{{}, reduction_of(problem.params[1])};
  ScatterProblem& s = rows.s;
  size_t place = 0;
  for (size_t i = 0; i < out.sizes.size(); ++i) {
    if (is_in_block(indices, axis, i)) {
      s.block.add_axis(indices.sizes[i], {updates.strides[i], out.strides[i], x.strides[i]});
      rows.covers = rows.covers && indices.sizes[i] == out.sizes[i];
      continue;
    }
    s.lines.add_axis(indices.sizes[i],
                     {indices.strides[i], updates.strides[i], i == axis ? Dim(0) : logical[place]});
    s.places.add_axis(out.sizes[i], {out.strides[i], x.strides[i]});
    if (i == axis) s.target_steps = {logical[place]};
    ++place;
  }
  s.bounds = {out.sizes[axis]};
  s.targets = element_count(placed);
  s.lines.merge_axes();
  return rows;
}

RowScatter nd_rows(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &indices = problem.inputs[1], &updates = problem.inputs[2],
                   &out = problem.outputs[0];
  const size_t index_rank = indices.sizes.size() - 1;
  const auto components =
      static_cast<size_t>(indices.sizes.back().require_constant("components of scatter_nd's indices"));
  RowScatter rows{{}, reduction_of(problem.params[0])};
  ScatterProblem& s = rows.s;
  for (size_t i = 0; i < index_rank; ++i)
    s.lines.add_axis(indices.sizes[i], {indices.strides[i], updates.strides[i], Dim(0)});
  const Shape indexed(out.sizes.begin(), out.sizes.begin() + static_cast<std::ptrdiff_t>(components));
  s.target_steps = row_major_strides(indexed);
  s.bounds = indexed;
  s.targets = element_count(indexed);
  for (size_t i = 0; i < out.sizes.size(); ++i) {
    if (i < components)
      s.places.add_axis(out.sizes[i], {out.strides[i], x.strides[i]});
    else
      s.block.add_axis(out.sizes[i],
                       {updates.strides[index_rank + i - components], out.strides[i], x.strides[i]});
  }
  s.component_stride = components > 1 ? indices.strides.back() : Dim(0);
  s.lines.merge_axes();
  return rows;
}

std::optional<ScatterOrder> order_of(const CudaProblem& problem, const RowScatter& rows,
                                     ScatterOrderCost* cost) {
  const ScatterProblem& s = rows.s;
  if (is_in_any_order(problem, rows)) return std::nullopt;
  // An order says where the updates of every place begin.
  if (kPlacesOfUpdate * size_to_choose_by(s.lines.count(), problem) < size_to_choose_by(s.targets, problem))
    return std::nullopt;
  const Scan scan = scan_of_rows(problem, s, rows.covers);
  if (scan.way == ScanWay::kFound) return std::nullopt;
  if (cost != nullptr) *cost = {order_cycles(problem, s), scan.cycles};
  const SortedUpdates updates = sorted_updates(problem, s, problem.outputs[0].dtype, rows.reduction,
                                               s.block.count(), 1, true, false, OrderMemory::kWorkspace);
  return ScatterOrder{s.lines.sizes,      s.lines.strides[0], s.lines.strides[2],
                      s.bounds,           s.target_steps,     problem.inputs[1].offset,
                      s.component_stride, s.targets,          updates.order_bytes};
}

}  // namespace

CudaCode generate_scatter_elements(const CudaProblem& problem) {
  const size_t axis = cuda_axis(problem, problem.outputs[0]);
  const ScatterReduction reduction = reduction_of(problem.params[1]);
  RowScatter rows = elements_rows(problem, axis);
  if (const char* function = lines_function(problem, axis, rows))
    return lines_code(problem, axis, reduction, function);
  if (is_in_any_order(problem, rows)) return any_order_code(problem, std::move(rows.s), reduction);
  if (const auto sums = elements_sums(problem, axis)) return exact_sums_code(problem, axis, *sums);
  if (const auto buckets = elements_buckets(problem, axis))
    return bucket_scatter_code(problem, axis, *buckets, reduction,
                               element_type(problem.outputs[0].dtype, reduction));
  return sorted_code({problem}, std::move(rows.s), reduction, rows.covers);
}

CudaCode generate_scatter_nd(const CudaProblem& problem) {
  RowScatter rows = nd_rows(problem);
  if (is_in_any_order(problem, rows)) return any_order_code(problem, std::move(rows.s), rows.reduction);
  return sorted_code({problem}, std::move(rows.s), rows.reduction, rows.covers);
}

bool can_run_scatter_messages(const Problem& problem) { return problem.inputs.size() >= 3; }

// As generate_scatter_nd along one axis, but that a program makes the updates where they are combined.
CudaCode generate_scatter_messages(const CudaProblem& problem) {
  constexpr size_t kOwn = 2;  // x and indices, before the program's operands
  AICF_CHECK(problem.program != nullptr && problem.params.size() == 1 + problem.program->inputs.size(),
             "a scatter of messages needs a program, and knows what it gathers");
  const CudaWindow &indices = problem.inputs[1], &out = problem.outputs[0];
  Shape domain(indices.sizes.begin(), indices.sizes.end() - 1);
  domain.insert(domain.end(), out.sizes.begin() + 1, out.sizes.end());
  const size_t rank = out.sizes.size() - 1;
  CudaWindow updates{{out.dtype, Dim(0), domain, row_major_strides(domain)}};
  CudaProblem program = problem;
  program.outputs = {updates};
  program.inputs.resize(kOwn + problem.program->inputs.size());
  std::vector<GatheredOperand> gathered;
  std::set<int64_t> lists;
  for (size_t i = 0; i + 1 < problem.params.size(); ++i) {
    const int64_t list = problem.params[1 + i].require_constant("the number of an operand's indices");
    if (list < 0) continue;
    lists.insert(list);
    const CudaWindow &table = problem.inputs[kOwn + i], &numbers = problem.inputs[static_cast<size_t>(list)];
    gathered.push_back(
        {i, static_cast<size_t>(list), over_rows(numbers, domain.size()), table.sizes[0], table.strides[0]});
    program.inputs[kOwn + i] = rows_in_order(table, numbers);
  }
  CudaProblem scatter = problem;
  scatter.inputs = {problem.inputs[0], indices, updates};
  if (problem.inputs.size() > program.inputs.size() + lists.size())
    scatter.inputs.push_back(problem.inputs.back());
  MadeUpdates made{&problem, {}, {}, !gathered.empty()};
  const auto text = [&](CudaParams& params) { return cuda_updates(program, kOwn, rank, gathered, params); };
  CudaParams unused;
  made.text = text(unused).text;
  made.make = [&](CudaParams& params) { return text(params).make; };
  RowScatter rows = nd_rows(scatter);
  for (Dim& stride : rows.s.lines.strides[1]) stride = Dim(0);  // they lie nowhere
  rows.s.lines.merge_axes();
  return sorted_code({scatter, &made}, std::move(rows.s), rows.reduction, rows.covers);
}

std::optional<ScatterOrder> scatter_order(std::string_view row, const CudaProblem& problem,
                                          ScatterOrderCost* cost) {
  const CudaKernel* kernel = find_cuda_kernel(row);
  if (kernel == nullptr) return std::nullopt;
  if (kernel->generate == generate_scatter_nd) return order_of(problem, nd_rows(problem), cost);
  if (kernel->generate != generate_scatter_elements) return std::nullopt;
  const size_t axis = cuda_axis(problem, problem.outputs[0]);
  const RowScatter rows = elements_rows(problem, axis);
  if (lines_function(problem, axis, rows) != nullptr || elements_sums(problem, axis) ||
      elements_buckets(problem, axis))
    return std::nullopt;
  return order_of(problem, rows, cost);
}

}  // namespace aicf
