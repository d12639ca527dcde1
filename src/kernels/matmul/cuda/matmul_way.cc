#include "kernels/matmul/cuda/matmul_way.h"

#include <array>

#include "kernels/common/way_words.h"

namespace aicf {
namespace {

constexpr std::array<std::string_view, 7> kFamilies = {"simt",    "mma",  "wgmma", "tf32x3",
                                                       "batched", "warp", "direct"};

std::string number(const char* word, int value) {
  return " " + std::string(word) + " " + std::to_string(value);
}

std::optional<MatmulFamily> take_family(WayWords& words) {
  for (size_t i = 0; i < kFamilies.size(); ++i)
    if (words.take(kFamilies[i])) return static_cast<MatmulFamily>(i);
  return std::nullopt;
}

bool is_single_tile(const MatmulWay& way) { return way.block_m == kSingleSide && way.block_n == kSingleSide; }

MatmulUnit unit_of(MatmulFamily family, const MatmulWay& way) {
  if (family == MatmulFamily::wgmma) return MatmulUnit::wgmma;
  if (family == MatmulFamily::tf32x3) return MatmulUnit::tf32x3;
  if (family == MatmulFamily::batched) return MatmulUnit::batched;
  if (family == MatmulFamily::warp) return MatmulUnit::warp;
  if (family == MatmulFamily::direct) return MatmulUnit::direct;
  if (family == MatmulFamily::mma) return way.slices > 0 ? MatmulUnit::sliced_mma : MatmulUnit::mma;
  if (way.slices > 0) return MatmulUnit::sliced_simt;
  return is_single_tile(way) ? MatmulUnit::single : MatmulUnit::simt;
}

bool take_split(WayWords& words, MatmulSplit& split) {
  if (!words.take("splits")) return true;
  if (!words.take_number(split.parts)) return false;
  split.kind = words.take("cluster") ? SplitKind::cluster : SplitKind::workspace;
  return split.kind == SplitKind::cluster || words.take("workspace");
}

MatmulSchedule take_schedule(WayWords& words) {
  if (words.take("ping-pong")) return MatmulSchedule::ping_pong;
  if (!words.take("epilogue-warps")) return MatmulSchedule::cooperative;
  return words.take("stationary-x") ? MatmulSchedule::stationary_x : MatmulSchedule::epilogue_warps;
}

std::string_view schedule_text(MatmulSchedule schedule) {
  switch (schedule) {
    case MatmulSchedule::cooperative:
      return "";
    case MatmulSchedule::ping_pong:
      return " ping-pong";
    case MatmulSchedule::epilogue_warps:
      return " epilogue-warps";
    case MatmulSchedule::stationary_x:
      return " epilogue-warps stationary-x";
  }
  return "";
}

std::string_view wgmma_fault(const MatmulWay& way) {
  if (way.warpgroups != 1 && way.warpgroups != 2) return "one or two warpgroups multiply";
  if (way.block_m % (64 * way.warpgroups) != 0) return "warpgroups multiply 64 rows at a time";
  if (way.block_n % 32 != 0 || way.block_n > 256) return "an instruction has up to 256 columns";
  if (splits_in_workspace(way)) return "parts of K are added up in clusters, or blocks share all steps";
  if (way.split.kind == SplitKind::multicast) {
    if (way.warpgroups != 2 || way.occupancy != 1 || keeps_x_stationary(way))
      return "blocks of a multicast have two warpgroups and tiles of their own";
    if (way.split.parts != 2 && way.split.parts != 4) return "two or four blocks share a multicast";
    return "";
  }
  if (way.schedule == MatmulSchedule::cooperative) return "";
  if (way.warpgroups != 2 || way.occupancy != 1) return "two warpgroups have a multiprocessor for themselves";
  return way.split.kind != SplitKind::none ? "tiles of a persistent block are whole" : "";
}

std::string_view whole_products_fault(const MatmulWay& way) {
  if (way.block_m % 4 != 0 || way.block_n % 4 != 0) return "threads have four rows and columns";
  if (!is_batched(way) && (way.block_m % 16 != 0 || way.block_n % 8 != 0 || way.batches > 8))
    return "up to eight warps multiply 16 rows by 8 columns at a time";
  if (way.block_m > kBatchedSide || way.block_n > kBatchedSide) return "a block has whole products";
  return way.stages == 1 && way.split.kind == SplitKind::none ? "" : "a block has all of K at once";
}

std::string_view direct_fault(const MatmulWay& way) {
  constexpr int kMostWarps = 16;
  if ((way.block_m != 8 && way.block_m != 16) || way.block_n != kDirectColumns)
    return "an instruction has 16 rows and 8 columns";
  if (way.slices > kMostWarps) return "a thread has registers for what it loads";
  return way.stages == 1 && way.split.kind == SplitKind::none ? "" : "the warps of a block have all of K";
}

std::string_view tf32x3_fault(const MatmulWay& way) {
  if (way.block_m != 128) return "two warpgroups multiply 64 rows each";
  if (way.block_n % 32 != 0 || way.block_n > 128) return "a thread has registers for the sums of 128 columns";
  return splits_in_cluster(way) || way.split.kind == SplitKind::none ? ""
                                                                     : "parts of K are added up in clusters";
}

}  // namespace

MatmulFamily family_of(MatmulUnit unit) {
  switch (unit) {
    case MatmulUnit::simt:
    case MatmulUnit::single:
    case MatmulUnit::sliced_simt:
      return MatmulFamily::simt;
    case MatmulUnit::mma:
    case MatmulUnit::sliced_mma:
      return MatmulFamily::mma;
    case MatmulUnit::wgmma:
      return MatmulFamily::wgmma;
    case MatmulUnit::tf32x3:
      return MatmulFamily::tf32x3;
    case MatmulUnit::batched:
      return MatmulFamily::batched;
    case MatmulUnit::warp:
      return MatmulFamily::warp;
    case MatmulUnit::direct:
      return MatmulFamily::direct;
  }
  return MatmulFamily::simt;
}

std::string_view fault_of(const MatmulWay& way) {
  if (way.block_m < 1 || way.block_n < 1 || way.stages < 1) return "a tile or pipeline of nothing";
  if ((is_sliced(way) || is_direct(way)) != (way.slices > 1))
    return "slices are of sliced.cuh and direct.cuh, two or more";
  if (way.split.kind == SplitKind::none ? way.split.parts != 1 : way.split.parts < 1)
    return "parts without a split";
  if (way.split.parts < 2 && way.split.kind != SplitKind::none && way.split.kind != SplitKind::row)
    return "a split of one part";
  if (has_whole_products(way) != (way.batches > 0)) return "products of a block without whole ones";
  if (is_wgmma(way)) return wgmma_fault(way);
  if (way.warpgroups != 0 || way.occupancy != 1 || way.schedule != MatmulSchedule::cooperative ||
      way.split.kind == SplitKind::row || way.split.kind == SplitKind::multicast || stream_blocks(way) > 0)
    return "warpgroups, occupancy, schedules, clusters of rows, multicast and stream-K are wgmma's";
  if (is_tf32x3(way)) return tf32x3_fault(way);
  if (has_whole_products(way)) return whole_products_fault(way);
  if (is_direct(way)) return direct_fault(way);
  if (loads_all_of_k(way) && way.split.kind != SplitKind::none) return "one stage has all of K";
  if (is_sliced(way) && splits_in_workspace(way)) return "sliced parts of K are added up in clusters";
  if (way.unit == MatmulUnit::single && (!is_single_tile(way) || way.split.kind != SplitKind::none))
    return "single.cuh has one tile and all of K";
  return way.unit == MatmulUnit::simt && is_single_tile(way) ? "a tile of single.cuh" : "";
}

std::string to_string(const MatmulWay& way) {
  std::string text = std::string(kFamilies[static_cast<size_t>(family_of(way))]) + " " +
                     std::to_string(way.block_m) + "x" + std::to_string(way.block_n) +
                     number("stages", way.stages);
  if (way.slices > 0) text += number("slices", way.slices);
  if (way.batches > 0) text += number("batches", way.batches);
  if (split_parts(way) > 1)
    text += number("splits", split_parts(way)) + (splits_in_cluster(way) ? " cluster" : " workspace");
  if (way.warpgroups > 0) text += number("warpgroups", way.warpgroups);
  if (way.occupancy > 1) text += number("occupancy", way.occupancy);
  text += schedule_text(way.schedule);
  if (row_blocks(way) > 0) text += number("row-reduction cluster", row_blocks(way));
  if (multicast_blocks(way) > 1) text += number("multicast", multicast_blocks(way));
  if (stream_blocks(way) > 0) text += number("stream-k", stream_blocks(way));
  return text;
}

std::optional<MatmulWay> parse_matmul_way(std::string_view text) {
  WayWords words(text);
  MatmulWay way;
  const std::optional<MatmulFamily> family = take_family(words);
  if (!family || !words.take_tile(way.block_m, way.block_n) || !words.take("stages") ||
      !words.take_number(way.stages) || !words.take_optional("slices", way.slices) ||
      !words.take_optional("batches", way.batches) || !take_split(words, way.split) ||
      !words.take_optional("warpgroups", way.warpgroups) || !words.take_optional("occupancy", way.occupancy))
    return std::nullopt;
  way.schedule = take_schedule(words);
  if (words.take("row-reduction cluster")) {
    if (way.split.kind != SplitKind::none || !words.take_number(way.split.parts)) return std::nullopt;
    way.split.kind = SplitKind::row;
  }
  if (words.take("multicast")) {
    if (way.split.kind != SplitKind::none || !words.take_number(way.split.parts)) return std::nullopt;
    way.split.kind = SplitKind::multicast;
  }
  if (words.take("stream-k")) {
    if (way.split.kind != SplitKind::none || !words.take_number(way.split.parts)) return std::nullopt;
    way.split.kind = SplitKind::stream;
  }
  way.unit = unit_of(*family, way);
  if (!words.is_done() || !fault_of(way).empty() || to_string(way) != text) return std::nullopt;
  return way;
}

}  // namespace aicf
