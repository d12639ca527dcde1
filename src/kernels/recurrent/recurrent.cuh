// Recurrent layers and their gradients, one persistent launch over all steps. A cluster of blocks walks a few
// rows of the batch in one direction: every warp owns some units and holds their weights, in registers as far
// as they fit, else in shared memory. After a step each lane sends what its unit has made to the shared
// memory of all blocks, where a barrier counts the bytes; warps wait for these alone. A block that walks alone
// stores to its own memory and waits for its warps. A warp sends only what it made of numbers that it has
// read, so two buffers in turn are never overwritten too early.
//
// Teams of 1 to 32 lanes share a warp: a team owns kUnits units, and its lanes split the depth. A sum over the
// depth is one chain of each lane over its elements in ascending order, added in a fixed tree: it depends on the
// depth only. Halves are multiplied exactly, summed in f32, and each op of the cell rounds.
#pragma once

#include "cluster_sends.cuh"
#include "tile/cuda/tile_activations.cuh"

namespace aicf {

enum RecurrentCell { kLstm, kGru, kTanh, kRelu };
__device__ constexpr int gate_count(int cell) { return cell == kLstm ? 4 : cell == kGru ? 3 : 1; }
__device__ constexpr int kept_count(int cell) { return cell == kLstm || cell == kGru ? 4 : 0; }

// A window of three axes, addressed by strides.
template <class T>
struct Steps {
  T* at;
  int64_t first, second, third;
  __device__ __forceinline__ T& operator()(int64_t i, int64_t j, int64_t k) const {
    return at[i * first + j * second + k * third];
  }
  __device__ __forceinline__ float get(int64_t i, int64_t j, int64_t k) const {
    return to_float((*this)(i, j, k));
  }
};

template <class T>
__device__ __forceinline__ float rounded(float x) {
  return to_float(from_float<T>(x));
}

// As tile::sigmoid_half: relative error below 2^-18. Near 0 the first terms of its series, where 1 - 2 / (1 + e^2x)
// loses digits.
__device__ __forceinline__ float tanh_half(float x) {
  float e, r;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(e) : "f"(x * 2.88539008f));
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(r) : "f"(1.0f + e));
  const float x2 = x * x;
  const float series = __fmaf_rn(__fmaf_rn(__fmaf_rn(x2, -0.0539682540f, 0.133333333f), x2, -0.333333333f) * x2, x, x);
  return fabsf(x) < 0.3f ? series : __fmaf_rn(r, -2.0f, 1.0f);
}
// The gates' functions, rounded to T.
template <class T>
__device__ __forceinline__ float sigmoid_of(float x) {
  return rounded<T>(sizeof(T) == 2 ? tile::sigmoid_half(x) : tile::sigmoid(x));
}
template <class T>
__device__ __forceinline__ float tanh_of(float x) {
  return rounded<T>(sizeof(T) == 2 ? tanh_half(x) : tile::tanh(x));
}

// What is made of x stays behind the last wait: the compiler would else wait for a load where it is asked for.
__device__ __forceinline__ void keep_behind(float& x) { asm volatile("" : "+f"(x)); }
__device__ __forceinline__ void keep_behind(f16& x) { asm volatile("" : "+h"(x.bits)); }
__device__ __forceinline__ void keep_behind(bf16& x) { asm volatile("" : "+h"(x.bits)); }

// Among how many lanes a depth is split: each has at most 8 elements where a warp has lanes enough.
__device__ constexpr int lanes_of(int depth) {
  int lanes = 1;
  while (lanes < 32 && 8 * lanes < depth) lanes *= 2;
  return lanes;
}
// Neighbours of a depth that a lane loads at once: as many as pad it by at most a quarter more than 1 does.
__device__ constexpr int vector_of(int depth) {
  const auto padded = [&](int vec) {
    const int chunk = lanes_of(depth) * vec;
    return (depth + chunk - 1) / chunk * chunk;
  };
  int vec = 4;
  while (vec > 1 && 4 * padded(vec) > 5 * padded(1)) vec /= 2;
  return vec;
}
// A lane's elements of a depth: kVec neighbours of each chunk of kLanes kVec.
template <int kDepth>
struct DepthSplit {
  static constexpr int kLanes = lanes_of(kDepth), kTeams = 32 / kLanes, kVec = vector_of(kDepth);
  static constexpr int kChunk = kLanes * kVec, kChunks = (kDepth + kChunk - 1) / kChunk, kPadded = kChunk * kChunks;
};
template <int kVec>
struct alignas(4 * kVec) FloatVector {
  float values[kVec];
};
template <class T, int kVec>
struct alignas(sizeof(T) * kVec) ElementVector {
  T values[kVec];
};

