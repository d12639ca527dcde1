// CUDA rows of sort, top_k, argmax, argmin, cumsum and cumprod.
#include <algorithm>
#include <bit>

#include "base/error.h"
#include "base/rounding.h"
#include "kernels/common/cuda_machine.h"
#include "kernels/order/merge_cuda.h"

namespace aicf {

namespace {

constexpr int32_t kBlock = 256;  // kSortThreads of sort.cuh
constexpr int64_t kTile = 2048;  // items of a block
constexpr int64_t kSmallTile = 512;
constexpr int64_t kTileBytes = 1 << 15;  // of items that a block sorts
constexpr int64_t kSortBlocks = 2;       // of a multiprocessor, at least, before they grow
constexpr int kSortsAtOnce = 4;     // blocks of a multiprocessor, so that loads of some meet sorts of others
constexpr int64_t kWarpSize = 128;  // up to here a warp serves a line

struct SortProblem {
  CudaWalk lines{3};
  Dim size, kept;
  size_t axis = 0;
  bool descending = false, narrow = false;
};

SortProblem sort_problem(const CudaProblem& problem) {
  const CudaWindow &x = problem.inputs[0], &values = problem.outputs[0], &indices = problem.outputs[1];
  SortProblem s;
  s.axis = cuda_axis(problem, x);
  for (size_t i = 0; i < x.sizes.size(); ++i)
    if (i != s.axis) s.lines.add_axis(x.sizes[i], {x.strides[i], values.strides[i], indices.strides[i]});
  s.lines.merge_axes();
  s.size = x.sizes[s.axis];
  s.kept = values.sizes[s.axis];
  s.descending = problem.params[1].require_constant("direction of a sort") != 0;
  s.narrow = is_narrow_item(dtype_bytes(x.dtype) == 8 ? INT64_MAX : 0, upper_bound(s.size, problem.ranges));
  return s;
}

std::string item_of(const SortProblem& s) { return s.narrow ? "aicf::NarrowItem" : "aicf::WideItem"; }

std::string lines_text(const CudaProblem& problem, const SortProblem& s, CudaParams& params) {
  const auto stride = [&](const CudaWindow& window) {
    return "I(" + params.expr(window.strides[s.axis]) + ")";
  };
  return "  static_assert(aicf::kSortThreads == " + std::to_string(kBlock) +
         ");\n  using I = " + std::string(index_type(problem, s.lines.count() * max(s.size, Dim(1)))) +
         ";\n  const aicf::SortLines<I, " + std::to_string(s.lines.rank()) + "> s = {" +
         walk_value(s.lines, params) + ", I(" + params.expr(s.size) + "), I(" + params.expr(s.kept) + "), " +
         stride(problem.inputs[0]) + ", " + stride(problem.outputs[0]) + ", " + stride(problem.outputs[1]) +
         "};\n";
}

std::string flags(const SortProblem& s) { return s.descending ? "true" : "false"; }

// A block's share: as many items as its memory holds, so that few of them cross to other threads, where
// there are lines enough.
CudaCode short_lines(const CudaProblem& problem, const SortProblem& s, int64_t longest) {
  const int bytes = dtype_bytes(problem.inputs[0].dtype) <= 2 ? 4 : s.narrow ? 8 : 16;
  int64_t segment = 2;
  while (segment < longest) segment *= 2;
  int64_t tile = std::max(segment, kSmallTile);
  const int64_t items = size_to_choose_by(s.lines.count(), problem) * segment;
  while (2 * tile * bytes <= kTileBytes &&
         items / (2 * tile) >= kSortBlocks * problem.machine.multiprocessors)
    tile *= 2;
  CudaParams params;
  const std::string body = lines_text(problem, s, params) + "  aicf::sort_short_lines<" +
                           (bytes == 4 ? "aicf::ShortItem" : item_of(s)) + ", " + std::to_string(tile) +
                           ", " + std::to_string(segment) + ", " + flags(s) + ">(s, in0, out0, out1);\n";
  CudaCode code;
  code.source = includes({"order/sort_lines.cuh"});
  add_kernel(code, problem,
             flat_launch("sort_short_lines", ceildiv(s.lines.count(), Dim(tile / segment)), kBlock, params),
             body, kSortsAtOnce);
  return code;
}

constexpr int64_t kMostSelected = 32;      // a lane of a warp has one
constexpr int64_t kMostLoads = 32;         // of a lane at a time
constexpr int64_t kSelectedByWarp = 2048;  // elements of a line, where lines are many

// The first few of each line, found without sorting it; by a warp, or a block.
bool may_select(const CudaProblem& problem, const SortProblem& s) {
  const int64_t longest = upper_bound(s.size, problem.ranges), kept = upper_bound(s.kept, problem.ranges);
  const int64_t lines = size_to_choose_by(s.lines.count(), problem);
  return kept > 0 && kept <= kMostSelected && longest > kMostSelected &&
         (longest <= 4 * kMostLoads * kBlock || lines >= problem.machine.multiprocessors);
}

CudaCode select_code(const CudaProblem& problem, const SortProblem& s) {
  const CudaWindow& x = problem.inputs[0];
  const int64_t longest = upper_bound(s.size, problem.ranges);
  const bool by_warp = longest <= kSelectedByWarp &&
                       size_to_choose_by(s.lines.count(), problem) >= problem.machine.multiprocessors;
  const int64_t warps = by_warp ? 1 : kBlock / 32;
  int64_t loads = 2;
  while (loads < kMostLoads && loads * 32 * warps < longest) loads *= 2;
  CudaWalk line(1);
  line.add_axis(s.size, {x.strides[s.axis]});
  std::vector<Dim> bases = s.lines.strides[0];
  bases.push_back(x.offset);
  const int64_t unit = std::min(loads, widest_unit(line, bases, dtype_bytes(x.dtype)));
  CudaParams params;
  const std::string body = lines_text(problem, s, params) + "  aicf::select_lines<" + item_of(s) + ", " +
                           std::to_string(warps) + ", " + std::to_string(loads) + ", " +
                           std::to_string(unit) + ", " + flags(s) + ">(s, in0, out0, out1);\n";
  CudaCode code;
  code.source = includes({"order/sort_lines.cuh"});
  add_kernel(code, problem,
             flat_launch("select_lines", ceildiv(s.lines.count(), Dim(kBlock / 32 / warps)), kBlock, params),
             body);
  return code;
}

void add_store(CudaCode& code, const CudaProblem& problem, const SortProblem& s, const std::string& sorted,
               const Dim& row, CudaParams params) {
  const std::string body = "  const " + item_of(s) + "* items = static_cast<const " + item_of(s) +
                           "*>(workspace);\n" + lines_text(problem, s, params) + "  aicf::store_lines(s, " +
                           sorted + ", " + params.expr(row) + ", in0, out0, out1);\n";
  add_kernel(code, problem,
             flat_launch("store_lines", blocks_for(s.lines.count() * s.kept, kBlock), kBlock, params), body);
}

void add_tiles(CudaCode& code, const CudaProblem& problem, const SortProblem& s, const Dim& row,
               const Dim& keep) {
  CudaParams params;
  const std::string body = lines_text(problem, s, params) + "  aicf::sort_tiles<" + item_of(s) + ", " +
                           std::to_string(kTile) + ", " + flags(s) + ">(s, in0, static_cast<" + item_of(s) +
                           "*>(workspace), " + params.expr(row) + ", I(" + params.expr(keep) + "));\n";
  add_kernel(code, problem,
             flat_launch("sort_tiles", s.lines.count() * blocks_for(s.size, kTile), kBlock, params), body);
}

CudaCode long_lines(const CudaProblem& problem, const SortProblem& s) {
  const Dim rows = s.lines.count();
  CudaCode code;
  code.source = includes({"order/sort_lines.cuh"});
  code.workspace_bytes = sort_buffer_bytes(rows, s.size, s.narrow);
  add_tiles(code, problem, s, s.size, Dim(kTile));
  add_merges(code, problem, rows, s.size, kTile, s.narrow);
  CudaParams params;
  const std::string size = params.expr(s.size), buffer = params.expr(rows) + " * " + size;
  add_store(
      code, problem, s,
      "items + (aicf::merge_passes(" + size + ", " + std::to_string(kTile) + ") & 1 ? " + buffer + " : 0)",
      s.size, params);
  return code;
}

// Rounds that each keep the first k of every tile, until one tile is left. Rounds alternate between two
// buffers.
CudaCode few_of_long_lines(const CudaProblem& problem, const SortProblem& s, int64_t size, int64_t kept) {
  const Dim rows = s.lines.count();
  CudaCode code;
  code.source = includes({"order/sort_lines.cuh"});
  int64_t row = (size + kTile - 1) / kTile * kept;
  const Dim buffer = rows * Dim(row);
  code.workspace_bytes = sort_buffer_bytes(rows, Dim(row), s.narrow);
  add_tiles(code, problem, s, Dim(row), Dim(kept));
  bool second = false;
  for (int round = 0; row > kept; ++round, second = !second) {
    const int64_t tiles = (row + kTile - 1) / kTile, next = tiles * kept;
    CudaParams params;
    const std::string other = "items + " + params.expr(buffer);
    const std::string body = "  " + item_of(s) + "* items = static_cast<" + item_of(s) +
                             "*>(workspace);\n  aicf::sort_item_tiles<" + item_of(s) + ", " +
                             std::to_string(kTile) + ">(" + (second ? other : "items") + ", int64_t(" +
                             std::to_string(row) + "), " + (second ? "items" : other) + ", int64_t(" +
                             std::to_string(next) + "), int64_t(" + std::to_string(kept) + "));\n";
    add_kernel(code, problem,
               flat_launch("sort_item_tiles_" + std::to_string(round), rows * Dim(tiles), kBlock, params),
               body);
    row = next;
  }
  CudaParams params;
  const std::string other = "items + " + params.expr(buffer);
  add_store(code, problem, s, second ? other : "items", Dim(kept), params);
  return code;
}

CudaCode sorted_code(const CudaProblem& problem) {
  const SortProblem s = sort_problem(problem);
  const int64_t longest = upper_bound(s.size, problem.ranges);
  if (may_select(problem, s)) return select_code(problem, s);
  if (longest <= kTile) return short_lines(problem, s, longest);
  const auto size = s.size.constant(), kept = s.kept.constant();
  if (size && kept && *kept > 0 && *kept <= kTile / 4) return few_of_long_lines(problem, s, *size, *kept);
  return long_lines(problem, s);
}

struct ScanProblem {
  CudaWalk lines{2};
  Dim size;
  int64_t threads = 256;  // per line
  std::string text;       // of the ScanLines
};

ScanProblem scan_problem(const CudaProblem& problem, CudaParams& params) {
  const CudaWindow &x = problem.inputs[0], &out = problem.outputs[0];
  const size_t axis = cuda_axis(problem, x);
  ScanProblem s;
  for (size_t i = 0; i < x.sizes.size(); ++i)
    if (i != axis) s.lines.add_axis(x.sizes[i], {x.strides[i], out.strides[i]});
  s.lines.merge_axes();
  s.size = x.sizes[axis];
  if (upper_bound(s.size, problem.ranges) <= kWarpSize) s.threads = 32;
  s.text = "  using I = " + std::string(index_type(problem, s.lines.count() * max(s.size, Dim(1)))) +
           ";\n  const aicf::ScanLines<I, " + std::to_string(s.lines.rank()) + "> s = {" +
           walk_value(s.lines, params) + ", I(" + params.expr(s.size) + "), I(" +
           params.expr(x.strides[axis]) + "), I(" + params.expr(out.strides[axis]) + ")};\n";
  return s;
}

CudaCode scan_code(const CudaProblem& problem, const ScanProblem& s, const std::string& name,
                   const std::string& header, const std::string& body, const CudaParams& params) {
  CudaCode code;
  code.source = includes({header});
  add_kernel(code, problem, flat_launch(name, ceildiv(s.lines.count(), Dim(256 / s.threads)), kBlock, params),
             s.text + body);
  return code;
}

constexpr int64_t kArgPart = 4096;  // elements of a line that a block takes where lines are few and long
constexpr int64_t kFewLines = 64;

// A flag of a template.
std::string flag(bool value) { return value ? "true" : "false"; }

CudaCode arg_parts_code(const CudaProblem& problem, const ScanProblem& s, const std::string& name,
                        bool minimum, bool last, const CudaParams& params) {
  const CudaWindow& x = problem.inputs[0];
  int64_t unit = x.strides[cuda_axis(problem, x)] == Dim(1) ? 16 / dtype_bytes(x.dtype) : 1;
  const auto fits = [&] {
    return is_multiple(x.offset, unit) && is_multiple(s.size, unit) &&
           std::all_of(s.lines.strides[0].begin(), s.lines.strides[0].end(),
                       [&](const Dim& stride) { return is_multiple(stride, unit); });
  };
  while (unit > 1 && !fits()) unit /= 2;
  const Dim parts = s.lines.count() * ceildiv(s.size, Dim(kArgPart));
  const std::string part = std::to_string(kArgPart);
  CudaCode code;
  code.source = includes({"order/arg_lines.cuh"});
  code.workspace_bytes = parts * Dim(16);
  add_kernel(code, problem, flat_launch(name + "_parts", parts, kBlock, params),
             s.text + "  aicf::arg_parts<" + part + ", " + std::to_string(unit) + ", " + flag(minimum) +
                 ", " + flag(last) + ">(s, in0, static_cast<aicf::Candidate*>(workspace));\n");
  add_kernel(code, problem, flat_launch(name, s.lines.count(), 32, params),
             s.text + "  aicf::arg_of_parts<" + part + ", " + flag(last) +
                 ">(s, static_cast<const aicf::Candidate*>(workspace), out0);\n");
  return code;
}

constexpr int64_t kArgLoads = 16;          // elements that a thread has in flight
constexpr int64_t kThreadsThatFill = 512;  // of a multiprocessor with so many loads each
constexpr int64_t kArgColumns = 32;        // neighbouring lines of a block where there are fewer
constexpr int64_t kArgBlocks = 8;          // of a multiprocessor, so that all end together

// Neighbouring threads take neighbouring lines. Where these do not fill the device, threads share lines, and
// then blocks.
CudaCode arg_columns_code(const CudaProblem& problem, const ScanProblem& s, const std::string& name,
                          bool minimum, bool last, const CudaParams& params) {
  const int64_t longest = upper_bound(s.size, problem.ranges);
  const int64_t count = std::max<int64_t>(upper_bound(s.lines.count(), problem.ranges), 1);
  const bool fills = count >= kThreadsThatFill * problem.machine.multiprocessors;
  const auto narrow = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(count)));
  const int64_t lines = fills ? kBlock : std::min(narrow, kArgColumns);
  const int64_t most_parts =
      std::max<int64_t>(kArgBlocks * problem.machine.multiprocessors / ceil_div(count, lines), 1);
  const int64_t rows = round_up(ceil_div(longest, most_parts), kBlock / lines * kArgLoads);
  const bool whole = fills || longest <= rows;
  const Dim groups = ceildiv(s.lines.count(), Dim(lines)), parts = ceildiv(s.size, Dim(rows));
  const std::string sizes = std::to_string(lines) + ", " + std::to_string(whole ? 0 : rows) + ", ",
                    candidates = "static_cast<aicf::Candidate*>(workspace)";
  CudaCode code;
  code.source = includes({"order/arg_lines.cuh"});
  if (!whole) code.workspace_bytes = s.lines.count() * parts * Dim(16);
  add_kernel(code, problem,
             flat_launch(whole ? name : name + "_parts", whole ? groups : groups * parts, kBlock, params),
             s.text + "  aicf::arg_columns<" + sizes + flag(minimum) + ", " + flag(last) + ">(s, in0, " +
                 (whole ? "nullptr, out0" : candidates + ", nullptr") + ");\n");
  if (!whole)
    add_kernel(code, problem, flat_launch(name, groups, kBlock, params),
               s.text + "  aicf::arg_of_columns<" + sizes + flag(last) + ">(s, " + candidates + ", out0);\n");
  return code;
}

