// Contraction of many small products of halves on the matrix units (mma.sync m16n8k16, f32 sums), where the matrices of
// neighbouring products follow one another in memory. A warp has a whole product. A block copies the memory of its products as it
// lies, in whole vectors of 16 bytes, whatever the length and the start of rows; fragments are read from it by elements, or by
// pairs of k. Each result is the sum of its products of 16 steps of k each in ascending order. Results go through shared memory,
// so that neighbouring threads store neighbouring columns.
#pragma once

#include "matmul/cuda/mma.cuh"

namespace aicf {

// BM, BN, BK: m, n and k are at most these, multiples of 16, 8 and 16. kXAlongK: neighbours of x in memory differ in k (else in m);
// kXPairs: two of even k start at a multiple of 4 bytes; kXShared: all products have one x. kYAlongK (else in n), kYPairs and
// kYShared likewise.
template <class T, int BM, int BN, int BK, int kBatches, bool kXAlongK, bool kYAlongK, bool kXPairs, bool kYPairs, bool kXShared,
          bool kYShared>
struct WarpProducts {
  static constexpr int kThreads = 32 * kBatches;
  static constexpr int kRowBlocks = BM / 16, kColumnBlocks = BN / 8;
  static constexpr int kColumns = BN <= 8 ? 8 : BN <= 16 ? 16 : BN <= 32 ? 32 : 64;  // of a row of results that a warp stores
  static constexpr int kStride = kColumns + 8;                                       // between such rows
  static constexpr int kResultBytes = kBatches * 16 * kStride * int(sizeof(float));
  // Of an operand of all products, wherever it begins.
  static constexpr int kVectorBytes = 16;
  template <int kOther, bool kShared>
  static constexpr int kBytes = (kOther * BK * (kShared ? 1 : kBatches) * 2 + 2 * kVectorBytes - 1) / kVectorBytes * kVectorBytes;
  // What is read behind the matrices lies in here, too.
  static constexpr int kSharedBytes = kBytes<BM, kXShared> + kBytes<BN, kYShared> + kResultBytes;
  static_assert(!kXPairs || kXAlongK, "pairs are of k");
  static_assert(!kYPairs || kYAlongK, "pairs are of k");

  // The place of from[0], of `count` elements that are on their way to `to`.
  static __device__ __forceinline__ uint32_t copy(uint32_t to, const T* from, int count) {
    const auto address = reinterpret_cast<uint64_t>(from);
    const int first = int(address % kVectorBytes), vectors = (first + count * 2 + kVectorBytes - 1) / kVectorBytes;
    const char* const vector = reinterpret_cast<const char*>(address - uint64_t(first));
#pragma unroll 4
    for (int i = int(threadIdx.x); i < vectors; i += kThreads) copy_async(to + i * kVectorBytes, vector + i * kVectorBytes, kVectorBytes);
    return to + uint32_t(first);
  }

  static __device__ __forceinline__ uint32_t element(uint32_t at) {
    uint16_t bits;
    asm volatile("ld.shared.u16 %0, [%1];" : "=h"(bits) : "r"(at) : "memory");
    return bits;
  }
  // Elements k and k + 1, of which `left` are not beyond the last; `step`: bytes from one to the next.
  template <bool kPairs>
  static __device__ __forceinline__ uint32_t pair(uint32_t at, int step, int left) {
    if constexpr (kPairs) {
      uint32_t both;
      asm volatile("ld.shared.u32 %0, [%1];" : "=r"(both) : "r"(at) : "memory");
      return left > 0 ? both : 0;
    } else {
      const uint32_t low = element(at), high = element(at + step);
      return (left > 0 ? low : 0) | (left > 1 ? high << 16 : 0);
    }
  }