// Two barriers in turn, each of which counts the kBytes that all blocks of a cluster send to this one in a
// step. A block alone has that of its threads.
template <int kBytes, int kCluster>
struct StepBarriers {
  struct Shared {
    alignas(8) uint64_t barriers[2];
  };
  Shared& shared;

  static __device__ __forceinline__ uint32_t address(const void* p) {
    return uint32_t(__cvta_generic_to_shared(p));
  }
  __device__ __forceinline__ uint32_t of_step(int64_t step) const {
    return address(&shared.barriers[step & 1]);
  }
  __device__ __forceinline__ void arm(int64_t step) const {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(of_step(step)), "r"(kBytes)
                 : "memory");
  }
  // By one thread of the block, before join().
  __device__ __forceinline__ void prepare() const {
    if constexpr (kCluster > 1) {
      for (int i = 0; i < 2; ++i)
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(of_step(i)) : "memory");
      asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
      for (int i = 0; i < 2; ++i) arm(i);
    }
  }
  // By all threads of the cluster, before the first step.
  __device__ void join() const {
    __syncthreads();
    if constexpr (kCluster > 1) {
      asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
      asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory");
    }
  }
  // Until what step - 1 sent is here.
  __device__ __forceinline__ void wait(int64_t step) const {
    if constexpr (kCluster == 1) {
      __syncthreads();
    } else {
      const uint32_t parity = uint32_t((step - 1) >> 1) & 1;
      uint32_t done;
      do {
        asm volatile(
            "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\n"
            "selp.u32 %0, 1, 0, p;\n}"
            : "=r"(done)
            : "r"(of_step(step)), "r"(parity)
            : "memory");
      } while (!done);
      if (threadIdx.x == 0) arm(step);
    }
  }
};

// The vectors of the step, one of each row of the batch, in all blocks of a cluster.
template <int kDepth, int kRows, int kCluster>
struct StepExchange {
  using Split = DepthSplit<kDepth>;
  using Barriers = StepBarriers<4 * kDepth * kRows, kCluster>;
  struct Shared {
    alignas(16) float vectors[2][kRows][Split::kPadded];
    typename Barriers::Shared barriers;
  };
  Shared& shared;

  __device__ __forceinline__ Barriers barriers() const { return {shared.barriers}; }
  // By all threads of the block, before the first step; buffer 0 may be filled after it and before join().
  __device__ void prepare() const {
    for (int i = int(threadIdx.x); i < 2 * kRows * Split::kPadded; i += int(blockDim.x))
      (&shared.vectors[0][0][0])[i] = 0;
    if (threadIdx.x == 0) barriers().prepare();
    __syncthreads();
  }
  __device__ __forceinline__ const float* vector(int64_t step, int row) const {
    return shared.vectors[step & 1][row];
  }
  // Element k of a row for `step`, to every kStride'th block from `first` on.
  template <int kStride>
  __device__ __forceinline__ void send(int64_t step, int row, int k, float value, int first) const {
    if constexpr (kCluster == 1) {  // where a store that a barrier counts is an illegal instruction
      if (first == 0) shared.vectors[step & 1][row][k] = value;
    } else {
      const uint32_t to = Barriers::address(&shared.vectors[step & 1][row][k]),
                     barrier = barriers().of_step(step);
#pragma unroll
      for (int i = 0; i < (kCluster + kStride - 1) / kStride; ++i) {
        const int block = first + i * kStride;
        if (block < kCluster)
          asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.f32 [%0], %1, [%2];" ::"r"(
                           in_block(to, block)),
                       "f"(value), "r"(in_block(barrier, block))
                       : "memory");
      }
    }
  }
};

