// A product of up to eight rows whose x lies in shared memory from end to end, put there by the block itself: a copy, or a
// prologue, the region before the product (a norm, a gate), which every block recomputes over all rows or its part of K.
// That costs a few kilobytes of reads from the L2 cache for each block and saves a launch; the stages hold nothing but y,
// which comes meanwhile. x goes to the matrix instructions through registers ("RS" in CUTLASS): row r of k, k + 1 lies in
// lane 4r + k / 2 of the first warp.
#pragma once

#include "matmul/cuda/wgmma.cuh"

namespace aicf {

// Make of a copy: rows that are neighbours of 16 bytes along k.
template <class Operands>
struct CopiedX {
  const Operands& o;
  __device__ __forceinline__ void operator()(typename Operands::Element* x, int pitch, int k_first, int k_end) const {
    constexpr int kVector = 8;
    for (int row = 0; row < int(o.m); ++row)
#pragma unroll 4
      for (int k = k_first + int(threadIdx.x) * kVector; k < k_end; k += 128 * kVector)
        *reinterpret_cast<uint4*>(x + row * pitch + k) = *reinterpret_cast<const uint4*>(o.x + row * o.x_row + k);
  }
};

// x lies in shared memory from kXAt on, row-major, behind all that Product has there: all of K, or with kOwnPart what the
// block multiplies. Multiply: a struct with run(float (&d)[BN / 2], uint32_t low, uint32_t high,
// uint64_t b), generated like Product's.
template <class Product, class Multiply, int kXAt, bool kOwnPart>
struct WgmmaRsMatmul : Product {
  using typename Product::Shared;
  using typename Product::Stage;
  using typename Product::Work;

  // Make: make(x, pitch, k_first, k_end) writes these columns of all rows, or all; x is where column 0 of row 0 would be.
  template <class Element, class Make>
  struct ResidentX {
    static constexpr bool kInRegisters = false;
    const Make& make;
    Element* x;
    int rows, pitch;

    __device__ __forceinline__ void begin(const Work& work) const {
      make(x, pitch, work.k_first, work.k_first + work.steps * kWgmmaDepth);
      sync_threads<128>();
    }

    struct XFragments {
      uint32_t at[kWgmmaDepth / 16][2];
    };
    // Of the 64 columns from k on; 0 in the lanes without a row.
    __device__ __forceinline__ XFragments part(int k) const {
      const int lane = int(threadIdx.x) % 32, row = lane / 4;
      const bool live = threadIdx.x < 32 && row < rows;
      const uint32_t from = shared_address(x) + uint32_t((live ? row * pitch : 0) + k + lane % 4 * 2) * 2;
      XFragments part;
#pragma unroll
      for (int i = 0; i < kWgmmaDepth / 16; ++i)
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          asm volatile("ld.shared.u32 %0, [%1];" : "=r"(part.at[i][half]) : "r"(from + i * 32 + half * 16) : "memory");
          if (!live) part.at[i][half] = 0;
        }
      return part;
    }

    static __device__ __forceinline__ void multiply(const Shared& shared, const Stage& stage, const XFragments& part,
                                                    float (&acc)[Product::kResults]) {
      barrier_wait(shared.full(stage.slot), stage.parity);
      const uint64_t b = wgmma_descriptor<Product::kAlongK>(shared.y(stage.slot));
      wgmma_fence();
#pragma unroll
      for (int i = 0; i < kWgmmaDepth / 16; ++i)
        Multiply::run(acc, part.at[i][0], part.at[i][1], b + i * wgmma_k_step<Product::kAlongK>);
      wgmma_commit();
    }

    // Two steps at a time, so that each has registers of its own for x while the one before is under way.
    template <class Operands>
    __device__ __forceinline__ void accumulate(const Operands&, const Shared& shared, Stage stage, const Work& work,
                                               const MatmulTile&, int, float (&acc)[1][Product::kResults]) const {
      XFragments parts[2] = {part(work.k_first)};
      uint32_t before = 0;
      for (int step = 0; step < work.steps; step += 2) {
#pragma unroll
        for (int i = 0; i < 2; ++i) {
          if (step + i >= work.steps) break;
          multiply(shared, stage, parts[i], acc[0]);
          wgmma_wait<1>();  // the step before has read its stage and its x
          if (step + i > 0) Product::release(shared, before);
          before = stage.slot;
          stage.next();
          if (step + i + 1 < work.steps) parts[1 - i] = part(work.k_first + (step + i + 1) * kWgmmaDepth);
        }
      }
      wgmma_wait<0>();
      if (work.steps > 0) Product::release(shared, before);
    }
  };

  template <class Operands, class Epilogue, class Make>
  static __device__ void run(const Operands& o, const CUtensorMap* y_map, const Epilogue& epilogue, int part_depth,
                             const Make& make) {
    using Element = typename Operands::Element;
    extern __shared__ __align__(1024) char memory[];
    const int first = kOwnPart && Product::kInCluster ? int(cluster_rank()) * part_depth : 0;
    const ResidentX<Element, Make> x{make, reinterpret_cast<Element*>(memory + kXAt) - first, int(o.m),
                                 kOwnPart ? part_depth : int(o.k)};
    Product::run_from(x, o, nullptr, y_map, epilogue, part_depth);
  }
};

}  // namespace aicf
