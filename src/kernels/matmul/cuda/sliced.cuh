// Contraction of f32, plain or in tf32, of so few results that every multiprocessor has one block or a few, and the wait
// for memory is the time. Every warp of a block has the whole tile and a slice of K, for which it loads by itself, as many
// stages ahead as there are: no barrier stands between a load and its use. What no running launch writes is read before the
// wait for the launch before: y, what the epilogue reads, and x if these are. The slices' sums are added in order, and so
// are the parts of a K that is split among the blocks of a cluster: each block is sent the parts of its share of the tile.
// Code is short and stands here once where it can: most of it runs once, and to fetch it takes longer than to run it.
#pragma once

#include "matmul/cuda/warp_slice.cuh"

namespace aicf {

// Where the blocks of a cluster send the parts of the sums that one of them adds: its share of the tile from every block,
// kOwn groups of four, and a barrier that counts the bytes that have come. No barrier of the cluster stands at the end.
template <int kParts, int kOwn>
struct SharedParts {
  static constexpr int kBytes = kParts * kOwn * 16;

#if __CUDA_ARCH__ >= 900
  // By all threads of the cluster, before anything is sent.
  static __device__ __forceinline__ void set_up(uint32_t memory, int thread) {
    if (thread == 0) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(memory + kBytes) : "memory");
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(memory + kBytes), "r"(kBytes) : "memory");
    }
    asm volatile("barrier.cluster.arrive.release;" ::: "memory");
  }
  static __device__ __forceinline__ void wait_for_all() { asm volatile("barrier.cluster.wait.acquire;" ::: "memory"); }

  static __device__ __forceinline__ void send(uint32_t memory, uint32_t part, int group, const float (&x)[4]) {
    uint32_t to, barrier;
    const uint32_t owner = uint32_t(group / kOwn);
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
                 : "=r"(to)
                 : "r"(memory + (part * kOwn + uint32_t(group % kOwn)) * 16), "r"(owner));
    asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(barrier) : "r"(memory + kBytes), "r"(owner));
    asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                 "f"(x[0]), "f"(x[1]), "f"(x[2]), "f"(x[3]), "r"(barrier)
                 : "memory");
  }

  static __device__ __forceinline__ void wait(uint32_t memory) {
    uint32_t done;
    do {
      asm volatile("{\n.reg .pred p;\nmbarrier.try_wait.parity.shared::cta.b64 p, [%1], 0;\nselp.u32 %0, 1, 0, p;\n}"
                   : "=r"(done)
                   : "r"(memory + kBytes)
                   : "memory");
    } while (!done);
  }
#endif

  static __device__ __forceinline__ void sum(const char* memory, int group, float (&to)[4]) {
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const auto v = *reinterpret_cast<const AccVector<float>*>(memory + (part * kOwn + group) * 16);
#pragma unroll
      for (int e = 0; e < 4; ++e) to[e] = part == 0 ? v.values[e] : to[e] + v.values[e];
    }
  }
};

template <class Slice, int BM, int BN, int kStages, int kSlices, Split kSplit, int kParts>
struct SlicedMatmul {
  using Loads = typename Slice::Loads;
  static constexpr int kThreads = kSlices * 32, kColumns = 4;
  static constexpr int kGroups = BM * BN / kColumns;                   // of four results
  static constexpr int kSums = kGroups / kThreads;                     // that a thread adds the slices' sums of
  static constexpr int kShare = kSplit == Split::kNone ? kGroups : kGroups / kParts;  // that the block stores
  static constexpr int kStored = (kShare + kThreads - 1) / kThreads;                  // that a thread stores
  static constexpr int kSliceBytes = kStages * Loads::kStageBytes;
  static_assert(kSliceBytes >= BM * SliceSums<BN>::kRow * int(sizeof(float)), "sums take the stages' place");
  static_assert(kSums > 0 && kGroups % kParts == 0, "every thread has sums, every block a share");
  using Parts = SharedParts<kParts, kShare>;

  static __device__ __forceinline__ void wait_and_launch() {
    wait_for_inputs();
    launch_dependents();
  }
  // Whether all that is read may be read before the launch before has ended: then only the stores wait for it.
  template <class Operands>
  static __device__ __forceinline__ bool waits_last(const Operands& o) {
    return o.x_early && o.y_early && o.others_early;
  }