  // x, y: where the product's matrices lie.
  static __device__ __forceinline__ void multiply(uint32_t x, uint32_t y, int m, int n, int k, int lane,
                                                  float (&acc)[kRowBlocks][kColumnBlocks][4]) {
    const int x_step = kXAlongK ? 2 : m * 2, x_row = kXAlongK ? k * 2 : 2;  // bytes
    const int y_step = kYAlongK ? 2 : n * 2, y_column = kYAlongK ? k * 2 : 2;
#pragma unroll 1
    for (int first = 0; first < k; first += 16) {
      const int at = first + lane % 4 * 2, left = k - at;
      const uint32_t x_at = x + lane / 4 * x_row + at * x_step, y_at = y + lane / 4 * y_column + at * y_step;
      uint32_t a[kRowBlocks][4];
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int r = 0; r < 4; ++r)
          a[i][r] = pair<kXPairs>(x_at + (i * 16 + r % 2 * 8) * x_row + r / 2 * 8 * x_step, x_step, left - r / 2 * 8);
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j) {
        uint32_t b[2];
#pragma unroll
        for (int r = 0; r < 2; ++r) b[r] = pair<kYPairs>(y_at + j * 8 * y_column + r * 8 * y_step, y_step, left - r * 8);
#pragma unroll
        for (int i = 0; i < kRowBlocks; ++i) mma_16x8x16(T{}, acc[i][j], a[i], b[0], b[1]);
      }
    }
  }

  // `results`: of the warp.
  template <int kWidth, class Epilogue>
  static __device__ __forceinline__ void store(const Epilogue& epilogue, float* results, int64_t outer, int m, int n, int lane,
                                               const float (&acc)[kRowBlocks][kColumnBlocks][4]) {
#pragma unroll
    for (int i = 0; i < kRowBlocks; ++i) {
      if (i * 16 >= m) break;
#pragma unroll
      for (int j = 0; j < kColumnBlocks; ++j)
#pragma unroll
        for (int half = 0; half < 2; ++half)
          *reinterpret_cast<float2*>(results + (lane / 4 + half * 8) * kStride + j * 8 + lane % 4 * 2) =
              make_float2(acc[i][j][half * 2], acc[i][j][half * 2 + 1]);
      __syncwarp();
      store_narrow_rows<kWidth, kColumns>(epilogue, outer + i * 16, m - i * 16, 0, n, lane, [&](int r, int c) {
        struct {
          float at[kWidth];
        } values;
#pragma unroll
        for (int v = 0; v < kWidth; ++v) values.at[v] = results[r * kStride + c + v];
        return values;
      });
      __syncwarp();
    }
  }

  // Products kBatches · block and those after it.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, uint32_t block) {
    extern __shared__ __align__(16) char shared[];
    const int64_t first = int64_t(block) * kBatches;
    const int products = int(min(o.batches - first, int64_t(kBatches)));
    const int m = int(o.m), n = int(o.n), k = int(o.k);
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
    const uint32_t at = shared_address(shared);
    const uint32_t x = copy(at, o.x_of(uint32_t(first)), m * k * (kXShared ? 1 : products));
    const uint32_t y = copy(at + kBytes<BM, kXShared>, o.y_of(uint32_t(first)), k * n * (kYShared ? 1 : products));
    asm volatile("cp.async.wait_all;" ::: "memory");
    sync_threads<kThreads>();
    if (warp >= products) return;
    float acc[kRowBlocks][kColumnBlocks][4] = {};
    multiply(x + (kXShared ? 0 : warp * m * k * 2), y + (kYShared ? 0 : warp * k * n * 2), m, n, k, lane, acc);
    constexpr int kWidth = Operands::kStoredColumns == 8 ? 4 : Operands::kStoredColumns;
    float* const results = reinterpret_cast<float*>(shared + kBytes<BM, kXShared> + kBytes<BN, kYShared>) + warp * 16 * kStride;
    store<kWidth>(epilogue, results, (first + warp) * m, m, n, lane, acc);
  }
};

}  // namespace aicf
