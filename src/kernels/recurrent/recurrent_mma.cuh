// Recurrent layers of halves on matrix units: as in recurrent.cuh one persistent launch, whose clusters walk a few
// rows of the batch each, and whose blocks send one another what they have made. A block owns kGroups groups of
// units. kSlices warps multiply a group's weights by the rows of the batch with mma.sync.m16n8k16, each over its
// part of the depth; their sums are added through shared memory in the order of the slices. The warps then share
// the group's cells. The first weights of a warp lie in registers, the next in shared memory, and the last are
// read from global memory in every step, one chunk of the depth ahead of its products.
//
// Over a chunk of 32 of the depth, lane (g, t) = (lane / 4, lane % 4) holds elements 8t … 8t+7 of its rows as
// one vector of 16 bytes, of weights as of the batch. Two of its words are a lane's operands of one mma, the
// others those of a second one: the products are those of the instruction's own order of k, permuted in both
// operands alike.
//
// A sum over the depth is that of the slices in order. A slice adds its chunks: those of global memory, of
// registers, of shared memory. Each op of the cell rounds.
#pragma once

#include "matmul/cuda/mma.cuh"
#include "recurrent/recurrent.cuh"

namespace aicf {

// Halves of two rows of the batch in a word, the first one low. Sums, differences and products round as the
// same in f32, rounded to the half.
template <class T>
__device__ __forceinline__ uint32_t pair_of(float low, float high);
template <>
__device__ __forceinline__ uint32_t pair_of<f16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <>
__device__ __forceinline__ uint32_t pair_of<bf16>(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
template <class T>
__device__ __forceinline__ uint32_t pair_of(T low, T high) {
  return uint32_t(low.bits) | uint32_t(high.bits) << 16;
}
template <class T>
__device__ __forceinline__ T low_of(uint32_t pair) {
  return T{uint16_t(pair)};
}
template <class T>
__device__ __forceinline__ T high_of(uint32_t pair) {
  return T{uint16_t(pair >> 16)};
}
#define AICF_PAIRS(name, type, instruction)                                    \
  __device__ __forceinline__ uint32_t name(type, uint32_t a, uint32_t b) {     \
    uint32_t result;                                                           \
    asm(instruction " %0, %1, %2;" : "=r"(result) : "r"(a), "r"(b));           \
    return result;                                                             \
  }
AICF_PAIRS(add_pairs, f16, "add.rn.f16x2")
AICF_PAIRS(add_pairs, bf16, "add.rn.bf16x2")
AICF_PAIRS(subtract_pairs, f16, "sub.rn.f16x2")
AICF_PAIRS(subtract_pairs, bf16, "sub.rn.bf16x2")
AICF_PAIRS(multiply_pairs, f16, "mul.rn.f16x2")
AICF_PAIRS(multiply_pairs, bf16, "mul.rn.bf16x2")
#undef AICF_PAIRS

template <class T>
__device__ __forceinline__ uint32_t sigmoid_pair(uint32_t x) {
  return pair_of<T>(tile::sigmoid_half(to_float(low_of<T>(x))), tile::sigmoid_half(to_float(high_of<T>(x))));
}
template <class T>
__device__ __forceinline__ uint32_t tanh_pair(uint32_t x) {
  return pair_of<T>(tanh_half(to_float(low_of<T>(x))), tanh_half(to_float(high_of<T>(x))));
}
template <class T>
__device__ __forceinline__ uint32_t relu_pair(uint32_t x) {
  const auto relu = [](float v) { return v > 0 || v != v ? v : 0.0f; };
  return pair_of<T>(relu(to_float(low_of<T>(x))), relu(to_float(high_of<T>(x))));
}

// A group: kUnits units, in eights, with all their gates. Its rows of weights fill tiles of 16 so that a lane's
// sums have all gates of its units. A place is an upper or lower half of a tile, 8 rows: one gate of one eight.
template <int kCell>
struct UnitGroup {
  static constexpr int kGates = gate_count(kCell), kEights = kCell == kLstm ? 1 : 2, kUnits = 8 * kEights;
  static constexpr int kPlaces = kGates * kEights, kTiles = kPlaces / 2;
  static __device__ constexpr int place(int gate, int eight) {
    return kCell == kLstm ? gate : kCell == kGru ? (gate == 2 ? 2 + eight : eight * 4 + gate) : eight;
  }
  static __device__ constexpr int gate_of(int place) {
    return kCell == kLstm ? place : kCell == kGru ? (place < 2 ? place : place < 4 ? 2 : place - 4) : 0;
  }
  static __device__ constexpr int eight_of(int place) {
    return kCell == kLstm ? 0 : kCell == kGru ? (place < 2 ? 0 : place < 4 ? place - 2 : 1) : place;
  }
};

// 8 elements from `k` on of a row of kHidden, 0 outside; pieces of kWidth elements are aligned, and neighbours
// are `stride` apart if kWidth is 1. The compiler leaves these loads where they stand: those of every step must
// not become registers that live as long as the launch.
template <int kWidth, int kHidden, class T>
__device__ __forceinline__ uint4 load_weights(const T* row, int k, int64_t stride, bool is_there) {
  uint32_t w[4] = {};
  if constexpr (kWidth == 8) {
    asm volatile(
        "{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\nmov.b32 %0, 0;\nmov.b32 %1, 0;\nmov.b32 %2, 0;\nmov.b32 %3, 0;\n"
        "@p ld.global.L1::no_allocate.v4.b32 {%0, %1, %2, %3}, [%4];\n}"
        : "=&r"(w[0]), "=&r"(w[1]), "=&r"(w[2]), "=&r"(w[3])
        : "l"(row + k), "r"(int(is_there && k < kHidden))
        : "memory");
  } else if (!is_there) {
    return make_uint4(0, 0, 0, 0);
  } else if constexpr (kWidth == 4) {
#pragma unroll
    for (int i = 0; i < 2; ++i)
      if (k + 4 * i < kHidden)
        asm volatile("ld.global.v2.b32 {%0, %1}, [%2];"
                     : "=r"(w[2 * i]), "=r"(w[2 * i + 1])
                     : "l"(row + k + 4 * i)
                     : "memory");
  } else if constexpr (kWidth == 2) {
#pragma unroll
    for (int i = 0; i < 4; ++i)
      if (k + 2 * i < kHidden)
        asm volatile("ld.global.b32 %0, [%1];" : "=r"(w[i]) : "l"(row + k + 2 * i) : "memory");
  } else {
    uint16_t e[8] = {};
#pragma unroll
    for (int i = 0; i < 8; ++i)
      if (k + i < kHidden)
        asm volatile("ld.global.b16 %0, [%1];" : "=h"(e[i]) : "l"(row + (k + i) * stride) : "memory");
#pragma unroll
    for (int i = 0; i < 4; ++i) w[i] = uint32_t(e[2 * i]) | uint32_t(e[2 * i + 1]) << 16;
  }
  return make_uint4(w[0], w[1], w[2], w[3]);
}

template <class T, int kCell, int kHidden, int kCluster, int kGroups, int kSlices, int kRows, int kInRegisters,
          int kInShared, int kWidth, bool kBias, bool kKeep, bool kEarlyWeights>
struct RecurrentMmaLayer {
  using Group = UnitGroup<kCell>;
  static constexpr int kGates = Group::kGates, kPlaces = Group::kPlaces, kTiles = Group::kTiles;
  static constexpr int kWarps = kGroups * kSlices, kColumns = kCluster * kGroups * Group::kUnits;
  static constexpr int kChunks = (kHidden + 31) / 32, kOwn = (kChunks + kSlices - 1) / kSlices;
  static constexpr int kStreamed = kOwn - kInRegisters - kInShared;
  // Eights of units by eights of rows, whose cells one warp computes: slice i % kSlices the i-th.
  static constexpr int kRowTiles = kRows / 8, kItems = kRowTiles * Group::kEights;
  static constexpr int kOwnItems = (kItems + kSlices - 1) / kSlices;
  // Tiles of rows that are multiplied side by side, so that a sum does not wait for its last product.
  static constexpr int kSide = kTiles == 1 ? 4 : 2;
  // Neighbouring rows are an odd multiple of 64 bytes apart: the vectors of 8 lanes meet no bank twice.
  static constexpr int kRowVectors = 4 * (((kColumns + 31) / 32 > kChunks ? (kColumns + 31) / 32 : kChunks) | 1);
  using Barriers = StepBarriers<2 * kRows * kColumns, kCluster>;

  struct Shared {
    uint4 vectors[2][kRows][kRowVectors];
    uint4 patches[kWarps][kOwnItems][8];  // of an item, 8 units of each row
    float2 partial[kSlices > 1 ? kWarps : 1][kSlices > 1 ? kItems : 1][kGates][32];
    uint4 weights[kInShared > 0 ? kWarps : 1][kInShared > 0 ? kInShared : 1][kPlaces][32];
    typename Barriers::Shared barriers;
  };

  // What a lane keeps of an item: one unit of two neighbouring rows.
  struct Item {
    uint32_t h, c, bias[kGates];
    T next[2][kGates];
  };

  const RecurrentOperands<T>& o;
  Shared& shared;
  RecurrentPlace place;
  int lane, group, slice;
  int global_lane;  // the lane, of which addresses in global memory are made
  uint4 held[kInRegisters > 0 ? kInRegisters : 1][kPlaces], ahead[kPlaces];
  Item items[kOwnItems];

  __device__ __forceinline__ RecurrentMmaLayer(const RecurrentOperands<T>& operands, Shared& memory, uint32_t block)
      : o(operands), shared(memory), place(block, kCluster, operands.groups, kRows) {
    lane = global_lane = int(threadIdx.x) % 32;
    group = int(threadIdx.x) / 32 / kSlices, slice = int(threadIdx.x) / 32 % kSlices;
  }
  __device__ __forceinline__ int warp() const { return group * kSlices + slice; }
  __device__ __forceinline__ int first_unit() const { return (place.rank * kGroups + group) * Group::kUnits; }
  __device__ __forceinline__ int item_of(int own) const { return own * kSlices + slice; }
  __device__ __forceinline__ int unit_of(int item) const {
    return first_unit() + item % Group::kEights * 8 + global_lane / 4;
  }
  __device__ __forceinline__ int row_of(int item) const { return item / Group::kEights * 8 + global_lane % 4 * 2; }
  __device__ __forceinline__ bool is_inside(int item, int row) const {
    return item < kItems && unit_of(item) < kHidden && place.first_row + row_of(item) + row < o.batch;
  }
  __device__ __forceinline__ int64_t time(int64_t step) const {
    return place.direction == 1 || o.reverse ? o.length - 1 - step : step;
  }

  // The warp's own-th chunk of the depth, a vector for each place.
  __device__ __forceinline__ void load(int own, uint4 (&to)[kPlaces]) const {
    const int chunk = slice * kOwn + own, k = chunk * 32 + global_lane % 4 * 8;
#pragma unroll
    for (int p = 0; p < kPlaces; ++p) {
      const int unit = first_unit() + Group::eight_of(p) * 8 + global_lane / 4;
      to[p] = load_weights<kWidth, kHidden>(&o.w(place.direction, Group::gate_of(p) * kHidden + unit, 0), k, o.w.third,
                                            unit < kHidden);
    }
  }
  // In the order of an mma's registers: of a tile's two places the operands of the first mma, then of the second.
  static __device__ __forceinline__ void order(const uint4 (&loaded)[kPlaces], uint4 (&w)[kPlaces]) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const uint4 upper = loaded[2 * i], lower = loaded[2 * i + 1];
      w[2 * i] = make_uint4(upper.x, lower.x, upper.y, lower.y);
      w[2 * i + 1] = make_uint4(upper.z, lower.z, upper.w, lower.w);
    }
  }
  __device__ __forceinline__ void load_kept() {
    uint4 loaded[kPlaces];
#pragma unroll
    for (int i = 0; i < kInRegisters; ++i) {
      load(i, loaded);
      order(loaded, held[i]);
    }
#pragma unroll 1
    for (int i = 0; i < kInShared; ++i) {
      uint4 w[kPlaces];
      load(kInRegisters + i, loaded);
      order(loaded, w);
#pragma unroll
      for (int p = 0; p < kPlaces; ++p) shared.weights[warp()][i][p][lane] = w[p];
    }
    if constexpr (kStreamed > 0) load(kInRegisters + kInShared, ahead);
  }