// Each team's kProducts rows of weights times the vectors of kRows rows of the batch, the depth split over its
// lanes.
template <class T, int kProducts, int kDepth, int kRows, int kInRegisters>
struct WarpProduct {
  using Split = DepthSplit<kDepth>;
  static constexpr int kLanes = Split::kLanes, kVec = Split::kVec, kInShared = Split::kChunks - kInRegisters;
  using Elements = ElementVector<T, kVec>;
  static constexpr int kSharedElements = kProducts * kInShared * 32;  // of a warp
  float held[kProducts][kInRegisters > 0 ? kInRegisters : 1][kVec];
  Elements* shared;  // of the warp

  // fetch(product, k): the weight, 0 outside.
  template <class Fetch>
  __device__ __forceinline__ void take(int chunk, int lane, const Fetch& fetch) {
#pragma unroll
    for (int p = 0; p < kProducts; ++p) {
      Elements own;
#pragma unroll
      for (int v = 0; v < kVec; ++v) own.values[v] = fetch(p, (chunk * kLanes + lane % kLanes) * kVec + v);
      if (chunk < kInRegisters) {
#pragma unroll
        for (int v = 0; v < kVec; ++v) held[p][chunk < kInRegisters ? chunk : 0][v] = to_float(own.values[v]);
      } else {
        shared[(p * kInShared + chunk - kInRegisters) * 32 + lane] = own;
      }
    }
  }

  template <class Exchange>
  __device__ __forceinline__ void multiply(const Exchange& exchange, int64_t step, int lane,
                                           float (&sums)[kProducts][kRows]) const {
#pragma unroll
    for (int p = 0; p < kProducts; ++p)
#pragma unroll
      for (int r = 0; r < kRows; ++r) sums[p][r] = 0;
    // weight(p): of a product, over the chunk.
    const auto add = [&](int chunk, const auto& weight) {
      FloatVector<kVec> x[kRows];
#pragma unroll
      for (int r = 0; r < kRows; ++r)
        x[r] = reinterpret_cast<const FloatVector<kVec>*>(exchange.vector(step, r))[chunk * kLanes + lane % kLanes];
#pragma unroll
      for (int p = 0; p < kProducts; ++p) {
        const FloatVector<kVec> w = weight(p);
#pragma unroll
        for (int r = 0; r < kRows; ++r)
#pragma unroll
          for (int v = 0; v < kVec; ++v) sums[p][r] = __fmaf_rn(w.values[v], x[r].values[v], sums[p][r]);
      }
    };
#pragma unroll
    for (int chunk = 0; chunk < kInRegisters; ++chunk)
      add(chunk, [&](int p) {
        FloatVector<kVec> w;
#pragma unroll
        for (int v = 0; v < kVec; ++v) w.values[v] = held[p][chunk][v];
        return w;
      });
    // Not all at once: loads of many chunks would take registers that there are not.
#pragma unroll 2
    for (int i = 0; i < kInShared; ++i)
      add(kInRegisters + i, [&](int p) {
        const Elements own = shared[(p * kInShared + i) * 32 + lane];
        FloatVector<kVec> w;
#pragma unroll
        for (int v = 0; v < kVec; ++v) w.values[v] = to_float(own.values[v]);
        return w;
      });
  }
};

// Of two values one that a lane keeps, and one that it gives. Not an expression: the compiler would make of it one load
// from an array at an index that is not known, which is a comparison with every index.
__device__ __forceinline__ void choose(bool upper, float low, float high, float& kept, float& given) {
  asm("{\n.reg .pred p;\nsetp.ne.s32 p, %4, 0;\nselp.f32 %0, %3, %2, p;\nselp.f32 %1, %2, %3, p;\n}"
      : "=&f"(kept), "=f"(given)
      : "f"(low), "f"(high), "r"(int(upper)));
}

// The values of kLanes neighbours added by halves, lanes kLanes / 2 apart first; lane l of them gets the sum of value
// l / (kLanes / kCount).
template <int kLanes, int kCount>
__device__ __forceinline__ float sum_over_lanes(float (&values)[kCount], int lane) {
  int count = kCount;
#pragma unroll
  for (int apart = kLanes / 2; apart > 0; apart /= 2) {
    if (count > 1) {
      count /= 2;
      const bool upper = (lane & apart) != 0;
#pragma unroll
      for (int i = 0; i < kCount / 2; ++i)
        if (i < count) {
          float kept, given;
          choose(upper, values[i], values[i + count], kept, given);
          values[i] = kept + __shfl_xor_sync(0xffffffffu, given, apart);
        }
    } else {
      values[0] += __shfl_xor_sync(0xffffffffu, values[0], apart);
    }
  }
  return values[0];
}

