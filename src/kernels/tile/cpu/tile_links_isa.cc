#include <stdint.h>
#include <string.h>

#include "kernels/tile/cpu/tile_chain_ops.h"
#include "kernels/tile/cpu/tile_links.h"
#include "kernels/tile/cpu/tile_numbers.h"
#include "kernels/tile/cpu/tile_reductions.h"

namespace aicf {
namespace AICF_ISA_NAMESPACE {
namespace {

constexpr int kAccumulators = 16;  // virtual lanes of a reduction
using D = hn::CappedTag<float, kAccumulators>;
using V = hn::Vec<D>;
constexpr int kWidth = static_cast<int>(hn::MaxLanes(D()));
constexpr int kUnit = kAccumulators / kWidth;  // vectors of the accumulators of a row

// Of every row the elements from i on that kPerRow vectors hold, the last vectors cut off at `left` elements
// where kTail. Vector j belongs to row j / kPerRow.
template <int kPerRow, bool kTail>
class Block {
 public:
  Block(int64_t i, int64_t left) : i_(i), left_(left) {}

  HWY_INLINE void run(const TileLinks& links) const {
    const D d;
    V v[kCount];
    each_index<kCount>([&](auto j) AICF_LAMBDA { v[j.value] = hn::Zero(d); });
    for (int32_t l = 0; l < links.count; ++l) {
      const TileLink& link = links.links[l];
      switch (link.kind) {
        case kLinkLoad:
          each_index<kCount>([&](auto j) AICF_LAMBDA { v[j.value] = load(link, j); });
          break;
        case kLinkFill:
          each_index<kCount>([&](auto j)
                                 AICF_LAMBDA { v[j.value] = hn::Set(d, *link.at[j.value / kPerRow]); });
          break;
        case kLinkStore:
          each_index<kCount>([&](auto j) AICF_LAMBDA { store(link, j, v[j.value]); });
          break;
        case kLinkSum:
          reduce<Sum<float>>(link, v);
          break;
        case kLinkProduct:
          reduce<Product<float>>(link, v);
          break;
        case kLinkMaximum:
          reduce<Maximum<float>>(link, v);
          break;
        case kLinkMinimum:
          reduce<Minimum<float>>(link, v);
          break;
        case kLinkMemory:
          apply_chain_op<kCount>(d, link.op, link.reversed, v,
                                 [&](auto j) AICF_LAMBDA { return load(link, j); });
          break;
        case kLinkScalar:
          apply_chain_op<kCount>(d, link.op, link.reversed, v,
                                 [&](auto j) AICF_LAMBDA { return hn::Set(d, *link.at[j.value / kPerRow]); });
          break;
        case kLinkSelf:
          apply_chain_op<kCount>(d, link.op, link.reversed, v,
                                 [&](auto j) AICF_LAMBDA { return v[j.value]; });
          break;
      }
    }
  }

 private:
  static constexpr int kCount = kTileLinkRows * kPerRow;

  static constexpr int offset(int j) { return j % kPerRow * kWidth; }
  HWY_INLINE size_t filled(int j) const {
    const int64_t n = left_ - offset(j);
    return static_cast<size_t>(n < 0 ? 0 : n < kWidth ? n : kWidth);
  }

  template <class J>
  HWY_INLINE V load(const TileLink& link, J j) const {
    const float* from = link.at[j.value / kPerRow] + i_ + offset(j.value);
    if constexpr (!kTail) return hn::LoadU(D(), from);
    HWY_ALIGN float padded[kWidth] = {};
    memcpy(padded, from, filled(j.value) * sizeof(float));
    return hn::Load(D(), padded);
  }

  template <class J>
  HWY_INLINE void store(const TileLink& link, J j, V value) const {
    float* to = link.at[j.value / kPerRow] + i_ + offset(j.value);
    if constexpr (!kTail) return hn::StoreU(value, D(), to);
    HWY_ALIGN float padded[kWidth];
    hn::Store(value, D(), padded);
    memcpy(to, padded, filled(j.value) * sizeof(float));
  }

  // Vectors of a row one after another, as their accumulators demand.
  template <class Operation>
  HWY_INLINE void reduce(const TileLink& link, const V (&v)[kCount]) const {
    each_index<kTileLinkRows>([&](auto row) AICF_LAMBDA {
      each_index<kUnit>([&](auto part) AICF_LAMBDA {
        const D d;
        float* at = link.at[row.value] + part.value * kWidth;
        V sum = hn::LoadU(d, at);
        each_index<kPerRow / kUnit>([&](auto unit) AICF_LAMBDA {
          const int at_unit = unit.value * kUnit + part.value;
          const V next = Operation::vector(sum, v[row.value * kPerRow + at_unit]);
          sum = kTail ? hn::IfThenElse(hn::FirstN(d, filled(at_unit)), next, sum) : next;
        });
        hn::StoreU(sum, d, at);
      });
    });
  }

  int64_t i_, left_;
};

// Where registers are many, up to four units of a row at once: 16 vectors, and a choice of the operation for
// all.
constexpr int kWide = kUnit == 1 ? 4 : kUnit, kHalf = kUnit == 1 ? 2 : kUnit;

void run_links(const TileLinks& links, int64_t n) {
  int64_t i = 0;
  for (; i + kWide * kWidth <= n; i += kWide * kWidth) Block<kWide, false>(i, n - i).run(links);
  for (; i + kHalf * kWidth <= n; i += kHalf * kWidth) Block<kHalf, false>(i, n - i).run(links);
  for (; i < n; i += kUnit * kWidth) Block<kUnit, true>(i, n - i).run(links);
}

}  // namespace

TileLinksFunction tile_links_function() { return run_links; }

}  // namespace AICF_ISA_NAMESPACE
}  // namespace aicf
