// Contraction of f32, plain or in tf32, of so few results that every multiprocessor has one block or a few, and the wait
// for memory is the time. Every warp of a block has the whole tile and a slice of K, for which it loads by itself, as many
// stages ahead as there are: no barrier stands between a load and its use. What no running launch writes is read before the
// wait for the launch before: y, what the epilogue reads, and x if these are. The slices' sums are added in order, and so
// are the parts of a K that is split among the blocks of a cluster: each block is sent the parts of its share of the tile.
// Code is short and stands here once where it can: most of it runs once, and to fetch it takes longer than to run it.
#pragma once

#include "matmul/cuda/mma.cuh"
#include "matmul/cuda/simt.cuh"

namespace aicf {

// How a slice's sums lie in shared memory, so that neither rows nor columns of lanes meet in a bank.
template <int BN>
struct SliceSums {
  static constexpr int kRow = BN + 8;
};

// What a warp loads to one tile of a stage. What lies beyond the end of k is zero; rows and columns beyond the result are
// whatever they were, and so is what is made of them. kRowsAreK: the tile's rows are those of k, else its columns are.
template <class Tile, int kRows, int kInner, bool kRowsAreK>
struct TileLoad {
  static __device__ __forceinline__ void clear(uint32_t to) {
    asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(to), "r"(0) : "memory");
  }

  // Rows start at multiples of 16 bytes and their elements are neighbours.
  template <class I>
  static __device__ __forceinline__ void vectors(uint32_t tile, const float* from, I row_stride, I rows_left, I inner_left,
                                                 int lane) {
    constexpr int kStep = 32 / Tile::kChunks;  // rows
    static_assert(32 % Tile::kChunks == 0 && kRows % kStep == 0, "a lane has one chunk of several rows");
    // How rows are swizzled comes again after 8 of them.
    constexpr int kPlaces = kStep >= 8 ? 1 : 8 / kStep, kRowBytes = Tile::kPanel * int(sizeof(float));
    const int row = lane / Tile::kChunks, chunk = lane % Tile::kChunks;
    const int bytes = min(max(int(inner_left) - chunk * 4, 0), 4) * 4;
    const float* at = bytes > 0 ? from + row * row_stride + chunk * 4 : from;
    const int64_t step = bytes > 0 ? int64_t(kStep) * row_stride : 0;
    uint32_t places[kPlaces];
#pragma unroll
    for (int i = 0; i < kPlaces; ++i) places[i] = tile + Tile::offset(row + i * kStep, chunk);
#pragma unroll
    for (int i = 0; i < kRows / kStep; ++i) {
      const uint32_t to = places[i % kPlaces] + uint32_t(i / kPlaces * kPlaces * kStep * kRowBytes);
      if (row + i * kStep < rows_left)
        copy_async(to, at, bytes);
      else if constexpr (kRowsAreK)
        clear(to);
      at += step;
    }
  }

  // Any strides, one element at a time.
  template <class I>
  static __device__ __forceinline__ void elements(uint32_t tile, const float* from, I row_stride, I inner_stride, I rows_left,
                                                  I inner_left, int lane) {
    static_assert(kInner == 32, "a lane has a column");
    const float* at = from + lane * inner_stride;
#pragma unroll 8
    for (int row = 0; row < kRows; ++row) {
      const uint32_t to = tile + Tile::word_offset(row, lane);
      if (lane < inner_left && row < rows_left)
        asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(at + row * row_stride) : "memory");
      else if (kRowsAreK ? row >= rows_left : lane >= inner_left)
        asm volatile("st.shared.b32 [%0], %1;" ::"r"(to), "r"(0) : "memory");
    }
  }

  template <class I>
  static __device__ __forceinline__ void run(bool in_vectors, uint32_t tile, const float* from, I row_stride,
                                             I inner_stride, I rows_left, I inner_left, int lane) {
    if (in_vectors)
      vectors(tile, from, row_stride, rows_left, inner_left, lane);
    else
      elements(tile, from, row_stride, inner_stride, rows_left, inner_left, lane);
  }
};

// The tiles of a stage, 32 of K, placed as MmaMatmul reads them.
template <int BM, int BN, bool kXAlongK, bool kYAlongK>
struct SliceLoads : MmaMatmul<float, BM, BN, BM, BN, 1, kXAlongK, kYAlongK, true, true, Split::kNone, 1> {
  using Matmul = MmaMatmul<float, BM, BN, BM, BN, 1, kXAlongK, kYAlongK, true, true, Split::kNone, 1>;
  using typename Matmul::XTile, typename Matmul::YTile;
  static constexpr int kDepth = Matmul::kDepth;
  template <class Tile, bool kAlongK, int kOther>
  using Load = TileLoad<Tile, kAlongK ? kOther : kDepth, kAlongK ? kDepth : kOther, !kAlongK>;