  // `fetch_others` asks for what the epilogue reads first.
  template <class Operands, class I, class FetchOthers>
  static __device__ __forceinline__ void accumulate(const Operands& o, const float* x, const float* y, I k_first, I k_end,
                                                    I m_left, I n_left, char* stages, int lane, Slice& slice,
                                                    const FetchOthers& fetch_others) {
    const int steps = k_first < k_end ? int((k_end - k_first + Loads::kDepth - 1) / Loads::kDepth) : 0;
    const auto stage = [&](int step) { return stages + step % kStages * Loads::kStageBytes; };
    const auto k_of = [&](int step) { return I(k_first + I(step) * Loads::kDepth); };
    const auto load_y = [&](int step) {
      Loads::load_y(o, y, k_of(step), k_end, n_left, shared_address(stage(step)), lane);
    };
    if (o.y_early) {
#pragma unroll 1
      for (int step = 0; step < min(steps, kStages); ++step) load_y(step);
    }
    if (!o.others_early) wait_and_launch();
    fetch_others();
    if (o.others_early && !waits_last(o)) wait_and_launch();
#pragma unroll 1
    for (int step = -kStages; step < steps; ++step) {
      if (step >= 0) {
        wait_for_copies<kStages - 1>();
        __syncwarp();
        slice.multiply(stage(step), int(min(I(k_end - k_of(step)), I(Loads::kDepth))), lane);
        __syncwarp();
      }
      const int next = step + kStages;
      if (next < steps) {
        Loads::load_x(o, x, k_of(next), k_end, m_left, shared_address(stage(next)), lane);
        if (!o.y_early || step >= 0) load_y(next);
      }
      commit_copies();
    }
    wait_for_copies<0>();
  }

  static __device__ __forceinline__ void add_slices(const char* shared, int group, float (&sum)[kColumns]) {
    const int at = group / (BN / kColumns) * SliceSums<BN>::kRow + group % (BN / kColumns) * kColumns;
#pragma unroll
    for (int s = 0; s < kSlices; ++s) {
      const auto v = *reinterpret_cast<const AccVector<float>*>(shared + s * kSliceBytes + at * int(sizeof(float)));
#pragma unroll
      for (int e = 0; e < kColumns; ++e) sum[e] = s == 0 ? v.values[e] : sum[e] + v.values[e];
    }
  }

