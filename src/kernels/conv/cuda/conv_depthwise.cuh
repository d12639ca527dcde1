// Depthwise convolutions whose kernel sizes, strides and dilations are known to the compiler: a thread makes a tile of
// neighbouring results, so that it converts an element of x once for all windows of the tile, and multiplies by weights that
// it keeps. Sums in the accumulator's type, one chain of fused multiply-adds over the taps in row-major order, padding
// taking part as zeros.
#pragma once

#include "bits.cuh"
#include "conv/cuda/conv_simt.cuh"

namespace aicf {

template <class T>
__device__ __forceinline__ float half_of_pair(uint32_t pair, bool second);
template <>
__device__ __forceinline__ float half_of_pair<bf16>(uint32_t pair, bool second) {
  return __uint_as_float(second ? pair & 0xffff0000u : pair << 16);
}
template <>
__device__ __forceinline__ float half_of_pair<f16>(uint32_t pair, bool second) {
  float first, other;
  asm("{\n  .reg .b16 low, high;\n  mov.b32 {low, high}, %2;\n  cvt.f32.f16 %0, low;\n  cvt.f32.f16 %1, high;\n}"
      : "=f"(first), "=f"(other)
      : "r"(pair));
  return second ? other : first;
}

// V neighbouring elements, zeros until they are read. Halves stay in pairs, each of which converts in one instruction.
template <class T, int V, bool kPairs = sizeof(T) == 2 && V % 2 == 0>
struct Neighbours {
  Pack<T, V> elements = {};
  __device__ __forceinline__ void read(const T* from) { elements = *reinterpret_cast<const Pack<T, V>*>(from); }
  template <class Acc>
  __device__ __forceinline__ Acc at(int i) const {
    return Acc(Element<T>::load(elements.at[i]));
  }
};
template <class T, int V>
struct Neighbours<T, V, true> {
  uint32_t pairs[V / 2] = {};
  __device__ __forceinline__ void read(const T* from) {
    const auto words = *reinterpret_cast<const Pack<uint32_t, V / 2>*>(from);
#pragma unroll
    for (int i = 0; i < V / 2; ++i) pairs[i] = words.at[i];
  }
  template <class Acc>
  __device__ __forceinline__ Acc at(int i) const {
    return half_of_pair<T>(pairs[i / 2], i % 2 == 1);
  }
};

// Neighbouring values of shared memory, aligned as a whole. Volatile: a compiler that kept what it has read would run out
// of registers for the weights of all taps.
__device__ __forceinline__ void read_shared(uint32_t address, float (&to)[1]) {
  asm volatile("ld.volatile.shared.f32 %0, [%1];" : "=f"(to[0]) : "r"(address));
}
__device__ __forceinline__ void read_shared(uint32_t address, float (&to)[2]) {
  asm volatile("ld.volatile.shared.v2.f32 {%0, %1}, [%2];" : "=f"(to[0]), "=f"(to[1]) : "r"(address));
}
__device__ __forceinline__ void read_shared(uint32_t address, float (&to)[4]) {
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(address));
}
__device__ __forceinline__ void read_shared(uint32_t address, float (&to)[8]) {
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[0]), "=f"(to[1]), "=f"(to[2]), "=f"(to[3])
               : "r"(address));
  asm volatile("ld.volatile.shared.v4.f32 {%0, %1, %2, %3}, [%4];"
               : "=f"(to[4]), "=f"(to[5]), "=f"(to[6]), "=f"(to[7])
               : "r"(address + 16));
}
__device__ __forceinline__ void read_shared(uint32_t address, double (&to)[1]) {
  asm volatile("ld.volatile.shared.f64 %0, [%1];" : "=d"(to[0]) : "r"(address));
}
__device__ __forceinline__ void read_shared(uint32_t address, double (&to)[2]) {
  asm volatile("ld.volatile.shared.v2.f64 {%0, %1}, [%2];" : "=d"(to[0]), "=d"(to[1]) : "r"(address));
}

// Windows of KH × KW taps, of a tile of RY × RX results.
template <class Acc, int V, int KH, int KW, int SY, int SX, int DY, int DX, int RY, int RX>
struct DepthwiseTile {
  static constexpr int kRows = (RY - 1) * SY + (KH - 1) * DY + 1;     // of x under the tile
  static constexpr int kColumns = (RX - 1) * SX + (KW - 1) * DX + 1;  // likewise
  static constexpr int kTaps = KH * KW, kWidth = KW, kResultRows = RY, kResultColumns = RX, kStepY = SY, kStepX = SX;

  // Whether a window of the tile has a tap in this row, this column.
  static __device__ __forceinline__ constexpr bool reads_row(int row) {
    return (DY == 1 && SY <= KH) || reads<RY, SY, KH, DY>(row);
  }
  static __device__ __forceinline__ constexpr bool reads_column(int column) { return reads<RX, SX, KW, DX>(column); }