  // Of rows outside the batch and of units that there are not, zeros.
  __device__ __forceinline__ void load_state() {
    for (int i = int(threadIdx.x); i < 2 * kRows * kRowVectors; i += int(blockDim.x))
      (&shared.vectors[0][0][0])[i] = make_uint4(0, 0, 0, 0);
    if (threadIdx.x == 0) Barriers{shared.barriers}.prepare();
    __syncthreads();
    for (int i = int(threadIdx.x); i < kRows * kHidden; i += int(blockDim.x)) {
      const int row = i / kHidden, k = i % kHidden;
      if (place.first_row + row < o.batch)
        reinterpret_cast<T*>(shared.vectors[0][row])[k] = o.h(place.direction, place.first_row + row, k);
    }
    const T zero = from_float<T>(0.0f);
#pragma unroll
    for (int m = 0; m < kOwnItems; ++m) {
      const int i = item_of(m), unit = unit_of(i);
      const int64_t row = place.first_row + row_of(i);
      const auto both = [&](const Steps<const T>& from) {
        return pair_of(is_inside(i, 0) ? from(place.direction, row, unit) : zero,
                       is_inside(i, 1) ? from(place.direction, row + 1, unit) : zero);
      };
      items[m].h = both(o.h);
      if constexpr (kCell == kLstm) items[m].c = both(o.c);
#pragma unroll
      for (int g = 0; g < kGates; ++g)
        if constexpr (kBias) {
          const T bias = is_inside(i, 0) ? o.bias(place.direction, g * kHidden + unit, 0) : zero;
          items[m].bias[g] = pair_of(bias, bias);
        }
    }
  }
  // The inputs' part of the gates.
  __device__ __forceinline__ void ask(int64_t step) {
    const T zero = from_float<T>(0.0f);
    const int64_t t = time(step);
#pragma unroll
    for (int m = 0; m < kOwnItems; ++m) {
      const int i = item_of(m);
      const int64_t row = place.first_row + row_of(i), column = int64_t(place.direction) * kGates * kHidden + unit_of(i);
      const bool first = step < o.length && is_inside(i, 0), second = step < o.length && is_inside(i, 1);
#pragma unroll
      for (int g = 0; g < kGates; ++g)
        items[m].next[0][g] = first ? o.x(t, row, column + g * kHidden) : zero,
        items[m].next[1][g] = second ? o.x(t, row + 1, column + g * kHidden) : zero;
    }
  }

