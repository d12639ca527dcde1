#include "kernels/order/radix_cuda.h"

#include <algorithm>
#include <bit>

namespace aicf {

namespace {

constexpr int32_t kRadixBlock = 256;                 // kRadixThreads of radix.cuh
constexpr int kMostBits = 8;                         // of a digit: a thread has one digit at most
constexpr int64_t kFewestItems = 4, kMostItems = 8;  // of a thread
constexpr int64_t kEnoughBlocks = 264;
constexpr int64_t kFewBlocks = 32;  // of which a block adds up the counts itself

Dim item_bytes(const RadixSort& sort) { return sort.count * Dim(sort.narrow ? 8 : 16); }
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

// A multiple of 16 at every border: tables of at least two digits of four bytes each hold whole items' pairs.
Dim RadixSort::bytes() const {
  return ceildiv(item_bytes(*this) * Dim(2) + table_bytes(*this), Dim(16)) * Dim(16);
}

void add_radix_sort(CudaCode& code, const CudaProblem& problem, const RadixSort& sort,
                    const std::function<std::string(CudaParams&, bool reports)>& reader) {
  const std::string item = sort.narrow ? "aicf::NarrowItem" : "aicf::WideItem",
                    number = sort.narrow ? "uint32_t" : "uint64_t", bits = std::to_string(sort.bits),
                    items = std::to_string(sort.tile / kRadixBlock);
  const bool adds = upper_bound(sort.blocks(), problem.ranges) > kFewBlocks;
  for (int pass = 0; pass < sort.passes; ++pass) {
    const std::string name = std::to_string(pass), shift = std::to_string(pass * sort.bits);
    const auto text = [&](CudaParams& params, bool reports) {
      const std::string count = params.expr(sort.count);
      std::string from = "  " + item + "* items = static_cast<" + item + "*>(workspace);\n";
      from += "  " + number + "* totals = reinterpret_cast<" + number + "*>(items + 2 * " + count +
              "), *counts = totals + " + std::to_string(int64_t{1} << sort.bits) + ";\n";
      if (pass == 0) return from + reader(params, reports);
      const std::string array = pass % 2 == 0 ? "items + " + count : "items";
      return from + "  const auto read = [&](int64_t i) { return (" + array + ")[i]; };\n";
    };
    const std::string digits = "<" + items + ", " + shift + ", " + bits + ">";
    CudaParams counted;
    std::string body = text(counted, true);
    body += "  aicf::count_digits" + digits + "(read, " + counted.expr(sort.count) + ", counts);\n";
    CudaLaunch count = flat_launch("count_digits_" + name, sort.blocks(), kRadixBlock, counted);
    count.reports_errors = pass == 0;
    add_kernel(code, problem, std::move(count), body);

    if (adds) {
      CudaParams added;
      body = "  " + number + "* totals = reinterpret_cast<" + number + "*>(static_cast<" + item +
             "*>(workspace) + 2 * " + added.expr(sort.count) + ");\n  aicf::add_counts(totals + " +
             std::to_string(int64_t{1} << sort.bits) + ", " + added.expr(sort.blocks()) + ", totals);\n";
      add_kernel(code, problem,
                 flat_launch("add_counts_" + name, Dim(int64_t{1} << sort.bits), kRadixBlock, added), body);
    }

    CudaParams placed;
    body = text(placed, false);
    const std::string to = pass % 2 == 0 ? "items" : "items + " + placed.expr(sort.count);
    body += "  aicf::place_items<" + items + ", " + shift + ", " + bits + ", " + (adds ? "true" : "false") +
            ">(read, " + placed.expr(sort.count) + ", counts, totals, " + to + ");\n";
    add_kernel(code, problem, flat_launch("place_items_" + name, sort.blocks(), kRadixBlock, placed), body);
  }
}

}  // namespace aicf