  // Adds the products with row `row` of x under the tile. weight(tap, w): those of the V channels.
  template <class Weight>
  static __device__ __forceinline__ void add_row(int row, const Acc (&x)[kColumns][V], const Weight& weight,
                                                 Acc (&acc)[RY][RX][V]) {
#pragma unroll
    for (int ry = 0; ry < RY; ++ry) {
      const int from = row - ry * SY;
      if (from < 0 || from % DY != 0 || from / DY >= KH) continue;
#pragma unroll
      for (int kx = 0; kx < KW; ++kx) {
        Acc w[V];
        weight(from / DY * KW + kx, w);
#pragma unroll
        for (int rx = 0; rx < RX; ++rx)
#pragma unroll
          for (int v = 0; v < V; ++v) acc[ry][rx][v] = fused(x[rx * SX + kx * DX][v], w[v], acc[ry][rx][v]);
      }
    }
  }

 private:
  template <int kResults, int kStride, int kKernel, int kDilation>
  static __device__ __forceinline__ constexpr bool reads(int at) {
    for (int result = 0; result < kResults; ++result) {
      const int from = at - result * kStride;
      if (from >= 0 && from % kDilation == 0 && from / kDilation < kKernel) return true;
    }
    return false;
  }
};

// The tile of results with this number, and where its first window begins.
template <class Tile, class I>
struct TilePlace {
  I outer, y, x, top, left;  // outer: image or plane

  template <class O>
  __device__ __forceinline__ TilePlace(const O& o, I number) {
    const I across = tiles(o.axis[2].out, Tile::kResultColumns), down = tiles(o.axis[1].out, Tile::kResultRows);
    const I rows = divide(number, across);
    outer = divide(rows, down);
    x = (number - rows * across) * Tile::kResultColumns;
    y = (rows - outer * down) * Tile::kResultRows;
    top = y * Tile::kStepY - o.axis[1].low;
    left = x * Tile::kStepX - o.axis[2].low;
  }
  static __device__ __forceinline__ I tiles(I size, int of) { return (size + of - 1) / of; }
};

// Channels and maps are neighbours: V maps a thread, kLanes threads side by side. kGroupMaps: maps of a channel, one of it and
// V divides the other. kWideWeights: the weights of neighbouring maps are neighbours too, and threads read them as they need
// them; else a block keeps those of its maps in shared memory. Blocks: x: runs of tiles, so that a block finds the rows that
// its tiles share in its L1 cache; y: slices of maps.
template <class T, class Acc, int V, int kGroupMaps, int kLanes, bool kWideWeights, class Tile>
struct ConvDepthwiseLast {
  using E = Element<T>;
  static constexpr int kMaps = kLanes * V, kWidth = Tile::kWidth;
  static constexpr int kChannels = V > kGroupMaps ? V / kGroupMaps : 1;  // of x that a thread reads
  static constexpr int kRow = kMaps + 16 / int(sizeof(Acc));            // neighbouring taps lie in other banks
  static_assert(V % kGroupMaps == 0 || kGroupMaps % V == 0, "whole channels");
  // Rows of x that a thread asks for at once: as many as have registers beside the sums.
  static constexpr int kRowRegisters = Tile::kColumns * (kChannels * int(sizeof(T)) + 3) / 4;
  static constexpr int kSums = Tile::kResultRows * Tile::kResultColumns * V * int(sizeof(Acc)) / 4;
  static constexpr int kMostRows = (88 - kSums) / kRowRegisters;
  static constexpr int kRowsAtOnce = kMostRows < 1 ? 1 : kMostRows < Tile::kRows ? kMostRows : Tile::kRows;

