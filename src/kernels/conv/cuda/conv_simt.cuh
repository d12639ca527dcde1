// Convolutions on the plain arithmetic units: an implicit GEMM of maps by pixels for every float type and layout, also
// transposed. Each sum is one chain of fused multiply-adds over K, in the accumulator's type; a split K adds the parts in
// order.
#pragma once

#include "conv/cuda/conv_gather.cuh"

namespace aicf {

__device__ __forceinline__ float fused(float a, float b, float c) { return __fmaf_rn(a, b, c); }
__device__ __forceinline__ double fused(double a, double b, double c) { return __fma_rn(a, b, c); }

// Windows along an axis, of one phase: place q of the phase is position q · stride of the result, from `remainder` on, and
// takes tap first + j · step from position base + q · x_stride + j · dilation of x. Transposed, position o takes tap k
// from p with p · stride - low + k · dilation = o: as many phases as the stride, in each of which the taps that divide stand
// a fixed step apart. Else there is one phase.
template <class I>
struct PhaseAxis {
  I first, step, taps;
  I base, x_stride, dilation;
  I places, remainder, stride;
};
template <bool kTransposed, class I>
__device__ __forceinline__ PhaseAxis<I> phase_axis(const WindowAxis<I>& axis, I remainder) {
  if constexpr (!kTransposed) {
    return {0, 1, axis.kernel, -axis.low, axis.stride, axis.dilation, axis.out, 0, 1};
  } else {
    PhaseAxis<I> phase = {0, 1, 0, 0, 1, 0, (axis.out + axis.stride - 1) / axis.stride, remainder, axis.stride};
    const I from = remainder + axis.low;
    while (phase.first < axis.kernel && (from - phase.first * axis.dilation) % axis.stride != 0) ++phase.first;
    while (phase.step * axis.dilation % axis.stride != 0) ++phase.step;
    if (phase.first < axis.kernel) phase.taps = (axis.kernel - phase.first + phase.step - 1) / phase.step;
    phase.base = (from - phase.first * axis.dilation) / axis.stride;
    phase.dilation = -(phase.step * axis.dilation / axis.stride);
    return phase;
  }
}

template <class I>
struct Phase {
  PhaseAxis<I> axis[3];

  __device__ __forceinline__ I places() const { return axis[0].places * axis[1].places * axis[2].places; }
  __device__ __forceinline__ I taps() const { return axis[0].taps * axis[1].taps * axis[2].taps; }
  // Number `place` of all images' as its image and its place on each axis.
  __device__ __forceinline__ Pixel<I> at(I place) const {
    const I rows = divide(place, axis[2].places), planes = divide(rows, axis[1].places);
    Pixel<I> p;
    p.at[2] = place - rows * axis[2].places;
    p.at[1] = rows - planes * axis[1].places;
    p.image = divide(planes, axis[0].places);
    p.at[0] = planes - p.image * axis[0].places;
    return p;
  }
  // Of taps in row-major order.
  __device__ __forceinline__ void tap(I number, I (&j)[3]) const {
    const I rows = divide(number, axis[2].taps), planes = divide(rows, axis[1].taps);
    j[2] = number - rows * axis[2].taps;
    j[1] = rows - planes * axis[1].taps;
    j[0] = planes;
  }
};

// How a block's kMaps × kPixels results are shared out: a thread has TM × TN of them, in squares of 4 × 4 that lie a warp's
// lanes apart.
template <int kMaps_, int kPixels_, int TM_, int TN_>
struct SimtTile {
  static constexpr int kMaps = kMaps_, kPixels = kPixels_, TM = TM_, TN = TN_;
  static constexpr int kLaneRows = kMaps / TM < 4 ? kMaps / TM : 4, kLaneColumns = 32 / kLaneRows;
  static constexpr int kWarpMaps = kLaneRows * TM, kWarpPixels = kLaneColumns * TN;
  static constexpr int kWarpsAcross = kPixels / kWarpPixels;
  static constexpr int kThreads = kMaps / kWarpMaps * kWarpsAcross * 32;
  static_assert(kMaps % kWarpMaps == 0 && kPixels % kWarpPixels == 0 && TM % 4 == 0 && TN % 4 == 0, "whole warps");