// Neighbours of a line of x (0) and of the result (1) that move as one.
int64_t line_unit(const CudaProblem& problem, const ScanProblem& s, const std::vector<size_t>& tensors) {
  const size_t axis = cuda_axis(problem, problem.inputs[0]);
  int64_t unit = 16;
  for (const size_t tensor : tensors) {
    const CudaWindow& window = tensor == 0 ? problem.inputs[0] : problem.outputs[0];
    CudaWalk line(1);
    line.add_axis(s.size, {window.strides[axis]});
    std::vector<Dim> bases = s.lines.strides[tensor];
    bases.push_back(window.offset);
    unit = std::min(unit, widest_unit(line, bases, dtype_bytes(window.dtype)));
  }
  return unit;
}

constexpr int64_t kUnitsInFlight = 4;  // of 16 bytes, that a thread has
constexpr int64_t kMostLineThreads = 1024;
constexpr int64_t kRunUnits = 4;  // of a line that neighbouring threads load at once: whole sectors

// Lines of neighbours. A thread has some of a line in flight, or of several; where lines are few, more
// threads share one.
CudaCode arg_rows_code(const CudaProblem& problem, const ScanProblem& s, const std::string& name,
                       bool minimum, bool last, const CudaParams& params) {
  const int64_t unit = 16 / dtype_bytes(problem.inputs[0].dtype);
  const int64_t longest = upper_bound(s.size, problem.ranges);
  // Lines that may begin inside of a unit can take two more.
  const int64_t units = line_unit(problem, s, {0}) == unit ? ceil_div(longest, unit) : longest / unit + 2;
  const int64_t lines = size_to_choose_by(s.lines.count(), problem);
  const int64_t filling = 2048 * problem.machine.multiprocessors;
  const auto power = [](int64_t n) { return static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(n))); };
  int64_t threads =
      std::clamp(power(ceil_div(units, kUnitsInFlight)), std::min(kRunUnits, power(units)), int64_t{32});
  while (threads < kMostLineThreads && threads * kUnitsInFlight < units && lines * threads < filling)
    threads *= 2;
  const int64_t in_flight = std::min(kUnitsInFlight, power(ceil_div(units, threads)));
  int64_t rows = 1;
  while (threads * in_flight >= units && 2 * in_flight * rows <= kUnitsInFlight &&
         lines * threads >= 2 * rows * filling)
    rows *= 2;
  std::string sizes;
  for (const int64_t number : {threads, in_flight, rows}) sizes += std::to_string(number) + ", ";
  CudaCode code;
  code.source = includes({"order/arg_lines.cuh"});
  const int64_t block = std::max<int64_t>(threads, kBlock);
  add_kernel(code, problem,
             flat_launch(name, ceildiv(s.lines.count(), Dim(block / threads * rows)),
                         static_cast<int32_t>(block), params),
             s.text + "  aicf::arg_rows<" + sizes + flag(minimum) + ", " + flag(last) + ">(s, in0, out0);\n");
  return code;
}