  // Reads several elements before the first is stored: one after the other they would take as many trips to memory.
  template <class O, class I>
  static __device__ __forceinline__ void keep_weights(const O& o, I first, I maps, Acc (&weights)[Tile::kTaps][kRow]) {
    constexpr int kAll = Tile::kTaps * kMaps, kBatch = 8;
    const int threads = int(blockDim.x);
    for (int from = int(threadIdx.x); from < kAll; from += threads * kBatch) {
      T loaded[kBatch];
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = from + i * threads, map = at / Tile::kTaps, tap = at % Tile::kTaps;
        loaded[i] = {};
        if (at < kAll && first + map < maps)
          loaded[i] = o.w[(first + map) * o.w_map + tap / kWidth * o.w_tap[1] + tap % kWidth * o.w_tap[2]];
      }
#pragma unroll
      for (int i = 0; i < kBatch; ++i) {
        const int at = from + i * threads;
        if (at < kAll) weights[at % Tile::kTaps][at / Tile::kTaps] = Acc(E::load(loaded[i]));
      }
    }
  }

  // rounds: tiles that a thread makes one after the other.
  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, typename O::Index maps, typename O::Index tiles,
                             typename O::Index rounds) {
    using I = typename O::Index;
    __shared__ alignas(16) Acc weights[kWideWeights ? 1 : Tile::kTaps][kRow];
    const I first = I(blockIdx.y) * kMaps;
    if constexpr (!kWideWeights) {
      keep_weights(o, first, maps, weights);
      __syncthreads();
    }
    const int lane = int(threadIdx.x) % kLanes, places = int(blockDim.x) / kLanes;
    const I map = first + lane * V;
    if (map >= maps) return;
    const uint32_t kept = shared_address(&weights[0][kWideWeights ? 0 : lane * V]);
    const T* const read = o.w + map;
    const I down = o.w_tap[1], across = o.w_tap[2];
    const auto weight = [=](int tap, Acc (&w)[V]) {
      if constexpr (kWideWeights) {
        const auto loaded =
            *reinterpret_cast<const Pack<T, V>*>(read + tap / kWidth * down + tap % kWidth * across);
#pragma unroll
        for (int v = 0; v < V; ++v) w[v] = Acc(E::load(loaded.at[v]));
      } else {
        read_shared(kept + uint32_t(tap * kRow * int(sizeof(Acc))), w);
      }
    };
    const I begin = I(blockIdx.x) * places * rounds, end = min(tiles, I(begin + places * rounds));
    for (I number = begin + I(threadIdx.x) / kLanes; number < end; number += places)
      make_tile(o, epilogue, map, number, weight);
  }

 private:
  template <class O, class Epilogue, class I, class Weight>
  static __device__ __forceinline__ void make_tile(const O& o, const Epilogue& epilogue, I map, I number,
                                                   const Weight& weight) {
    const TilePlace<Tile, I> at(o, number);
    const T* x = o.x + at.outer * o.x_batch + map / kGroupMaps * o.x_channel;
    Acc acc[Tile::kResultRows][Tile::kResultColumns][V] = {};
#pragma unroll kRowsAtOnce
    for (int row = 0; row < Tile::kRows; ++row) {
      if (!Tile::reads_row(row)) continue;
      const bool inside = at.top + row >= 0 && at.top + row < o.axis[1].in;
      const T* from = x + (at.top + row) * o.axis[1].in_stride;
      Neighbours<T, kChannels> loaded[Tile::kColumns];
#pragma unroll
      for (int column = 0; column < Tile::kColumns; ++column) {
        const I position = at.left + column;
        if (Tile::reads_column(column) && inside && position >= 0 && position < o.axis[2].in)
          loaded[column].read(from + position * o.axis[2].in_stride);
      }
      Acc values[Tile::kColumns][V];
#pragma unroll
      for (int column = 0; column < Tile::kColumns; ++column)
#pragma unroll
        for (int v = 0; v < V; ++v) values[column][v] = loaded[column].template at<Acc>(v * kChannels / V);
      Tile::add_row(row, values, weight, acc);
    }
#pragma unroll
    for (int ry = 0; ry < Tile::kResultRows; ++ry)
#pragma unroll
      for (int rx = 0; rx < Tile::kResultColumns; ++rx) {
        if (at.y + ry >= o.axis[1].out || at.x + rx >= o.axis[2].out) continue;
        const int64_t pixel = (int64_t(at.outer) * o.axis[1].out + at.y + ry) * o.axis[2].out + at.x + rx;
        epilogue.template apply<V>(epilogue.row(pixel), int64_t(map), acc[ry][rx]);
      }
  }
};

