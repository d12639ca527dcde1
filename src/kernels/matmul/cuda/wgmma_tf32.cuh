// Products of f32 in tf32 on wgmma.cuh. wgmma cuts the last 13 bits of an operand of f32, which is not how
// tf32 rounds. So x goes to the matrix instructions through registers ("RS" in CUTLASS), where each warp
// rounds the 16 rows that it multiplies, and y has to lie in memory rounded. K counts 2 bytes, in Operands as
// in Product: a stage has the bytes of 64 halves, an instruction takes 8 elements. A result is the sum of its
// products of 8 steps of k each in ascending order.
#pragma once

#include "matmul/cuda/mma.cuh"
#include "matmul/cuda/wgmma.cuh"

namespace aicf {

// Multiply: a struct with run(float (&d)[BN / 2], const uint32_t (&a)[4], uint64_t b), see wgmma_text.h.
// Product: a WgmmaMatmul whose x and y run along k.
template <class Product, class Multiply>
struct WgmmaTf32 : Product {
  using typename Product::Shared;
  using typename Product::Stage;
  using typename Product::Work;
  static constexpr int kRowBlocks = Product::kRowBlocks, kInstructions = kWgmmaDepth / 16;  // of a stage
  static_assert(Product::kXRowsAlongK && Product::kAlongK && Product::kRowsOfX > 0,
                "both come in stages along k");

  struct RoundedX {
    static constexpr bool kInRegisters = true;
    __device__ __forceinline__ void begin(const Work&) const {}

    // A stage's rows of a warp: what each instruction takes of them.
    struct WarpRows {
      uint32_t at[kRowBlocks][kInstructions][4];
    };
    static __device__ __forceinline__ void load(WarpRows& part, uint32_t x, int first_row) {
      const uint32_t lane = threadIdx.x % 32,
                     row = uint32_t(first_row) + threadIdx.x / 32 % 4 * 16 + lane % 16;
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int k = 0; k < kInstructions; ++k) {
          const uint32_t chunk = uint32_t(k) * 2 + lane / 16;
          load_matrices<false>(part.at[i][k],
                               x + (row + uint32_t(i) * 64) * 128 + ((chunk ^ (row & 7)) << 4));
        }
#pragma unroll
      for (int i = 0; i < kRowBlocks; ++i)
#pragma unroll
        for (int k = 0; k < kInstructions; ++k) MmaType<float>::prepare(part.at[i][k]);
    }

    // Two steps at a time, so that each has registers of its own for x while the one before is under way.
    template <class Operands>
    __device__ __forceinline__ void accumulate(const Operands&, const Shared& shared, Stage stage,
                                               const Work& work, const MatmulTile&, int warpgroup,
                                               float (&acc)[kRowBlocks][Product::kResults]) const {
      static_assert(!Operands::kSumsX, "rows of halves are summed");
      const int first_row = Product::row_of(warpgroup);
      WarpRows parts[2];
      const auto fill = [&](WarpRows& part) {
        barrier_wait(shared.full(stage.slot), stage.parity);
        load(part, shared.x(stage.slot), first_row);
      };
      uint32_t before = 0;
      if (work.steps > 0) fill(parts[0]);
      for (int step = 0; step < work.steps; step += 2) {
#pragma unroll
        for (int turn = 0; turn < 2; ++turn) {
          if (step + turn >= work.steps) break;
          const uint64_t b = wgmma_descriptor<true>(shared.y(stage.slot));
          wgmma_fence();
#pragma unroll
          for (int k = 0; k < kInstructions; ++k)
#pragma unroll
            for (int i = 0; i < kRowBlocks; ++i)
              Multiply::run(acc[i], parts[turn].at[i][k], b + k * wgmma_k_step<true>);
          wgmma_commit();
          wgmma_wait<1>();  // the step before has read its stage and its x
          if (step + turn > 0) Product::release(shared, before);
          before = stage.slot;
          stage.next();
          if (step + turn + 1 < work.steps) fill(parts[1 - turn]);
        }
      }
      Product::pass_turn(warpgroup);
      wgmma_wait<0>();
      if (work.steps > 0) Product::release(shared, before);
    }
  };

  template <class Operands, class Epilogue>
  static __device__ void run(const Operands& o, const CUtensorMap* x_map, const CUtensorMap* y_map,
                             const Epilogue& epilogue, int part_depth, void* workspace = nullptr) {
    Product::run_from(RoundedX{}, o, x_map, y_map, epilogue, part_depth, workspace);
  }
};

}  // namespace aicf
