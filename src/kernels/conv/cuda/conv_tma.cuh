// Convolution as a product of matrices on wgmma.cuh: a tile's rows are a box of pixels of the result, and the copy engine
// itself finds what a tap of the window reads there: the same box of x, moved by the tap, zero outside of x. The order of
// K is that of the weights' memory: taps, then channels, 128 bytes of which are a step. K counts 2 bytes.
#pragma once

#include "matmul/cuda/wgmma_tf32.cuh"

namespace aicf {

// Shape: constants kSpatialAxes, 1 or 2, kHalves, of an element, kChannels, in halves, kKernelW, of the result kOutW,
// kOutH, of a box kBoxW, kBoxH, kBoxN, of a tile kRows, and kStrideW, kStrideH, kDilationW, kDilationH, kLowW, kLowH.
template <class Shape>
struct PixelBoxes {
  static constexpr int kAcross = (Shape::kOutW + Shape::kBoxW - 1) / Shape::kBoxW,
                       kDown = (Shape::kOutH + Shape::kBoxH - 1) / Shape::kBoxH;
  uint32_t w, h, n;  // the first pixel of box `tile`
  __device__ __forceinline__ explicit PixelBoxes(uint32_t tile)
      : w(tile % kAcross * Shape::kBoxW), h(tile / kAcross % kDown * Shape::kBoxH), n(tile / (kAcross * kDown) * Shape::kBoxN) {}
};

// The operands of WgmmaMatmul; rows are those of all tiles, `m` = tiles · kRows.
template <class Shape>
struct ConvTmaOperands {
  int32_t m, n, k;
  int64_t batches = 1;
  static constexpr bool kWholeGroups = false, kWholeTiles = false, kSumsX = false, kDualGemm = false;
  static constexpr int kStoredColumns = 8;

  __device__ __forceinline__ void load_x(const CUtensorMap* map, uint32_t to, uint32_t barrier, int k, int row,
                                         uint32_t) const {
    const PixelBoxes<Shape> box(uint32_t(row) / Shape::kRows);
    const uint32_t tap = uint32_t(k) / Shape::kChannels, channel = uint32_t(k) % Shape::kChannels;
    const int kw = int(tap % Shape::kKernelW), kh = int(tap / Shape::kKernelW);
    const int first = int(channel) / Shape::kHalves,
              w = int(box.w) * Shape::kStrideW + kw * Shape::kDilationW - Shape::kLowW;
    if constexpr (Shape::kSpatialAxes == 1)
      load_box(map, to, barrier, first, w, int(box.n));
    else
      load_box(map, to, barrier, first, w, int(box.h) * Shape::kStrideH + kh * Shape::kDilationH - Shape::kLowH, int(box.n));
  }
};

// The epilogue over pixels in order, seen by rows of boxes; rows outside of the result are left out.
template <class Shape, class Inner>
struct BoxEpilogue {
  using Acc = typename Inner::Acc;
  using Tile = typename Inner::Tile;
  static constexpr bool kSumsRows = false;
  struct Row {
    typename Inner::Row row;
    uint32_t inside;
  };
  const Inner& inner;
  uint32_t images;

  __device__ __forceinline__ Row row(int64_t at) const {
    const PixelBoxes<Shape> box(uint32_t(at) / Shape::kRows);
    const uint32_t local = uint32_t(at) % Shape::kRows;
    const uint32_t w = box.w + local % Shape::kBoxW, h = box.h + local / Shape::kBoxW % Shape::kBoxH,
                   image = local / (Shape::kBoxW * Shape::kBoxH), n = box.n + image;
    const bool inside = w < Shape::kOutW && h < Shape::kOutH && image < Shape::kBoxN && n < images;
    Row row{inner.row(inside ? (int64_t(n) * Shape::kOutH + h) * Shape::kOutW + w : 0), inside};
    keep_in_register(row.inside);
    return row;
  }
  template <int V>
  using Shared = typename Inner::template Shared<V>;
  template <int V>
  using Own = typename Inner::template Own<V>;
  template <int V>
  __device__ __forceinline__ void fetch(Shared<V>& to, int64_t column) const {
    inner.fetch(to, column);
  }
  template <int V>
  __device__ __forceinline__ void fetch(Own<V>& to, const Row& row, int64_t column) const {
    if (row.inside) inner.fetch(to, row.row, column);
  }
  template <int V, class A>
  __device__ __forceinline__ void apply(const Row& row, int64_t column, const A (&acc)[V], const Shared<V>& shared,
                                        const Own<V>& own) const {
    if (row.inside) inner.apply(row.row, column, acc, shared, own);
  }
  template <int V, class A>
  __device__ __forceinline__ void apply(const Row& row, int64_t column, const A (&acc)[V]) const {
    if (row.inside) inner.template apply<V>(row.row, column, acc);
  }
};

}  // namespace aicf