  // The first map and pixel of this thread. Eight neighbouring lanes read two vectors of maps and four of pixels.
  static __device__ __forceinline__ int map() {
    const int lane = int(threadIdx.x) % 32, row = kLaneRows == 4 ? lane / 16 * 2 + lane % 2 : lane / kLaneColumns;
    return int(threadIdx.x) / 32 / kWarpsAcross * kWarpMaps + row * 4;
  }
  static __device__ __forceinline__ int pixel() {
    const int lane = int(threadIdx.x) % 32, column = kLaneRows == 4 ? lane / 2 % 8 : lane % kLaneColumns;
    return int(threadIdx.x) / 32 % kWarpsAcross * kWarpPixels + column * 4;
  }
  static __device__ __forceinline__ constexpr int map_step(int i) { return i / 4 * kLaneRows * 4 + i % 4; }
  static __device__ __forceinline__ constexpr int pixel_step(int j) { return j / 4 * kLaneColumns * 4 + j % 4; }
};

// kFlat: K runs on from tap to tap, for few channels; else each tap begins a step of its own. kChannelsFast: neighbouring
// threads load neighbouring channels of x, else neighbouring pixels. kUnit: neighbouring maps in an aligned unit of w.
// kWide: four neighbours of a row of results stay aligned. kStepsFast: neighbouring threads load neighbouring steps of K of w,
// else neighbouring maps.
template <class T, class Acc, class Tile, int kDepth, int kStages, bool kPixelRows, bool kTransposed, bool kFlat,
          bool kChannelsFast, int kUnit, bool kWide, Split kSplit, int kParts, bool kStepsFast = false>
struct ConvSimt {
  using E = Element<T>;
  static constexpr int kThreads = Tile::kThreads, TM = Tile::TM, TN = Tile::TN, kGroups = TM * TN / 4;
  static constexpr bool kCopies = sizeof(T) == sizeof(Acc);  // by asynchronous copies, which change no type
  struct Stage {
    Acc maps[kDepth][Tile::kMaps + 4];
    Acc pixels[kDepth][Tile::kPixels + 4];
  };

  // Element `thread + i · kThreads` of a stage of x: its pixel and its step of K. A thread has kOwn pixels, load i of which
  // is of pixel i % kOwn.
  static constexpr int kRun = 8;  // channels of a pixel side by side
  static constexpr int kLoads = Tile::kPixels * kDepth / kThreads;
  static constexpr int kOwnAll = Tile::kPixels * (kChannelsFast ? kRun : 1) / kThreads, kOwn = kOwnAll > 1 ? kOwnAll : 1;
  static_assert(Tile::kPixels * kDepth % kThreads == 0 && kDepth % kRun == 0 && kLoads % kOwn == 0, "even shares of x");
  static __device__ __forceinline__ int pixel_of(int i) {
    const int index = int(threadIdx.x) + i * kThreads;
    return (kChannelsFast ? index / kRun : index) % Tile::kPixels;
  }
  static __device__ __forceinline__ int step_of(int i) {
    const int index = int(threadIdx.x) + i * kThreads;
    return kChannelsFast ? index / (kRun * Tile::kPixels) * kRun + index % kRun : index / Tile::kPixels;
  }

  // Units of w of a stage.
  static constexpr int kRowUnits = Tile::kMaps / kUnit, kUnits = kRowUnits * kDepth;
  static constexpr int kUnitLoads = (kUnits + kThreads - 1) / kThreads;
  static_assert(!kStepsFast || kUnit == 1, "maps that are no neighbours come one by one");
  static __device__ __forceinline__ int w_step_of(int i) {
    const int index = int(threadIdx.x) + i * kThreads;
    return kStepsFast ? index % kDepth : index / kRowUnits;
  }
  static __device__ __forceinline__ int w_map_of(int i) {
    const int index = int(threadIdx.x) + i * kThreads;
    return kStepsFast ? index / kDepth : index % kRowUnits * kUnit;
  }