  // A group that the last column cuts: everything it reads is under way before the first use.
  template <class Epilogue>
  static __device__ __forceinline__ void store_tail(const Epilogue& epilogue, const typename Epilogue::Row& row,
                                                    int64_t column, int64_t n, const float (&values)[kColumns]) {
    typename Epilogue::template Shared<1> shared_operands[kColumns];
    typename Epilogue::template Own<1> own_operands[kColumns];
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      if (column + e >= n) continue;
      epilogue.fetch(shared_operands[e], column + e);
      epilogue.fetch(own_operands[e], row, column + e);
    }
#pragma unroll
    for (int e = 0; e < kColumns; ++e) {
      const float one[1] = {values[e]};
      if (column + e < n) epilogue.apply(row, column + e, one, shared_operands[e], own_operands[e]);
    }
  }

  // The groups of four results that a thread stores, by their number g.
  template <class Operands, class Epilogue>
  struct Groups {
    using I = typename Operands::Index;
    struct Fetched {
      typename Epilogue::template Shared<kColumns> shared;
      typename Epilogue::template Own<kColumns> own;
    };
    const Operands& o;
    const Epilogue& epilogue;
    const I row, column;  // of the tile
    const uint32_t batch, part;
    const int thread;

    __device__ __forceinline__ int index_of(int g) const {
      return (kSplit == Split::kNone ? 0 : int(part) * kShare) + thread + g * kThreads;
    }
    __device__ __forceinline__ I row_of(int g) const { return row + I(index_of(g) / (BN / kColumns)); }
    __device__ __forceinline__ I column_of(int g) const { return column + I(index_of(g) % (BN / kColumns) * kColumns); }
    __device__ __forceinline__ typename Epilogue::Row epilogue_row(int g) const {
      return epilogue.row(int64_t(batch) * o.m + row_of(g));
    }
    __device__ __forceinline__ bool is_stored(int g) const { return kShare % kThreads == 0 || thread + g * kThreads < kShare; }
    __device__ __forceinline__ bool is_whole(int g) const {
      return is_stored(g) && (Operands::kWholeTiles || (row_of(g) < o.m && column_of(g) + kColumns <= o.n));
    }
    __device__ __forceinline__ void fetch(int g, Fetched& to) const {
      if (!is_whole(g)) return;
      epilogue.fetch(to.shared, column_of(g));
      epilogue.fetch(to.own, epilogue_row(g), column_of(g));
    }
    __device__ __forceinline__ void store(int g, const float (&sum)[kColumns], const Fetched& fetched) const {
      if (is_whole(g)) {
        epilogue.apply(epilogue_row(g), column_of(g), sum, fetched.shared, fetched.own);
      } else if constexpr (!Operands::kWholeGroups) {
        if (row_of(g) < o.m && column_of(g) < o.n) store_tail(epilogue, epilogue_row(g), column_of(g), o.n, sum);
      }
    }
  };

  // Part `block % kParts` of tile `block / kParts`; a part is `part_depth` of K.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, typename Operands::Index part_depth,
                             uint32_t block) {
    using I = typename Operands::Index;
    extern __shared__ __align__(128) char shared[];
    const int thread = int(threadIdx.x), lane = thread % 32, number = thread / 32;
    const uint32_t tile_index = block / kParts, part = block - tile_index * kParts;
    const MatmulTile tile = tile_at(tile_index, uint32_t(tiles_of<I>(o.m, BM)), uint32_t(tiles_of<I>(o.n, BN)));
    const I row = I(tile.row) * BM, column = I(tile.column) * BN;
    using Stored = Groups<Operands, Epilogue>;
    const Stored groups{o, epilogue, row, column, tile.batch, part, thread};

    const I k_first = I(part) * part_depth, k_end = min(o.k, I(k_first + part_depth));
    const I depth = (max(k_end - k_first, I(0)) + kSlices * Slice::kUnit - 1) / (kSlices * Slice::kUnit) * Slice::kUnit;
    const I slice_first = k_first + number * depth;
    Slice slice;
    typename Stored::Fetched fetched, next;  // of the group that is stored, and of the one after it
    char* stages = shared + number * kSliceBytes;
    char* parts = shared + kSlices * kSliceBytes;
#if __CUDA_ARCH__ >= 900
    if constexpr (kSplit == Split::kCluster) Parts::set_up(shared_address(parts), thread);
#endif
    accumulate(o, o.x_of(tile.batch) + row * o.x_row, o.y_of(tile.batch) + column * o.y_column, slice_first,
               min(k_end, I(slice_first + depth)), Operands::kWholeTiles ? I(BM) : I(o.m - row),
               Operands::kWholeTiles ? I(BN) : I(o.n - column), stages, lane, slice,
               [&] { groups.fetch(0, fetched); });
    slice.put(reinterpret_cast<float*>(stages), lane);
    sync_threads<kThreads>();
#if __CUDA_ARCH__ >= 900
    if constexpr (kSplit == Split::kCluster) {
      Parts::wait_for_all();
#pragma unroll
      for (int g = 0; g < kSums; ++g) {
        float sum[kColumns];
        add_slices(shared, thread + g * kThreads, sum);
        Parts::send(shared_address(parts), part, thread + g * kThreads, sum);
      }
      Parts::wait(shared_address(parts));
    }
#endif
    if (waits_last(o)) wait_and_launch();
#pragma unroll 1  // the epilogue's code once: it may be long
    for (int g = 0; g < kStored; ++g) {
      if (!groups.is_stored(g)) break;
      float sum[kColumns];
      if constexpr (kSplit == Split::kNone)
        add_slices(shared, thread + g * kThreads, sum);
      else
        Parts::sum(parts, thread + g * kThreads, sum);
      if (g + 1 < kStored) groups.fetch(g + 1, next);
      groups.store(g, sum, fetched);
      fetched = next;
    }
  }
};

}  // namespace aicf