__device__ constexpr int power_of_two(int least) {
  int power = 1;
  while (power < least) power *= 2;
  return power;
}

// Which unit of which row a lane works on.
template <int kHidden, int kLanes, int kWarps, int kUnits, int kRows>
struct LaneUnit {
  static constexpr int kOfWarp = 32 / kLanes * kUnits;
  static constexpr int kItems = power_of_two(kUnits * kRows), kReplicas = kLanes / kItems;
  static_assert(kItems <= kLanes, "a lane works on one unit of one row");
  int lane, warp, first_unit, unit, row, replica;  // first_unit: of the team
  bool active;
  __device__ __forceinline__ explicit LaneUnit(int rank) {
    lane = int(threadIdx.x) % 32, warp = int(threadIdx.x) / 32;
    first_unit = (rank * kWarps + warp) * kOfWarp + lane / kLanes * kUnits;
    const int item = lane % kLanes / kReplicas;
    unit = first_unit + item / kRows, row = item % kRows, replica = lane % kReplicas;
    active = item < kUnits * kRows && unit < kHidden;
  }
  // Whether no team of the warp has a unit.
  __device__ __forceinline__ bool is_warp_idle(int rank) const { return (rank * kWarps + warp) * kOfWarp >= kHidden; }
  // Of kProducts / kUnits gates the sums of the lane's unit and row.
  template <class T, int kProducts>
  __device__ __forceinline__ void reduce(const float (&sums)[kProducts][kRows],
                                         float (&result)[kProducts / kUnits]) const {
#pragma unroll
    for (int g = 0; g < kProducts / kUnits; ++g) {
      float values[kItems];
#pragma unroll
      for (int i = 0; i < kItems; ++i)
        values[i] =
            i < kUnits * kRows ? sums[g * kUnits + (i < kUnits * kRows ? i / kRows : 0)][i % kRows] : 0.0f;
      result[g] = rounded<T>(sum_over_lanes<kLanes>(values, lane));
    }
  }
};

// Where a cluster works: blocks, then groups of rows, then directions.
struct RecurrentPlace {
  int rank, direction;
  int64_t first_row;
  __device__ __forceinline__ RecurrentPlace(uint32_t block, int cluster, int64_t groups, int rows) {
    const int64_t at = block / uint32_t(cluster);
    rank = int(block % uint32_t(cluster));
    direction = int(at / groups);
    first_row = at % groups * rows;
  }
};

template <class T>
struct RecurrentOperands {
  Steps<const T> x, h, w, bias, c;  // bias [D, G H]: the third axis is not there
  Steps<T> y, cells, gates;
  int64_t length, batch, groups;  // groups of rows of the batch
  bool reverse;                   // of direction 0
};

template <class T, int kCell, int kHidden, int kCluster, int kWarps, int kUnits, int kRows, int kInRegisters,
          bool kBias, bool kKeep, bool kEarlyWeights>
struct RecurrentLayer {
  static constexpr int kGates = gate_count(kCell), kProducts = kGates * kUnits;
  using Exchange = StepExchange<kHidden, kRows, kCluster>;
  using Product = WarpProduct<T, kProducts, kHidden, kRows, kInRegisters>;
  using Lane = LaneUnit<kHidden, Product::kLanes, kWarps, kUnits, kRows>;
  static constexpr int kShared = sizeof(typename Exchange::Shared) + kWarps * Product::kSharedElements *
                                                                         int(sizeof(typename Product::Elements));

  static __device__ void load_weights(Product& product, const RecurrentOperands<T>& o, const Lane& lane,
                                      int direction) {
#pragma unroll
    for (int chunk = 0; chunk < Product::Split::kChunks; ++chunk)
      product.take(chunk, lane.lane, [&](int p, int k) {
        const int unit = lane.first_unit + p % kUnits;
        return unit < kHidden && k < kHidden ? o.w(direction, p / kUnits * kHidden + unit, k)
                                             : from_float<T>(0.0f);
      });
  }