// Positions of a row are neighbours: a thread makes a tile of a plane, of an image and a map. It loads x in aligned units of
// kUnit elements that lie inside or outside of a row as a whole; kShift: elements of the first unit before the window.
// It stores kStored neighbouring results at a time, which lie inside or outside of a row as a whole, too.
template <class T, class Acc, int kUnit, int kShift, int kStored, class Tile>
struct ConvDepthwiseFirst {
  using E = Element<T>;
  static constexpr int kUnits = (kShift + Tile::kColumns + kUnit - 1) / kUnit;
  static_assert(Tile::kResultColumns % kStored == 0, "whole stores");

  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, typename O::Index maps, typename O::Index tiles) {
    using I = typename O::Index;
    constexpr int kWidth = Tile::kWidth;
    const I number = flat_thread<I>();
    if (past(number, tiles)) return;
    const TilePlace<Tile, I> at(o, number);
    const I image = divide(at.outer, maps), map = at.outer - image * maps;
    const T* x = o.x + image * o.x_batch + divide(map, o.maps) * o.x_channel;
    const T* w = o.w + map * o.w_map;
    Acc weights[Tile::kTaps];
#pragma unroll
    for (int tap = 0; tap < Tile::kTaps; ++tap)
      weights[tap] = Acc(E::load(w[tap / kWidth * o.w_tap[1] + tap % kWidth * o.w_tap[2]]));
    Acc acc[Tile::kResultRows][Tile::kResultColumns][1] = {};
#pragma unroll
    for (int row = 0; row < Tile::kRows; ++row) {
      if (!Tile::reads_row(row)) continue;
      const bool inside = at.top + row >= 0 && at.top + row < o.axis[1].in;
      const T* from = x + (at.top + row) * o.axis[1].in_stride;
      Neighbours<T, kUnit> loaded[kUnits];
#pragma unroll
      for (int unit = 0; unit < kUnits; ++unit) {
        const I position = at.left - kShift + unit * kUnit;
        if (inside && position >= 0 && position < o.axis[2].in)
          loaded[unit].read(from + position * o.axis[2].in_stride);
      }
      Acc values[Tile::kColumns][1];
#pragma unroll
      for (int column = 0; column < Tile::kColumns; ++column)
        values[column][0] = loaded[(kShift + column) / kUnit].template at<Acc>((kShift + column) % kUnit);
      Tile::add_row(row, values, [&](int tap, Acc(&w)[1]) { w[0] = weights[tap]; }, acc);
    }
#pragma unroll
    for (int ry = 0; ry < Tile::kResultRows; ++ry) {
      if (at.y + ry >= o.axis[1].out) continue;
      const auto plane = epilogue.row(int64_t(at.outer));
      const int64_t first = int64_t(at.y + ry) * o.axis[2].out + at.x;
#pragma unroll
      for (int rx = 0; rx < Tile::kResultColumns; rx += kStored) {
        if (at.x + rx >= o.axis[2].out) continue;
        Acc values[kStored];
#pragma unroll
        for (int i = 0; i < kStored; ++i) values[i] = acc[ry][rx + i][0];
        epilogue.template apply<kStored>(plane, first + rx, values);
      }
    }
  }
};

// One channel per group. A thread makes V neighbouring maps of a pixel (V > 1: one map per group, channels neighbours), or
// one pixel of a map. kWideWeights: the weights of neighbouring maps are neighbours too.
template <class T, class Acc, int V, bool kPixelRows, bool kWideWeights>
struct ConvDepthwise {
  using E = Element<T>;

  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, typename O::Index groups) {
    using I = typename O::Index;
    const I flat = flat_thread<I>(), all_maps = groups * o.maps, pixels = o.pixels();
    if (past(flat, o.images * pixels * divide(all_maps, I(V)))) return;
    I map, number;  // number: of the pixel among all images'
    if constexpr (kPixelRows) {
      number = divide(flat, divide(all_maps, I(V)));
      map = (flat - number * divide(all_maps, I(V))) * V;
    } else {
      const I plane = divide(flat, pixels), image = divide(plane, all_maps);
      map = plane - image * all_maps;
      number = image * pixels + (flat - plane * pixels);
    }
    const Pixel<I> pixel = pixel_at(o, number);
    const T* x = o.x + pixel.image * o.x_batch + divide(map, o.maps) * o.x_channel;
    const T* w = o.w + map * o.w_map;
    Acc acc[V] = {};
    const WindowAxis<I>&d = o.axis[0], &h = o.axis[1], &c = o.axis[2];
    for (I kz = d.begin(pixel.at[0]); kz < d.end(pixel.at[0]); ++kz)
      for (I ky = h.begin(pixel.at[1]); ky < h.end(pixel.at[1]); ++ky)
#pragma unroll 4
        for (I kx = c.begin(pixel.at[2]); kx < c.end(pixel.at[2]); ++kx) {
          const T* from = x + d.position(pixel.at[0], kz) * d.in_stride + h.position(pixel.at[1], ky) * h.in_stride +
                          c.position(pixel.at[2], kx) * c.in_stride;
          const T* weight = w + kz * o.w_tap[0] + ky * o.w_tap[1] + kx * o.w_tap[2];
          const Pack<T, V> values = *reinterpret_cast<const Pack<T, V>*>(from);
          Pack<T, V> weights;
          if constexpr (kWideWeights)
            weights = *reinterpret_cast<const Pack<T, V>*>(weight);
          else
#pragma unroll
            for (int v = 0; v < V; ++v) weights.at[v] = weight[v * o.w_map];
#pragma unroll
          for (int v = 0; v < V; ++v) acc[v] = fused(Acc(E::load(values.at[v])), Acc(E::load(weights.at[v])), acc[v]);
        }
    const int64_t in_image = int64_t(number) - int64_t(pixel.image) * pixels;
    if constexpr (kPixelRows)
      epilogue.template apply<V>(epilogue.row(int64_t(number)), int64_t(map), acc);
    else
      epilogue.template apply<V>(epilogue.row(int64_t(pixel.image) * all_maps + map), in_image, acc);
  }
};

}  // namespace aicf
