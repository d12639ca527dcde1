// Contraction of many small products on the plain arithmetic units: a block has kBatches whole products, all operands of which
// lie in shared memory at once, and a thread TM × TN results of one of them. Each result is acc = fma(x[k], y[k], acc) with k
// ascending from 0 (integers: wrapping), as in simt.cuh. Results go through shared memory, so that neighbouring threads store
// neighbouring columns of rows that follow one another.
#pragma once

#include "matmul/cuda/simt.cuh"

namespace aicf {

// BM, BN, BK: m, n and k are at most these, which are multiples of 4. kXAlongK, kXVector and those of y: as of SimtMatmul, but
// vectors are of 16 bytes of any type.
template <class Acc, int BM, int BN, int BK, int kBatches, bool kXAlongK, bool kYAlongK, bool kXVector, bool kYVector>
struct BatchedMatmul {
  static constexpr int TM = 4, TN = 4, kQuad = 4;  // kQuad: of k, that fragments have at once
  static constexpr int kAcross = BN / TN, kOfProduct = BM / TM * kAcross;  // threads
  static constexpr int kThreads = (kBatches * kOfProduct + 31) / 32 * 32;

  // One operand of a product: each row (or column) has its k side by side, four rows a vector apart from the next four; or
  // each k has its rows side by side. Fragments of neighbouring threads, of the next product, too, lie in different banks.
  template <int kExtent, bool kAlongK>
  struct Part {
    static constexpr int kInner = kAlongK ? BK : kExtent, kRows = kAlongK ? kExtent : BK;
    static constexpr int kPad = 4, kGroup = kQuad * BK + kPad;
    static constexpr int kUsed = kAlongK ? kExtent / kQuad * kGroup : BK * (kExtent + kPad);
    static constexpr int kLength = kUsed + (32 + kExtent % 32 - kUsed % 32) % 32;
    static __device__ __forceinline__ constexpr int place(int row, int inner) {
      return kAlongK ? row / kQuad * kGroup + row % kQuad * BK + inner : row * (kExtent + kPad) + inner;
    }
    // Four rows of the result from `at` on, of four k.
    static __device__ __forceinline__ void read(const Acc* part, int k, int at, Acc (&to)[kQuad][4]) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        Acc four[4];
        read_four(part + (kAlongK ? place(at + i, k) : place(k + i, at)), four);
#pragma unroll
        for (int e = 0; e < 4; ++e) (kAlongK ? to[e][i] : to[i][e]) = four[e];
      }
    }
  };
  using XPart = Part<BM, kXAlongK>;
  using YPart = Part<BN, kYAlongK>;
  static constexpr int kStored = BN + 4;  // between rows of results
  static constexpr int kOperands = kBatches * (XPart::kLength + YPart::kLength), kResults = kBatches * BM * kStored;
  static constexpr int kSharedBytes = (kOperands > kResults ? kOperands : kResults) * int(sizeof(Acc));

  static __device__ __forceinline__ void write_four(Acc* to, const Acc* from) {
    using Vector = AccVector<Acc>;
#pragma unroll
    for (int i = 0; i < 4 / Vector::kLength; ++i) {
      Vector v;
#pragma unroll
      for (int e = 0; e < Vector::kLength; ++e) v.values[e] = from[i * Vector::kLength + e];
      reinterpret_cast<Vector*>(to)[i] = v;
    }
  }

  // Loads of an operand of all products: pieces of kWidth neighbours in memory, those beyond the matrix zeros. Several are
  // under way before the first is stored.
  template <class To, bool kVector, class T, class I, class Matrix>
  static __device__ __forceinline__ void load(Acc* to, const Matrix& matrix, I row_stride, I inner_stride, int rows, int inner,
                                              int products) {
    constexpr int kWidth = kVector ? 16 / int(sizeof(T)) : 1;
    constexpr int kPieces = (To::kInner + kWidth - 1) / kWidth, kOfMatrix = To::kRows * kPieces;
    constexpr int kLoads = (kBatches * kOfMatrix + kThreads - 1) / kThreads, kAtOnce = kVector ? 4 : 8;
    constexpr bool kCopies = sizeof(T) == sizeof(Acc);
#pragma unroll 1
    for (int first = 0; first < kLoads; first += kAtOnce) {
      Acc values[kCopies ? 1 : kAtOnce][kCopies ? 1 : kWidth];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int index = int(threadIdx.x) + (first + i) * kThreads, product = index / kOfMatrix;
        const int row = index % kOfMatrix / kPieces, at = index % kPieces * kWidth;
        const bool has_row = product < products && row < rows;
        const int count = has_row ? min(max(inner - at, 0), kWidth) : 0;
        const T* from = matrix(count > 0 ? product : 0);
        if (count > 0) from += row * row_stride + at * inner_stride;
        if constexpr (kCopies) {
          if (product >= kBatches) continue;
          const uint32_t address = shared_address(to + product * To::kLength + To::place(row, at));
          if constexpr (kVector)
            asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address), "l"(from),
                         "r"(count * int(sizeof(T)))
                         : "memory");
          else
            asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address), "l"(from), "n"(sizeof(T)),
                         "r"(count * int(sizeof(T)))
                         : "memory");
        } else {
          fetch<kVector>(values[i], from, count);
        }
      }
      if constexpr (!kCopies) {
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int index = int(threadIdx.x) + (first + i) * kThreads, product = index / kOfMatrix;
          const int row = index % kOfMatrix / kPieces, at = index % kPieces * kWidth;
          if (product >= kBatches) continue;
          Acc* place = to + product * To::kLength + To::place(row, at);
          if constexpr (kWidth % AccVector<Acc>::kLength == 0) {
#pragma unroll
            for (int e = 0; e < kWidth; e += 4)
              if (at + e < To::kInner) write_four(place + e, values[i] + e);
          } else {
            *place = values[i][0];
          }
        }
      }
    }
  }
  template <bool kVector, class T, int kWidth>
  static __device__ __forceinline__ void fetch(Acc (&to)[kWidth], const T* from, int count) {
    struct alignas(kVector ? 16 : sizeof(T)) Piece {
      T elements[kWidth];
    };
    if (count == kWidth) {
      const Piece piece = *reinterpret_cast<const Piece*>(from);
#pragma unroll
      for (int e = 0; e < kWidth; ++e) to[e] = Acc(widen(piece.elements[e]));
      return;
    }
#pragma unroll
    for (int e = 0; e < kWidth; ++e) to[e] = e < count ? Acc(widen(from[e])) : Acc(0);
  }

  static __device__ __forceinline__ void multiply(const Acc* x, const Acc* y, int row, int column, int depth,
                                                  Acc (&acc)[TM][TN]) {
#pragma unroll 2
    for (int k = 0; k < depth; k += kQuad) {
      Acc a[kQuad][TM], b[kQuad][TN];
      XPart::read(x, k, row, a);
      YPart::read(y, k, column, b);
#pragma unroll
      for (int kk = 0; kk < kQuad; ++kk)
#pragma unroll
        for (int i = 0; i < TM; ++i)
#pragma unroll
          for (int j = 0; j < TN; ++j) acc[i][j] = multiply_add(a[kk][i], b[kk][j], acc[i][j]);
    }
  }

  // Rows of all products follow one another in the result and in shared memory.
  template <int kWidth, class Epilogue>
  static __device__ __forceinline__ void store(const Epilogue& epilogue, const Acc* results, int64_t outer, int rows, int n) {
    constexpr int kColumns = BN <= 8 ? 8 : BN <= 16 ? 16 : BN <= 32 ? 32 : 64;
    constexpr int kLanes = kColumns / kWidth < 32 ? kColumns / kWidth : 32, kRows = 2 * (32 / kLanes);  // two of a lane
    const int warp = int(threadIdx.x) / 32, lane = int(threadIdx.x) % 32;
#pragma unroll 1
    for (int first = warp * kRows; first < rows; first += kThreads / 32 * kRows)
      store_narrow_rows<kWidth, kColumns, kRows>(epilogue, outer + first, rows - first, 0, n, lane, [&](int r, int c) {
        struct {
          Acc at[kWidth];
        } values;
        const Acc* const from = results + (first + r) * kStored + c;
        if constexpr (kWidth % 4 == 0) {
#pragma unroll
          for (int v = 0; v < kWidth; v += 4) read_four(from + v, values.at + v);
        } else {
#pragma unroll
          for (int v = 0; v < kWidth; ++v) values.at[v] = from[v];
        }
        return values;
      });
  }

  // Products kBatches · block and those after it.
  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const Epilogue& epilogue, uint32_t block) {
    using T = typename Operands::Element;
    using I = typename Operands::Index;
    extern __shared__ __align__(16) char shared[];
    const int64_t first = int64_t(block) * kBatches;
    const int products = int(min(o.batches - first, int64_t(kBatches)));
    const int m = int(o.m), n = int(o.n), k = int(o.k);
    Acc* const x = reinterpret_cast<Acc*>(shared);
    Acc* const y = x + kBatches * XPart::kLength;
    const auto x_of = [&](int product) { return o.x_of(uint32_t(first) + uint32_t(product)); };
    const auto y_of = [&](int product) { return o.y_of(uint32_t(first) + uint32_t(product)); };
    load<XPart, kXVector, T, I>(x, x_of, kXAlongK ? o.x_row : o.x_column, kXAlongK ? o.x_column : o.x_row, kXAlongK ? m : k,
                                kXAlongK ? k : m, products);
    load<YPart, kYVector, T, I>(y, y_of, kYAlongK ? o.y_column : o.y_row, kYAlongK ? o.y_row : o.y_column, kYAlongK ? n : k,
                                kYAlongK ? k : n, products);
    asm volatile("cp.async.wait_all;" ::: "memory");
    sync_threads<kThreads>();
    const int product = int(threadIdx.x) / kOfProduct, of_product = int(threadIdx.x) % kOfProduct;
    const int row = of_product / kAcross * TM, column = of_product % kAcross * TN;
    const bool has_results = product < products;
    Acc acc[TM][TN] = {};
    if (has_results) multiply(x + product * XPart::kLength, y + product * YPart::kLength, row, column, k, acc);
    sync_threads<kThreads>();
    Acc* const results = x;
    if (has_results) {
#pragma unroll
      for (int i = 0; i < TM; ++i)
        if (row + i < m) write_four(results + (product * m + row + i) * kStored + column, acc[i]);
    }
    sync_threads<kThreads>();
    constexpr int kWidth = Operands::kWholeGroups ? 8 : Operands::kStoredColumns == 8 ? 4 : Operands::kStoredColumns;
    store<kWidth>(epilogue, results, first * m, products * m, n);
  }
};

}  // namespace aicf