  static __device__ void run(const RecurrentOperands<T>& o, uint32_t block) {
    extern __shared__ __align__(16) char memory[];
    const RecurrentPlace place(block, kCluster, o.groups, kRows);
    const Lane lane(place.rank);
    const int d = place.direction;
    const Exchange exchange{*reinterpret_cast<typename Exchange::Shared*>(memory)};
    Product product;
    product.shared =
        reinterpret_cast<typename Product::Elements*>(memory + sizeof(typename Exchange::Shared)) +
        lane.warp * Product::kSharedElements;
    if constexpr (kEarlyWeights) load_weights(product, o, lane, d);
    wait_for_inputs();
    launch_dependents();
    if constexpr (!kEarlyWeights) load_weights(product, o, lane, d);
    exchange.prepare();
    for (int i = int(threadIdx.x); i < kRows * kHidden; i += int(blockDim.x)) {
      const int row = i / kHidden, k = i % kHidden;
      if (place.first_row + row < o.batch)
        exchange.shared.vectors[0][row][k] = o.h.get(d, place.first_row + row, k);
    }
    exchange.barriers().join();
    static_assert(kCluster > 1 || (kWarps - 1) * Lane::kOfWarp < kHidden, "all warps of a block alone meet at its barrier");
    if (lane.is_warp_idle(place.rank)) return;

    const int64_t row = place.first_row + lane.row;
    const bool inside = lane.active && row < o.batch, writes = inside && lane.replica == 0;
    const bool reverse = d == 1 || o.reverse;
    T next[kGates];
    float bias[kGates], h = 0, c = 0;
#pragma unroll
    for (int g = 0; g < kGates; ++g)
      bias[g] = kBias && inside ? o.bias.get(d, g * kHidden + lane.unit, 0) : 0.0f;
    if (inside) h = o.h.get(d, row, lane.unit);
    if (kCell == kLstm && inside) c = o.c.get(d, row, lane.unit);
    const auto ask = [&](int64_t step) {
      const int64_t t = reverse ? o.length - 1 - step : step;
#pragma unroll
      for (int g = 0; g < kGates; ++g)
        next[g] = inside && step < o.length ? o.x(t, row, (d * kGates + g) * kHidden + lane.unit)
                                            : from_float<T>(0.0f);
    };
    const auto r = [](float value) { return rounded<T>(value); };
    ask(0);
    for (int64_t step = 0; step < o.length; ++step) {
      T asked[kGates];
      float given[kGates], sums[kProducts][kRows], own[kGates];
#pragma unroll
      for (int g = 0; g < kGates; ++g) asked[g] = next[g];
      ask(step + 1);
      if (step > 0) exchange.barriers().wait(step);
      product.multiply(exchange, step, lane.lane, sums);
      lane.template reduce<T>(sums, own);
#pragma unroll
      for (int g = 0; g < kGates; ++g) {
        keep_behind(asked[g]);
        given[g] = to_float(asked[g]);
      }
      if constexpr (kBias) {
#pragma unroll
        for (int g = 0; g < kGates; ++g) own[g] = r(own[g] + bias[g]);
      }
      float kept[4];
      if constexpr (kCell == kLstm) {
#pragma unroll
        for (int g = 0; g < 4; ++g) {
          const float sum = r(given[g] + own[g]);
          kept[g] = g == 2 ? tanh_of<T>(sum) : sigmoid_of<T>(sum);
        }
        c = r(r(kept[1] * c) + r(kept[0] * kept[2]));
        h = r(kept[3] * tanh_of<T>(c));
      } else if constexpr (kCell == kGru) {
        kept[0] = sigmoid_of<T>(r(given[0] + own[0]));
        kept[1] = sigmoid_of<T>(r(given[1] + own[1]));
        kept[3] = own[2];
        kept[2] = tanh_of<T>(r(given[2] + r(kept[0] * own[2])));
        h = r(kept[2] + r(kept[1] * r(h - kept[2])));
      } else {
        const float sum = r(given[0] + own[0]);
        h = kCell == kTanh ? tanh_of<T>(sum) : sum > 0 || sum != sum ? sum : 0.0f;
      }
      if (lane.active && step + 1 < o.length)
        exchange.template send<Lane::kReplicas>(step + 1, lane.row, lane.unit, h, lane.replica);
      if (writes) {
        const int64_t t = reverse ? o.length - 1 - step : step;
        o.y(t, row, d * kHidden + lane.unit) = from_float<T>(h);
        if constexpr (kCell == kLstm) o.cells(t, row, d * kHidden + lane.unit) = from_float<T>(c);
        if constexpr (kKeep && kept_count(kCell) > 0) {
#pragma unroll
          for (int k = 0; k < 4; ++k)
            o.gates(t, row, (d * 4 + k) * kHidden + lane.unit) = from_float<T>(kept[k]);
        }
      }
    }
  }
};