  // What a thread loads: it goes through the steps of K in order.
  template <class O>
  struct Loader {
    using I = typename O::Index;
    using U = typename UnsignedOf<I>::type;
    const O& o;
    const Phase<I>& phase;
    const T *x, *w;  // of the group, from the first map on
    I maps_left, k_end;
    I base[kOwn], at[kOwn][3];  // of each pixel's window
    bool exists[kOwn];
    I k;                     // flat: the step's first
    I channel, j[3];         // else: its channel and tap,
    I tap_x[kOwn], tap_w;    //   whose offsets these are,
    bool inside[kOwn];       //   and whether it lies inside of x
    T next_x[kCopies ? 1 : kLoads], next_w[kCopies ? 1 : kUnitLoads * kUnit];

    __device__ __forceinline__ Loader(const O& o, const Phase<I>& phase, const T* x, const T* w, I maps_left)
        : o(o), phase(phase), x(x), w(w), maps_left(maps_left) {}

    __device__ __forceinline__ void find(I first_place, I places_left) {
#pragma unroll
      for (int own = 0; own < kOwn; ++own) {
        exists[own] = pixel_of(own) < places_left;
        const Pixel<I> p = phase.at(exists[own] ? I(first_place + pixel_of(own)) : I(0));
        base[own] = p.image * o.x_batch;
#pragma unroll
        for (int a = 0; a < 3; ++a) {
          at[own][a] = phase.axis[a].base + p.at[a] * phase.axis[a].x_stride;
          base[own] += at[own][a] * o.axis[a].in_stride;
        }
      }
    }

    __device__ __forceinline__ bool reads(int own, const I (&tap)[3], I& offset) const {
      bool result = exists[own];
      offset = base[own];
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        const I shift = tap[a] * phase.axis[a].dilation;
        result = result && U(at[own][a] + shift) < U(o.axis[a].in);
        offset += shift * o.axis[a].in_stride;
      }
      return result;
    }
    __device__ __forceinline__ I weights_at(const I (&tap)[3]) const {
      I offset = 0;
#pragma unroll
      for (int a = 0; a < 3; ++a) offset += (phase.axis[a].first + tap[a] * phase.axis[a].step) * o.w_tap[a];
      return offset;
    }

    __device__ __forceinline__ void set_tap() {
#pragma unroll
      for (int own = 0; own < kOwn; ++own) inside[own] = reads(own, j, tap_x[own]);
      tap_w = weights_at(j);
    }
    __device__ __forceinline__ void begin(I step, I chunks) {
      if constexpr (kFlat) {
        k = step * kDepth;
        k_end = phase.taps() * o.channels;
      } else {
        const I number = divide(step, chunks);
        channel = (step - number * chunks) * kDepth;
        phase.tap(number, j);
        set_tap();
      }
    }
    __device__ __forceinline__ void advance() {
      if constexpr (kFlat) {
        k += kDepth;
      } else {
        channel += kDepth;
        if (channel < o.channels) return;
        channel = 0;
        if (++j[2] == phase.axis[2].taps) {
          j[2] = 0;
          if (++j[1] == phase.axis[1].taps) j[1] = 0, ++j[0];
        }
        set_tap();
      }
    }

    __device__ __forceinline__ bool element_of_x(int i, I& offset) const {
      const int own = i % kOwn;
      if constexpr (kFlat) {
        const I step = k + step_of(i), number = divide(step, o.channels);
        I tap[3];
        phase.tap(number, tap);
        const bool result = reads(own, tap, offset) && step < k_end;
        offset += (step - number * o.channels) * o.x_channel;
        return result;
      } else {
        const I c = channel + step_of(i);
        offset = tap_x[own] + c * o.x_channel;
        return inside[own] && c < o.channels;
      }
    }
    __device__ __forceinline__ bool unit_of_w(int i, I& offset) const {
      const int step = w_step_of(i), map = w_map_of(i);
      offset = map * o.w_map;
      if constexpr (kFlat) {
        const I at_k = k + step, number = divide(at_k, o.channels);
        I tap[3];
        phase.tap(number, tap);
        offset += weights_at(tap) + (at_k - number * o.channels) * o.w_channel;
        return at_k < k_end && map < maps_left;
      } else {
        offset += tap_w + (channel + step) * o.w_channel;
        return channel + step < o.channels && map < maps_left;
      }
    }
    static __device__ __forceinline__ bool has_unit(int i) {
      return kUnits % kThreads == 0 || int(threadIdx.x) + i * kThreads < kUnits;
    }

