#include "kernels/order/radix_cuda.h"

#include <algorithm>
#include <bit>

namespace aicf {

namespace {

constexpr int32_t kRadixBlock = 256;                 // kRadixThreads of radix.cuh
constexpr int kMostBits = 8;                         // of a digit: a thread has one digit at most
constexpr int64_t kFewestItems = 4, kMostItems = 8;  // of a thread
constexpr int64_t kEnoughBlocks = 264;
constexpr int64_t kFewBlocks = 128;  // of which a block adds up the counts itself

int64_t count_bytes(const RadixSort& sort) { return sort.narrow ? 4 : 8; }
Dim table_bytes(const RadixSort& sort) {
  return (sort.blocks() + Dim(1)) * Dim((int64_t{1} << sort.bits) * count_bytes(sort));
}

}  // namespace

RadixSort radix_sort(const CudaProblem& problem, const Dim& count, int64_t largest_key, bool narrow) {
  RadixSort sort;
  sort.count = count;
  sort.narrow = narrow;
  // No key has all its bits set.
  const int bits = std::max(1, static_cast<int>(std::bit_width(static_cast<uint64_t>(largest_key) + 1)));
  sort.passes = (bits + kMostBits - 1) / kMostBits;
  sort.bits = (bits + sort.passes - 1) / sort.passes;
  const int64_t most = upper_bound(count, problem.ranges);
  int64_t items = kFewestItems;
  while (items < kMostItems && most / (2 * items * kRadixBlock) >= kEnoughBlocks) items *= 2;
  sort.tile = items * kRadixBlock;
  return sort;
}

// Tables of at least two digits of four bytes each hold whole items' pairs.
Dim RadixSort::scratch_bytes() const {
  return ceildiv((passes > 1 ? item_bytes() : Dim(0)) + table_bytes(*this), Dim(16)) * Dim(16);
}

void add_radix_sort(CudaCode& code, const CudaProblem& problem, const RadixSort& sort,
                    const std::function<std::string(CudaParams&)>& memory,
                    const std::function<std::string(CudaParams&, bool reports)>& reader) {
  const std::string item = sort.narrow ? "aicf::NarrowItem" : "aicf::WideItem",
                    number = sort.narrow ? "uint32_t" : "uint64_t", bits = std::to_string(sort.bits),
                    items = std::to_string(sort.tile / kRadixBlock);
  const bool adds = upper_bound(sort.blocks(), problem.ranges) > kFewBlocks;
  for (int pass = 0; pass < sort.passes; ++pass) {
    const std::string name = std::to_string(pass), shift = std::to_string(pass * sort.bits);
    const auto tables = [&](CudaParams& params) {
      const std::string before = sort.passes > 1 ? params.expr(sort.count) : "0";
      return memory(params) + "  " + item + "* before = reinterpret_cast<" + item + "*>(scratch);\n  " +
             number + "* totals = reinterpret_cast<" + number + "*>(before + " + before +
             "), *counts = totals + " + std::to_string(int64_t{1} << sort.bits) + ";\n";
    };
    // The last pass ends in `sorted`.
    const bool to_sorted = (sort.passes - pass) % 2 == 1;
    const auto text = [&](CudaParams& params, bool reports) {
      const std::string from = tables(params);
      if (pass == 0) return from + reader(params, reports);
      return from + "  const auto read = [&](int64_t i) { return " + (to_sorted ? "before" : "sorted") +
             "[i]; };\n" + (reports ? "  const auto report = [](int64_t) {};\n" : "");
    };
    const std::string digits =
        "<" + items + ", " + shift + ", " + bits + ", " + (adds ? "true" : "false") + ">";
    CudaParams counted;
    std::string body = text(counted, true);
    body += "  aicf::count_digits" + digits + "(read, report, " + counted.expr(sort.count) + ", counts);\n";
    CudaLaunch count = flat_launch("count_digits_" + name, sort.blocks(), kRadixBlock, counted);
    count.reports_errors = pass == 0;
    add_kernel(code, problem, std::move(count), body);

    if (adds) {
      CudaParams added;
      body = tables(added) + "  aicf::add_counts(counts, " + added.expr(sort.blocks()) + ", totals);\n";
      add_kernel(code, problem,
                 flat_launch("add_counts_" + name, Dim(int64_t{1} << sort.bits), kRadixBlock, added), body);
    }

    CudaParams placed;
    body = text(placed, false);
    body += "  aicf::place_items" + digits + "(read, " + placed.expr(sort.count) + ", counts, totals, " +
            (to_sorted ? "sorted" : "before") + ");\n";
    add_kernel(code, problem, flat_launch("place_items_" + name, sort.blocks(), kRadixBlock, placed), body);
  }
}

}  // namespace aicf