template <class T>
struct RecurrentGradientOperands {
  Steps<const T> w, h, y, cells, gates, dy, c, dcells;
  Steps<T> dx, dh, dc;
  int64_t length, batch, groups;
  bool reverse;
};

template <class T, int kCell, int kHidden, int kCluster, int kWarps, int kUnits, int kRows, int kInRegisters,
          bool kDcells>
struct RecurrentGradient {
  static constexpr int kGates = gate_count(kCell), kDepth = kGates * kHidden;
  using Exchange = StepExchange<kDepth, kRows, kCluster>;
  using Product = WarpProduct<T, kUnits, kDepth, kRows, kInRegisters>;
  using Lane = LaneUnit<kHidden, Product::kLanes, kWarps, kUnits, kRows>;
  static constexpr int kColumns = kWarps * Lane::kOfWarp;
  struct Shared {
    typename Exchange::Shared exchange;
    T tile[Product::Split::kChunk][kColumns + 2 / (sizeof(T) / 2)];  // weights on their way to the warps
  };

  // What a step reads.
  template <class E>
  struct Read {
    E dy{}, y{}, before{}, gates[4]{}, cell{}, dcell{};
  };
  static __device__ __forceinline__ Read<float> behind_wait(Read<T> read) {
    Read<float> here;
    const auto take = [](T& from, float& to) {
      keep_behind(from);
      to = to_float(from);
    };
    take(read.dy, here.dy), take(read.y, here.y), take(read.before, here.before);
    take(read.cell, here.cell), take(read.dcell, here.dcell);
#pragma unroll
    for (int k = 0; k < 4; ++k) take(read.gates[k], here.gates[k]);
    return here;
  }

  static __device__ void load_weights(Product& product, Shared& shared, const RecurrentGradientOperands<T>& o,
                                      const Lane& lane, const RecurrentPlace& place) {
    const int first = place.rank * kColumns;
#pragma unroll
    for (int chunk = 0; chunk < Product::Split::kChunks; ++chunk) {
      for (int i = int(threadIdx.x); i < Product::Split::kChunk * kColumns; i += int(blockDim.x)) {
        const int row = i / kColumns, column = i % kColumns, k = chunk * Product::Split::kChunk + row;
        shared.tile[row][column] = k < kDepth && first + column < kHidden
                                       ? o.w(place.direction, k, first + column)
                                       : from_float<T>(0.0f);
      }
      __syncthreads();
      product.take(chunk, lane.lane, [&](int p, int k) {
        return shared.tile[k - chunk * Product::Split::kChunk][lane.first_unit - first + p];
      });
      __syncthreads();
    }
  }