  template <class Operands, class I>
  static __device__ __forceinline__ void load_x(const Operands& o, const float* x, I k, I k_end, I m_left, uint32_t stage,
                                                int lane) {
    const I k_left = k_end - k;
    Load<XTile, kXAlongK, BM>::run(o.x_vectors, stage, x + k * o.x_column, kXAlongK ? o.x_row : o.x_column,
                                   kXAlongK ? o.x_column : o.x_row, kXAlongK ? m_left : k_left,
                                   kXAlongK ? k_left : m_left, lane);
  }

  template <class Operands, class I>
  static __device__ __forceinline__ void load_y(const Operands& o, const float* y, I k, I k_end, I n_left, uint32_t stage,
                                                int lane) {
    const I k_left = k_end - k;
    Load<YTile, kYAlongK, BN>::run(o.y_vectors, stage + XTile::kBytes, y + k * o.y_row,
                                   kYAlongK ? o.y_column : o.y_row, kYAlongK ? o.y_row : o.y_column,
                                   kYAlongK ? n_left : k_left, kYAlongK ? k_left : n_left, lane);
  }
};

// Products of a warp's stage in f32, each result with k ascending. A lane has TM × TN results.
template <int BM, int BN, bool kXAlongK, bool kYAlongK>
struct SimtSlice {
  using Loads = SliceLoads<BM, BN, kXAlongK, kYAlongK>;
  static constexpr int TM = 8, TN = BM * BN / 32 / TM;
  static constexpr int kAcross = BN / TN, kDown = BM / TM;  // lanes
  static constexpr int kUnit = 4;                           // of K
  static_assert(kAcross * kDown == 32 && TN % 4 == 0, "a lane's results are whole groups of four");

  // Four at a time are neighbours in memory where rows run along m or n; else neighbouring lanes have neighbours.
  template <bool kAlongK, int kLanes>
  static __device__ __forceinline__ int place(int lane, int i) {
    return kAlongK ? i * kLanes + lane : i / 4 * 4 * kLanes + lane * 4 + i % 4;
  }

  float acc[TM][TN] = {};

  // Element [kk][i]: of k + kk and the lane's i-th row or column.
  template <class Tile, bool kAlongK, int kLanes, int kCount>
  static __device__ __forceinline__ void read(const char* tile, int k, int lane, float (&to)[kUnit][kCount]) {
    if constexpr (kAlongK) {
#pragma unroll
      for (int i = 0; i < kCount; ++i) {
        const auto v = *reinterpret_cast<const AccVector<float>*>(tile + Tile::offset(place<true, kLanes>(lane, i), k / 4));
#pragma unroll
        for (int e = 0; e < 4; ++e) to[e][i] = v.values[e];
      }
    } else {
#pragma unroll
      for (int kk = 0; kk < kUnit; ++kk)
#pragma unroll
        for (int i = 0; i < kCount; i += 4) {
          const auto v = *reinterpret_cast<const AccVector<float>*>(
              tile + Tile::offset(k + kk, place<false, kLanes>(lane, i) / 4));
#pragma unroll
          for (int e = 0; e < 4; ++e) to[kk][i + e] = v.values[e];
        }
    }
  }

  __device__ __forceinline__ void multiply(const char* stage, int depth, int lane) {
#pragma unroll 1
    for (int k = 0; k < depth; k += kUnit) {
      float a[kUnit][TM], b[kUnit][TN];
      read<typename Loads::XTile, kXAlongK, kDown>(stage, k, lane / kAcross, a);
      read<typename Loads::YTile, kYAlongK, kAcross>(stage + Loads::XTile::kBytes, k, lane % kAcross, b);
#pragma unroll
      for (int kk = 0; kk < kUnit; ++kk)
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) acc[i][j] = multiply_add(a[kk][i], b[kk][j], acc[i][j]);
    }
  }

  __device__ __forceinline__ void put(float* sums, int lane) const {
#pragma unroll
    for (int i = 0; i < TM; ++i) {
      float* row = sums + place<kXAlongK, kDown>(lane / kAcross, i) * SliceSums<BN>::kRow;
#pragma unroll
      for (int j = 0; j < TN; j += 4) {
        AccVector<float> v;
#pragma unroll
        for (int e = 0; e < 4; ++e) v.values[e] = acc[i][j + e];
        if constexpr (!kYAlongK) {
          *reinterpret_cast<AccVector<float>*>(row + place<false, kAcross>(lane % kAcross, j)) = v;
        } else {
#pragma unroll
          for (int e = 0; e < 4; ++e) row[place<true, kAcross>(lane % kAcross, j + e)] = v.values[e];
        }
      }
    }
  }
};

