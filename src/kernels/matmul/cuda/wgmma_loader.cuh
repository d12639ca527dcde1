// The thread of a wgmma kernel that loads: tensor maps through the copy engine into the stages of wgmma.cuh.
#pragma once

#include "matmul/cuda/wgmma_instructions.cuh"

namespace aicf {

// Product: a WgmmaMatmul, of which it fills the stages.
template <class Product, class Operands>
struct WgmmaLoader {
  using Shared = typename Product::Shared;
  using Work = typename Product::Work;
  using Stage = typename Product::Stage;
  static constexpr int BM = Product::kBlockM, BN = Product::kBlockN, kStages = Product::kPipeline;
  const Operands& o;
  const CUtensorMap *x_map, *y_map;
  const Shared& shared;
  const Work& work;

  static __device__ __forceinline__ int k_of(const Work& part, int step) { return part.k_first + step * kWgmmaDepth; }
  // A stage is full when both of its tiles have come.
  __device__ __forceinline__ void expect(uint32_t slot) const {
    barrier_expect(shared.full(slot), Product::kRowsOfX * 128 + Product::kYBytes);
  }
  __device__ __forceinline__ void load_x(uint32_t slot, int k, const MatmulTile& tile) const {
    if constexpr (Product::kRowsOfX == 0) return;
    const int row = int(tile.row) * BM;
    if constexpr (Product::kXRowsAlongK) {
      o.load_x(x_map, shared.x(slot), shared.full(slot), k, row, tile.batch);
    } else {
#pragma unroll
      for (int panel = 0; panel < BM / 64; ++panel)
        o.load_x(x_map, shared.x(slot) + panel * kPanelBytes, shared.full(slot), k, row + panel * 64, tile.batch);
    }
  }
  // Panels of y are 64 columns along n, or all that the tile has along k; of a pair, half of them are of y1.
  static constexpr int kColumns = Product::template kTileColumns<Operands>;
  static constexpr int kYPanel = Product::kAlongK ? kColumns : 64;
  // Of a multicast each block sends all of them its part of every panel's rows.
  static constexpr int kYRows = (Product::kAlongK ? kColumns : kWgmmaDepth) / Product::kSharers;
  __device__ __forceinline__ void send_y(uint32_t slot, int k, const MatmulTile& tile) const {
    const int first = int(blockIdx.x % Product::kSharers) * kYRows;
#pragma unroll
    for (int panel = 0; panel < kColumns / kYPanel; ++panel)
      o.load_y(y_map, shared.y(slot) + panel * kPanelBytes + first * 128, shared.full(slot),
               k + (Product::kAlongK ? 0 : first),
               int(tile.column) * kColumns + panel * kYPanel + (Product::kAlongK ? first : 0), tile.batch);
  }
  __device__ __forceinline__ void load_y(uint32_t slot, int k, const MatmulTile& tile) const {
    if constexpr (Product::kMulticast) {
      send_y(slot, k, tile);
    } else {
#pragma unroll
      for (int panel = 0; panel < kColumns / kYPanel; ++panel)
        o.load_y(y_map, shared.y(slot) + panel * kPanelBytes, shared.full(slot), k,
                 int(tile.column) * kColumns + panel * kYPanel, tile.batch);
    }
    if constexpr (Operands::kDualGemm) {
#pragma unroll
      for (int panel = 0; panel < kColumns / kYPanel; ++panel)
        o.load_y1(o.y1_map, shared.y(slot) + kColumns * 128 + panel * kPanelBytes, shared.full(slot), k,
                  int(tile.column) * kColumns + panel * kYPanel, tile.batch);
    }
  }

  // All of x that the block's tiles have in common.
  __device__ __forceinline__ void load_kept(const MatmulTile& tile) const {
    for (int step = 0; step < work.steps; ++step) {
      barrier_expect(shared.kept_full(step), Product::kKeptBytes);
      o.load_x(x_map, shared.kept_x(step), shared.kept_full(step), k_of(work, step), int(tile.row) * BM, tile.batch);
    }
  }

  // Whether the early loads of x come step by step with those of y: 256 x 4096 x 4096 in tiles of 128 x 64 gained 0.5 us on
  // an H100 so, and lost as much with all of y first. Of tiles of 64 x 32, y is first: 16 x 4096 x 4096 took 11.6 us, 11.9 in
  // turns. Where they come in turns, y, which is not in the L2 cache, is ahead of x in every step: 18.3 us, 18.5 behind it.
  static constexpr bool kInTurns = Product::kXIsEarly && Product::kConsumers > 128;
  // The first stages, of which y need not wait, nor x that is early. Returns how many.
  __device__ int load_early() const {
    if (work.first >= work.tiles) {
      wait_for_inputs();
      return 0;
    }
    const MatmulTile tile = work.tile(work.first);
    const Work part = work.part(work.first);
    const int count = Product::kYIsConstant ? min(part.steps, kStages) : 0;
    for (int step = 0; step < count; ++step) {
      expect(step);
      load_y(step, k_of(part, step), tile);
      if constexpr (kInTurns) load_x(step, k_of(part, step), tile);
    }
    if constexpr (kInTurns) return count;
    if constexpr (!Product::kXIsEarly) wait_for_inputs();
    if constexpr (Product::kStationaryX) load_kept(tile);
    for (int step = 0; step < count; ++step) load_x(step, k_of(part, step), tile);
    return count;
  }

  // The next launch must not start before the last but one has ended (prelude.cuh).
  __device__ __forceinline__ void let_next_start() const {
    if constexpr (Product::kXIsEarly) wait_for_inputs();
    launch_dependents();
  }

  // The next launch starts when all of this one's loads are on their way, or the last kStepsLeft of each block
  // are not: its own early ones then keep the memory busy while this one ends.
  __device__ void run() const {
    int step = load_early();
    Stage stage{uint32_t(step)};
    bool told = Product::kLeftToLoad == 0;
    for (uint32_t index = work.first; index < work.tiles; index += work.stride, step = 0) {
      const MatmulTile tile = work.tile(index);
      const Work part = work.part(index);
      for (; step < part.steps; ++step, stage.next()) {
        if (!told && index + work.stride >= work.tiles && part.steps - step <= Product::kLeftToLoad) {
          told = true;
          let_next_start();
        }
        barrier_wait(shared.empty(stage.slot), stage.parity ^ 1);
        expect(stage.slot);
        const int k = k_of(part, step);
        if constexpr (kInTurns) load_y(stage.slot, k, tile);
        load_x(stage.slot, k, tile);
        if constexpr (!kInTurns) load_y(stage.slot, k, tile);
      }
    }
    let_next_start();
  }
};

}  // namespace aicf