CudaCode arg_code(const CudaProblem& problem, const std::string& name, bool minimum) {
  CudaParams params;
  ScanProblem s = scan_problem(problem, params);
  const CudaWindow& x = problem.inputs[0];
  const bool strided = !(x.strides[cuda_axis(problem, x)] == Dim(1)) && s.lines.rank() > 0 &&
                       s.lines.strides[0].back() == Dim(1);
  const bool last = problem.params[1].require_constant("select_last of an arg reduction") != 0;
  const int64_t longest = upper_bound(s.size, problem.ranges);
  if (strided) return arg_columns_code(problem, s, name, minimum, last, params);
  if (longest > 2 * kArgPart && upper_bound(s.lines.count(), problem.ranges) <= kFewLines)
    return arg_parts_code(problem, s, name, minimum, last, params);
  if (x.strides[cuda_axis(problem, x)] == Dim(1))
    return arg_rows_code(problem, s, name, minimum, last, params);
  const std::string body = "  aicf::arg_lines<" + std::to_string(s.threads) + ", " + flag(minimum) + ", " +
                           flag(last) + ">(s, in0, out0);\n";
  return scan_code(problem, s, name, "order/arg_lines.cuh", body, params);
}

constexpr int64_t kScanItems = 4;  // neighbours of a thread