  using Sums = float[kTiles][kRowTiles][4];
  __device__ __forceinline__ void multiply_chunk(int64_t step, int own, const uint4 (&w)[kPlaces], Sums& sums) const {
    const int chunk = slice * kOwn + own;
    if (kOwn * kSlices > kChunks && chunk >= kChunks) return;
#pragma unroll
    for (int first = 0; first < kRowTiles; first += kSide) {
      uint4 x[kSide];
#pragma unroll
      for (int j = 0; j < kSide; ++j)
        if (first + j < kRowTiles)
          x[j] = shared.vectors[step & 1][(first + j) * 8 + lane / 4][chunk * 4 + lane % 4];
#pragma unroll
      for (int half = 0; half < 2; ++half)
#pragma unroll
        for (int j = 0; j < kSide; ++j)
#pragma unroll
          for (int i = 0; i < kTiles; ++i)
            if (first + j < kRowTiles) {
              const uint4& v = w[2 * i + half];
              const uint32_t a[4] = {v.x, v.y, v.z, v.w};
              mma_16x8x16(T{}, sums[i][first + j], a, half ? x[j].z : x[j].x, half ? x[j].w : x[j].y);
            }
    }
  }
  __device__ __forceinline__ void multiply(int64_t step, Sums& sums) {
#pragma unroll
    for (int i = 0; i < kTiles; ++i)
#pragma unroll
      for (int j = 0; j < kRowTiles; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e) sums[i][j][e] = 0;
    if constexpr (kStreamed > 0) {
      constexpr int kFirst = kInRegisters + kInShared;
#pragma unroll 1
      for (int i = 0; i < kStreamed; ++i) {
        uint4 now[kPlaces];
        order(ahead, now);
        load(kFirst + (i + 1 < kStreamed ? i + 1 : 0), ahead);  // the first one for the next step
        multiply_chunk(step, kFirst + i, now, sums);
      }
    }
#pragma unroll
    for (int i = 0; i < kInRegisters; ++i) multiply_chunk(step, i, held[i], sums);
#pragma unroll 2
    for (int i = 0; i < kInShared; ++i) {
      uint4 w[kPlaces];
#pragma unroll
      for (int p = 0; p < kPlaces; ++p) w[p] = shared.weights[warp()][i][p][lane];
      multiply_chunk(step, kInRegisters + i, w, sums);
    }
  }