  static __device__ void run(const RecurrentGradientOperands<T>& o, uint32_t block) {
    extern __shared__ __align__(16) char memory[];
    const RecurrentPlace place(block, kCluster, o.groups, kRows);
    const Lane lane(place.rank);
    const int d = place.direction;
    Shared& shared = *reinterpret_cast<Shared*>(memory);
    const Exchange exchange{shared.exchange};
    Product product;
    product.shared = reinterpret_cast<typename Product::Elements*>(memory + (sizeof(Shared) + 15) / 16 * 16) +
                     lane.warp * Product::kSharedElements;
    wait_for_inputs();
    launch_dependents();
    load_weights(product, shared, o, lane, place);
    exchange.prepare();
    exchange.barriers().join();
    static_assert(kCluster > 1 || (kWarps - 1) * Lane::kOfWarp < kHidden, "all warps of a block alone meet at its barrier");
    if (lane.is_warp_idle(place.rank)) return;

    const int64_t row = place.first_row + lane.row;
    const bool inside = lane.active && row < o.batch, writes = inside && lane.replica == 0;
    const bool reverse = d == 1 || o.reverse;
    const int64_t column = d * kHidden + lane.unit;
    // Steps are counted from the last one back.
    const auto time = [&](int64_t step) { return reverse ? step : o.length - 1 - step; };
    const auto ask = [&](int64_t step) {
      Read<T> read;
      if (!inside || step >= o.length) return read;
      const int64_t t = time(step);
      const bool is_first = step + 1 == o.length;
      read.dy = o.dy(t, row, column);
      if constexpr (kCell == kTanh || kCell == kRelu) read.y = o.y(t, row, column);
      if constexpr (kCell == kGru)
        read.before = is_first ? o.h(d, row, lane.unit) : o.y(time(step + 1), row, column);
      if constexpr (kCell == kLstm) {
        read.before = is_first ? o.c(d, row, lane.unit) : o.cells(time(step + 1), row, column);
        read.cell = o.cells(t, row, column);
        if constexpr (kDcells) read.dcell = o.dcells(t, row, column);
      }
      if constexpr (kept_count(kCell) > 0) {
#pragma unroll
        for (int k = 0; k < 4; ++k) read.gates[k] = o.gates(t, row, (d * 4 + k) * kHidden + lane.unit);
      }
      return read;
    };
    const auto r = [](float value) { return rounded<T>(value); };
    const auto slope = [&](float s) { return r(s * r(1 - s)); };
    const auto bend = [&](float value) { return r(1 - r(value * value)); };
    float direct = 0, dc = 0;
    Read<T> next = ask(0);
    for (int64_t step = 0; step <= o.length; ++step) {
      const Read<T> asked = next;
      next = ask(step + 1);
      float sums[kUnits][kRows], own[1];
      if (step > 0) exchange.barriers().wait(step);
      product.multiply(exchange, step, lane.lane, sums);
      lane.template reduce<T>(sums, own);
      const Read<float> now = behind_wait(asked);
      const float back = kCell == kGru ? r(direct + own[0]) : own[0];
      if (step == o.length) {
        if (writes) {
          o.dh(d, row, lane.unit) = from_float<T>(back);
          if constexpr (kCell == kLstm) o.dc(d, row, lane.unit) = from_float<T>(dc);
        }
        return;
      }
      const float dh = r(now.dy + back);
      float into[kGates], down[kGates];
      if constexpr (kCell == kLstm) {
        const float bent = tanh_of<T>(now.cell);
        if constexpr (kDcells) dc = r(now.dcell + dc);
        dc = r(dc + r(r(dh * now.gates[3]) * bend(bent)));
        into[0] = r(r(dc * now.gates[2]) * slope(now.gates[0]));
        into[1] = r(r(dc * now.before) * slope(now.gates[1]));
        into[2] = r(r(dc * now.gates[0]) * bend(now.gates[2]));
        into[3] = r(r(dh * bent) * slope(now.gates[3]));
        dc = r(dc * now.gates[1]);
#pragma unroll
        for (int g = 0; g < 4; ++g) down[g] = into[g];
      } else if constexpr (kCell == kGru) {
        into[2] = r(r(dh * r(1 - now.gates[1])) * bend(now.gates[2]));
        into[1] = r(r(dh * r(now.before - now.gates[2])) * slope(now.gates[1]));
        into[0] = r(r(into[2] * now.gates[3]) * slope(now.gates[0]));
        down[0] = into[0], down[1] = into[1], down[2] = r(into[2] * now.gates[0]);
        direct = r(dh * now.gates[1]);
      } else {
        into[0] = kCell == kTanh ? r(dh * bend(now.y)) : now.y > 0 ? dh : 0.0f;
        down[0] = into[0];
      }
      if (lane.active) {
#pragma unroll
        for (int g = 0; g < kGates; ++g)
          exchange.template send<Lane::kReplicas>(step + 1, lane.row, g * kHidden + lane.unit, down[g],
                                                  lane.replica);
      }
      if (writes) {
#pragma unroll
        for (int g = 0; g < kGates; ++g)
          o.dx(time(step), row, (d * kGates + g) * kHidden + lane.unit) = from_float<T>(into[g]);
      }
    }
  }
};

}  // namespace aicf