    // Begins to load a step; put() ends it where no copies do.
    __device__ __forceinline__ void fetch(Stage& stage) {
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        I offset;
        const bool copied = element_of_x(i, offset);
        if constexpr (kCopies)
          copy_unit<sizeof(T)>(shared_address(&stage.pixels[step_of(i)][pixel_of(i)]), copied ? x + offset : x, copied);
        else
          next_x[i] = copied ? x[offset] : T{};
      }
#pragma unroll
      for (int i = 0; i < kUnitLoads; ++i) {
        if (!has_unit(i)) continue;
        I offset;
        const bool copied = unit_of_w(i, offset);
        if constexpr (kCopies)
          copy_unit<kUnit * sizeof(T)>(shared_address(&stage.maps[w_step_of(i)][w_map_of(i)]), copied ? w + offset : w,
                                       copied);
        else
#pragma unroll
          for (int e = 0; e < kUnit; ++e) next_w[i * kUnit + e] = copied ? w[offset + e * o.w_map] : T{};
      }
    }
    __device__ __forceinline__ void put(Stage& stage) const {
      if constexpr (!kCopies) {
#pragma unroll
        for (int i = 0; i < kLoads; ++i) stage.pixels[step_of(i)][pixel_of(i)] = Acc(E::load(next_x[i]));
#pragma unroll
        for (int i = 0; i < kUnitLoads; ++i) {
          if (!has_unit(i)) continue;
#pragma unroll
          for (int e = 0; e < kUnit; ++e)
            stage.maps[w_step_of(i)][w_map_of(i) + e] = Acc(E::load(next_w[i * kUnit + e]));
        }
      }
    }
  };

  static __device__ __forceinline__ void multiply(const Stage& stage, int map, int pixel, Acc (&acc)[TM][TN]) {
#pragma unroll
    for (int k = 0; k < kDepth; ++k) {
      Acc a[TM], b[TN];
#pragma unroll
      for (int i = 0; i < TM; i += 4) read_four(&stage.maps[k][map + Tile::map_step(i)], &a[i]);
#pragma unroll
      for (int j = 0; j < TN; j += 4) read_four(&stage.pixels[k][pixel + Tile::pixel_step(j)], &b[j]);
#pragma unroll
      for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) acc[i][j] = fused(a[i], b[j], acc[i][j]);
    }
  }

  // Four neighbours of a row of results, map and place those of the first.
  template <class O, class Epilogue, class I>
  static __device__ __forceinline__ void store(const O& o, const Epilogue& epilogue, const Phase<I>& phase, I group, I groups,
                                               I map, I place, I places, const Acc (&values)[4]) {
    if (map >= o.maps || place >= places) return;
    const auto position = [&](I number, Pixel<I>& p) {  // of the result; false: beyond it
      p = phase.at(number);
      bool result = number < places;
#pragma unroll
      for (int a = 0; a < 3; ++a) {
        p.at[a] = p.at[a] * phase.axis[a].stride + phase.axis[a].remainder;
        result = result && p.at[a] < o.axis[a].out;
      }
      return result;
    };
    const auto in_image = [&](const Pixel<I>& p) {
      return (int64_t(p.at[0]) * o.axis[1].out + p.at[1]) * o.axis[2].out + p.at[2];
    };
    Pixel<I> p;
    if constexpr (kPixelRows) {
      if (!position(place, p)) return;
      store_conv<true, kWide>(o, epilogue, I(0), group, groups, I(p.image * o.pixels() + in_image(p)), map, values);
    } else if constexpr (kWide) {
      position(place, p);
      epilogue.template apply<4>(epilogue.row((int64_t(p.image) * groups + group) * o.maps + map), in_image(p), values);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const Acc one[1] = {values[i]};
        if (position(place + i, p))
          epilogue.template apply<1>(epilogue.row((int64_t(p.image) * groups + group) * o.maps + map), in_image(p), one);
      }
    }
  }

  // Blocks: x: part `blockIdx.x % kParts` of tile `blockIdx.x / kParts`; y: group. Split::kSum: a block for the threads'
  // groups of four results `blockIdx.x % kGroups` of tile `blockIdx.x / kGroups`.
  template <class O, class Epilogue>
  static __device__ void run(const O& o, const Epilogue& epilogue, void* workspace) {
    using I = typename O::Index;
    extern __shared__ __align__(16) char shared[];
    const int thread = int(threadIdx.x), own_map = Tile::map(), own_pixel = Tile::pixel();
    const I group = blockIdx.y, groups = gridDim.y;
    constexpr uint32_t tile_parts = kSplit == Split::kSum ? kGroups : kParts;
    const uint32_t tile_index = blockIdx.x / tile_parts, part = blockIdx.x - tile_index * tile_parts;
    const uint32_t map_tiles = uint32_t(tiles_of<I>(o.maps, Tile::kMaps));
    // Phases of all axes, one after the other, have as many tiles each.
    Phase<I> phase;
    I column, number = 0, remainders[3] = {0, 0, 0};
    const uint32_t column_tile = tile_index / map_tiles;
    const I first_map = I(tile_index - column_tile * map_tiles) * Tile::kMaps;
    if constexpr (kTransposed) {
      I all = o.images;
#pragma unroll
      for (int a = 0; a < 3; ++a) all *= (o.axis[a].out + o.axis[a].stride - 1) / o.axis[a].stride;
      const I tiles = tiles_of<I>(all, Tile::kPixels);
      number = divide(I(column_tile), tiles);
      column = (I(column_tile) - number * tiles) * Tile::kPixels;
#pragma unroll
      for (int a = 2; a >= 0; --a) {
        const I next = divide(number, o.axis[a].stride);
        remainders[a] = number - next * o.axis[a].stride;
        number = next;
      }
    } else {
      column = I(column_tile) * Tile::kPixels;
    }
#pragma unroll
    for (int a = 0; a < 3; ++a) phase.axis[a] = phase_axis<kTransposed>(o.axis[a], remainders[a]);
    const I places = o.images * phase.places();
    const auto store_group = [&](int g, const Acc(&values)[4]) {
      const int i = kPixelRows ? g / TN * 4 : g / (TN / 4), j = kPixelRows ? g % TN : g % (TN / 4) * 4;
      // Of a group's first element; i and j depend on g, which is no constant in the sum of parts.
      store<O, Epilogue, I>(o, epilogue, phase, group, groups, I(first_map + own_map + Tile::map_step(i)),
                            I(column + own_pixel + Tile::pixel_step(j)), places, values);
    };
    constexpr int64_t kTileVectors = int64_t(Tile::kMaps) * Tile::kPixels * sizeof(Acc) / 16;
    auto* parts_at = static_cast<AccVector<Acc>*>(workspace) +
                     (int64_t(blockIdx.y) * (gridDim.x / tile_parts) + tile_index) * kParts * kTileVectors;
    if constexpr (kSplit == Split::kSum) {
      constexpr int kGroupVectors = kThreads * 4 / AccVector<Acc>::kLength;
      sum_parts<kThreads, kParts, 1, 4, Acc>(parts_at + part * kGroupVectors, kTileVectors, thread,
                                             [&](int, const Acc(&values)[4]) { store_group(int(part), values); });
    } else {
      Acc acc[TM][TN] = {};
      const I chunks = (o.channels + kDepth - 1) / kDepth, taps = phase.taps();
      const I all = kFlat ? (taps * o.channels + kDepth - 1) / kDepth : taps * chunks;
      const I share = (all + kParts - 1) / kParts, first = kSplit == Split::kNone ? I(0) : min(all, I(part) * share);
      const int steps = int(kSplit == Split::kNone ? all : min(share, all - first));
      Loader<O> loader(o, phase, o.x + group * o.channels * o.x_channel,
                       o.w + (kTransposed ? group * o.channels * o.w_channel + first_map * o.w_map
                                          : (group * o.maps + first_map) * o.w_map),
                       I(o.maps - first_map));
      loader.find(column, I(places - column));
      auto* stages = reinterpret_cast<Stage*>(shared);
      int filled = 0, to = 0, from = 0;  // steps loaded; the stages that are next
      const auto next_stage = [](int stage) { return stage + 1 == kStages ? 0 : stage + 1; };
      const auto fetch = [&] {
        if (filled < steps) {
          if (filled > 0) loader.advance();
          loader.fetch(stages[to]);
        }
        commit_copies();
      };
      const auto put = [&] {
        if (filled < steps) loader.put(stages[to]);
        ++filled;
        to = next_stage(to);
      };
      if (steps > 0) loader.begin(first, chunks);
#pragma unroll
      for (int stage = 0; stage < kStages - 1; ++stage) {
        fetch();
        put();
      }
      for (int step = 0; step < steps; ++step) {
        wait_for_copies<kStages - 2>();
        __syncthreads();
        fetch();
        multiply(stages[from], own_map, own_pixel, acc);
        put();
        from = next_stage(from);
      }
      wait_for_copies<0>();
      Acc sums[kGroups][4];
#pragma unroll
      for (int g = 0; g < kGroups; ++g)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          if constexpr (kPixelRows)
            sums[g][e] = acc[g / TN * 4 + e][g % TN];
          else
            sums[g][e] = acc[g / (TN / 4)][g % (TN / 4) * 4 + e];
        }
      if constexpr (kSplit == Split::kCluster) __syncthreads();  // the stages become the parts' place
      finish_groups<kThreads, kSplit, kParts>(sums, thread, shared, parts_at + part * kTileVectors, store_group);
    }
  }
};