// Whether lines take fewer rounds of tiles if each has a warp than if each has a block.
bool scans_by_warp(const CudaProblem& problem, const ScanProblem& s) {
  const int64_t longest = upper_bound(s.size, problem.ranges);
  const int64_t lines = size_to_choose_by(s.lines.count(), problem);
  const int64_t blocks = 2048 / kBlock * problem.machine.multiprocessors;  // at a time
  const auto rounds = [&](int64_t threads) {
    return ceil_div(lines, blocks * kBlock / threads) * ceil_div(longest, threads * kScanItems);
  };
  return rounds(32) <= rounds(kBlock);
}

CudaCode cumulative_code(const CudaProblem& problem, const std::string& name, bool product) {
  CudaParams params;
  ScanProblem s = scan_problem(problem, params);
  const int64_t longest = upper_bound(s.size, problem.ranges);
  if (longest <= kWarpSize)
    s.threads = static_cast<int64_t>(
        std::bit_ceil(static_cast<uint64_t>(std::max<int64_t>(ceil_div(longest, kScanItems), 1))));
  else if (scans_by_warp(problem, s))
    s.threads = 32;
  std::string body = "  aicf::scan_lines<" + std::to_string(s.threads) + ", " +
                     std::to_string(line_unit(problem, s, {0, 1}) >= kScanItems ? kScanItems : 1) +
                     (product ? ", true" : ", false");
  for (size_t i : {1, 2})
    body += problem.params[i].require_constant("flag of a cumulative op") != 0 ? ", true" : ", false";
  return scan_code(problem, s, name, "order/scan_lines.cuh", body + ">(s, in0, out0);\n", params);
}

}  // namespace

CudaCode generate_sort(const CudaProblem& problem) { return sorted_code(problem); }
CudaCode generate_top_k(const CudaProblem& problem) { return sorted_code(problem); }
CudaCode generate_argmax(const CudaProblem& problem) { return arg_code(problem, "argmax", false); }
CudaCode generate_argmin(const CudaProblem& problem) { return arg_code(problem, "argmin", true); }
CudaCode generate_cumsum(const CudaProblem& problem) { return cumulative_code(problem, "cumsum", false); }
CudaCode generate_cumprod(const CudaProblem& problem) { return cumulative_code(problem, "cumprod", true); }

}  // namespace aicf