  static __device__ __forceinline__ float2 of_place(const Sums& sums, int row_tile, int place) {
    return make_float2(sums[place / 2][row_tile][place % 2 * 2], sums[place / 2][row_tile][place % 2 * 2 + 1]);
  }
  // The sums over the whole depth, of all gates of the warp's own items, rounded.
  __device__ __forceinline__ void reduce(const Sums& sums, uint32_t (&result)[kOwnItems][kGates]) const {
    if constexpr (kSlices == 1) {
#pragma unroll
      for (int i = 0; i < kItems; ++i)
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          const float2 sum = of_place(sums, i / Group::kEights, Group::place(g, i % Group::kEights));
          result[i][g] = pair_of<T>(sum.x, sum.y);
        }
    } else {
#pragma unroll
      for (int i = 0; i < kItems; ++i)
#pragma unroll
        for (int g = 0; g < kGates; ++g)
          shared.partial[warp()][i][g][lane] =
              of_place(sums, i / Group::kEights, Group::place(g, i % Group::kEights));
      asm volatile("bar.sync %0, %1;" ::"r"(1 + group), "n"(32 * kSlices) : "memory");
#pragma unroll
      for (int m = 0; m < kOwnItems; ++m)
#pragma unroll
        for (int g = 0; g < kGates; ++g) {
          float2 sum = make_float2(0, 0);
          if (item_of(m) < kItems) {
            sum = shared.partial[group * kSlices][item_of(m)][g][lane];
#pragma unroll
            for (int s = 1; s < kSlices; ++s) {
              const float2 more = shared.partial[group * kSlices + s][item_of(m)][g][lane];
              sum.x += more.x, sum.y += more.y;
            }
          }
          result[m][g] = pair_of<T>(sum.x, sum.y);
        }
    }
  }

  // The new state of an item, and what its gradient will read.
  static __device__ __forceinline__ void compute_cell(Item& item, const uint32_t (&given)[kGates],
                                                      uint32_t (&own)[kGates], uint32_t (&kept)[4]) {
    const auto add = [](uint32_t a, uint32_t b) { return add_pairs(T{}, a, b); };
    const auto multiply = [](uint32_t a, uint32_t b) { return multiply_pairs(T{}, a, b); };
    if constexpr (kBias) {
#pragma unroll
      for (int g = 0; g < kGates; ++g) own[g] = add(own[g], item.bias[g]);
    }
    if constexpr (kCell == kLstm) {
#pragma unroll
      for (int g = 0; g < 4; ++g) {
        const uint32_t sum = add(given[g], own[g]);
        kept[g] = g == 2 ? tanh_pair<T>(sum) : sigmoid_pair<T>(sum);
      }
      item.c = add(multiply(kept[1], item.c), multiply(kept[0], kept[2]));
      item.h = multiply(kept[3], tanh_pair<T>(item.c));
    } else if constexpr (kCell == kGru) {
      kept[0] = sigmoid_pair<T>(add(given[0], own[0]));
      kept[1] = sigmoid_pair<T>(add(given[1], own[1]));
      kept[3] = own[2];
      kept[2] = tanh_pair<T>(add(given[2], multiply(kept[0], own[2])));
      item.h = add(kept[2], multiply(kept[1], subtract_pairs(T{}, item.h, kept[2])));
    } else {
      const uint32_t sum = add(given[0], own[0]);
      item.h = kCell == kTanh ? tanh_pair<T>(sum) : relu_pair<T>(sum);
    }
  }

  // The unit of both rows, in a block that walks alone.
  __device__ __forceinline__ void keep_state(int64_t step, int m) const {
    const int i = item_of(m), row = i / Group::kEights * 8 + lane % 4 * 2;
    if (i >= kItems) return;
    T* to = reinterpret_cast<T*>(shared.vectors[step & 1][row]) + first_unit() + i % Group::kEights * 8 + lane / 4;
    to[0] = low_of<T>(items[m].h), to[8 * kRowVectors] = high_of<T>(items[m].h);
  }
  // Vectors of 8 units of a row, to all blocks.
  __device__ __forceinline__ void send(int64_t step) const {
    static_assert(kCluster > 1, "a store that a barrier counts needs a cluster");
    const uint32_t barrier = Barriers{shared.barriers}.of_step(step);
#pragma unroll
    for (int m = 0; m < kOwnItems; ++m) {
      const int i = item_of(m), row = i / Group::kEights * 8 + lane % 8;
      if (i >= kItems) break;
      const uint4 v = shared.patches[warp()][m][lane % 8];
      const uint32_t to =
          Barriers::address(&shared.vectors[step & 1][row][first_unit() / 8 + i % Group::kEights]);
#pragma unroll
      for (int first = 0; first < kCluster; first += 4) {
        const int other = first + lane / 8, block = (other + place.rank) % kCluster;
        if (other < kCluster)
          asm volatile(
              "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                  in_block(to, block)),
              "r"(v.x), "r"(v.y), "r"(v.z), "r"(v.w), "r"(in_block(barrier, block))
              : "memory");
      }
    }
  }
  static __device__ __forceinline__ void store_pair(const Steps<T>& to, int64_t t, int64_t row, int64_t column,
                                                    uint32_t pair, bool first, bool second) {
    if (first) to(t, row, column) = low_of<T>(pair);
    if (second) to(t, row + 1, column) = high_of<T>(pair);
  }
  __device__ __forceinline__ void store_state(int64_t step) const {
#pragma unroll
    for (int m = 0; m < kOwnItems; ++m) {
      const int i = item_of(m);
      const int64_t row = place.first_row + row_of(i), column = int64_t(place.direction) * kHidden + unit_of(i);
      store_pair(o.y, time(step), row, column, items[m].h, is_inside(i, 0), is_inside(i, 1));
      if constexpr (kCell == kLstm)
        store_pair(o.cells, time(step), row, column, items[m].c, is_inside(i, 0), is_inside(i, 1));
    }
  }
  __device__ __forceinline__ void store_kept(int64_t step, int i, const uint32_t (&kept)[4]) const {
    const int64_t row = place.first_row + row_of(i), column = int64_t(place.direction) * 4 * kHidden + unit_of(i);
#pragma unroll
    for (int k = 0; k < 4; ++k)
      store_pair(o.gates, time(step), row, column + k * kHidden, kept[k], is_inside(i, 0), is_inside(i, 1));
  }

  // The partial sums of a step are not overwritten before they are read: a warp multiplies again when all warps
  // that computed cells have sent what they made of them.
  __device__ __forceinline__ void walk() {
    const Barriers barriers{shared.barriers};
    ask(0);
    for (int64_t step = 0; step < o.length; ++step) {
      // Unknown to the compiler, which would else keep the addresses of all steps in registers.
      asm volatile("" : "+r"(global_lane));
      uint32_t given[kOwnItems][kGates], own[kOwnItems][kGates];
#pragma unroll
      for (int m = 0; m < kOwnItems; ++m)
#pragma unroll
        for (int g = 0; g < kGates; ++g) given[m][g] = pair_of(items[m].next[0][g], items[m].next[1][g]);
      ask(step + 1);
      if (step > 0) barriers.wait(step);
      __syncwarp();
      Sums sums;
      multiply(step, sums);
      reduce(sums, own);
#pragma unroll
      for (int m = 0; m < kOwnItems; ++m) {
        uint32_t kept[4];
        compute_cell(items[m], given[m], own[m], kept);
        if constexpr (kKeep && kept_count(kCell) > 0) store_kept(step, item_of(m), kept);
        if constexpr (kCluster == 1) {
          keep_state(step + 1, m);
        } else {
          T* patch = reinterpret_cast<T*>(shared.patches[warp()][m]) + lane % 4 * 16 + lane / 4;
          patch[0] = low_of<T>(items[m].h), patch[8] = high_of<T>(items[m].h);
        }
      }
      if constexpr (kCluster > 1) {
        __syncwarp();
        if (step + 1 < o.length) send(step + 1);
      }
      store_state(step);
    }
  }

  static __device__ void run(const RecurrentOperands<T>& operands, uint32_t block) {
    extern __shared__ __align__(16) char memory[];
    RecurrentMmaLayer layer(operands, *reinterpret_cast<Shared*>(memory), block);
    if constexpr (kEarlyWeights) layer.load_kept();
    wait_for_inputs();
    launch_dependents();
    if constexpr (!kEarlyWeights) layer.load_kept();
    layer.load_state();
    Barriers{layer.shared.barriers}.join();
    layer.walk();
  }
};

}  // namespace aicf