// Weights of any strides as [tap, channel, map], of `channels` and `maps` in all. A block of 256 threads turns a tile of taps
// of neighbouring channels by maps through shared memory. Blocks: x: tiles of taps of all channels, y: of maps.
template <class T, class O>
__device__ __forceinline__ void pack_maps_last(const O& o, typename O::Index channels, typename O::Index maps, T* packed) {
  using I = typename O::Index;
  constexpr int kTile = 32, kStep = 256 / kTile;
  __shared__ T tile[kTile][kTile + 1];
  const I taps = o.axis[0].kernel * o.axis[1].kernel * o.axis[2].kernel;
  const I first = I(blockIdx.x) * kTile, first_map = I(blockIdx.y) * kTile;
  const int lane = int(threadIdx.x) % kTile, row = int(threadIdx.x) / kTile;
  const I from = first + lane, channel = divide(from, taps), tap = from - channel * taps;
  const I rows = divide(tap, o.axis[2].kernel), planes = divide(rows, o.axis[1].kernel);
  const T* w = o.w + (channel * o.w_channel + planes * o.w_tap[0] + (rows - planes * o.axis[1].kernel) * o.w_tap[1] +
                      (tap - rows * o.axis[2].kernel) * o.w_tap[2]);
#pragma unroll
  for (int i = row; i < kTile; i += kStep)
    if (channel < channels && first_map + i < maps) tile[lane][i] = w[(first_map + i) * o.w_map];
  __syncthreads();
#pragma unroll
  for (int i = row; i < kTile; i += kStep) {
    const I to = first + i, to_channel = divide(to, taps), to_tap = to - to_channel * taps;
    if (to_channel < channels && first_map + lane < maps)
      packed[(to_tap * channels + to_channel) * maps + first_map + lane] = tile[i][lane];
  }
}

}  // namespace aicf