// The same in tf32.
template <int BM, int BN, bool kXAlongK, bool kYAlongK>
struct Tf32Slice {
  using Loads = SliceLoads<BM, BN, kXAlongK, kYAlongK>;
  static constexpr int kUnit = 8;
  float acc[Loads::kRowBlocks][Loads::kQuadBlocks][4][4] = {};

  __device__ __forceinline__ void multiply(const char* stage, int, int lane) {
    Loads::compute_stage(shared_address(stage), typename Loads::Warp{0, 0, lane}, acc);
  }

  __device__ __forceinline__ void put(float* sums, int lane) const {
#pragma unroll
    for (int i = 0; i < Loads::kRowBlocks; ++i)
#pragma unroll
      for (int j = 0; j < Loads::kQuadBlocks * 4; ++j)
#pragma unroll
        for (int e = 0; e < 4; ++e)
          sums[(i * 16 + e / 2 * 8 + lane / 4) * SliceSums<BN>::kRow + j * 8 + lane % 4 * 2 + e % 2] =
              acc[i][j / 4][j % 4][e];
  }
};

// Where the blocks of a cluster send the parts of the sums that one of them adds: its share of the tile from every block,
// kOwn groups of four, and a barrier that counts the bytes that have come. Nobody meets at the end.
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
    // Of the groups that the thread stores.
    const auto index_of = [&](int g) { return (kSplit == Split::kNone ? 0 : int(part) * kShare) + thread + g * kThreads; };
    const auto row_of = [&](int g) { return row + I(index_of(g) / (BN / kColumns)); };
    const auto column_of = [&](int g) { return column + I(index_of(g) % (BN / kColumns) * kColumns); };
    const auto epilogue_row = [&](int g) { return epilogue.row(int64_t(tile.batch) * o.m + row_of(g)); };
    const auto is_stored = [&](int g) { return kShare % kThreads == 0 || thread + g * kThreads < kShare; };
    const auto is_whole = [&](int g) {
      return is_stored(g) && (Operands::kWholeTiles || (row_of(g) < o.m && column_of(g) + kColumns <= o.n));
    };

    const I k_first = I(part) * part_depth, k_end = min(o.k, I(k_first + part_depth));
    const I depth = (max(k_end - k_first, I(0)) + kSlices * Slice::kUnit - 1) / (kSlices * Slice::kUnit) * Slice::kUnit;
    const I slice_first = k_first + number * depth;
    Slice slice;
    struct Fetched {
      typename Epilogue::template Shared<kColumns> shared;
      typename Epilogue::template Own<kColumns> own;
    };
    Fetched fetched, next;  // of the group that is stored, and of the one after it
    const auto fetch = [&](int g, Fetched& to) {
      if (!is_whole(g)) return;
      epilogue.fetch(to.shared, column_of(g));
      epilogue.fetch(to.own, epilogue_row(g), column_of(g));
    };
    char* stages = shared + number * kSliceBytes;
    char* parts = shared + kSlices * kSliceBytes;
#if __CUDA_ARCH__ >= 900
    if constexpr (kSplit == Split::kCluster) Parts::set_up(shared_address(parts), thread);
#endif
    accumulate(o, o.x_of(tile.batch) + row * o.x_row, o.y_of(tile.batch) + column * o.y_column, slice_first,
               min(k_end, I(slice_first + depth)), Operands::kWholeTiles ? I(BM) : I(o.m - row),
               Operands::kWholeTiles ? I(BN) : I(o.n - column), stages, lane, slice,
               [&] { fetch(0, fetched); });
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
      if (!is_stored(g)) break;
      float sum[kColumns];
      if constexpr (kSplit == Split::kNone)
        add_slices(shared, thread + g * kThreads, sum);
      else
        Parts::sum(parts, thread + g * kThreads, sum);
      if (g + 1 < kStored) fetch(g + 1, next);
      if (is_whole(g)) {
        epilogue.apply(epilogue_row(g), column_of(g), sum, fetched.shared, fetched.own);
      } else if constexpr (!Operands::kWholeGroups) {
        if (row_of(g) < o.m && column_of(g) < o.n) store_tail(epilogue, epilogue_row(g), column_of(g), o.n, sum);
      }
      fetched = next;
    }
  }
};

}  // namespace aicf
