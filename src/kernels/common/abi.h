// The launch ABI of CPU kernels: what a kernel gets when it runs. Addresses, sizes and strides are plain
// numbers here; the plan's symbolic sizes were evaluated at bind. prepare() runs once per bind and may
// allocate; run() must not allocate, block or throw, except that a data-dependent error (an index out of
// range) is reported through CallError.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/dtype.h"
#include "kernels/common/tile_program.h"

namespace aicf {

inline constexpr int kMaxRank = 12;

struct TensorArg {
  void* data = nullptr;  // address of the element at index 0, …, 0
  DType dtype = DType::f32;
  int rank = 0;
  int64_t sizes[kMaxRank] = {};
  int64_t strides[kMaxRank] = {};  // in elements; 0 broadcasts, negative walks backwards
};

enum class IsaLevel : uint8_t { kPortable, kAvx2, kAvx512 };

// First data-dependent error of a call: kernels store the offending value once, the runtime reports it after
// the run.
struct CallError {
  std::atomic<int32_t> raised{0};
  int64_t value = 0, bound = 0;
  void raise(int64_t v, int64_t b) {
    int32_t none = 0;
    if (raised.compare_exchange_strong(none, 1)) {
      value = v;
      bound = b;
    }
  }
};

struct BoundCall;
// Runs tile `tile` of call.tiles. `scratch` is this worker's private memory of call.scratch_bytes, 64-byte
// aligned.
using RunTile = void (*)(const BoundCall& call, int64_t tile, std::byte* scratch);

// The weights that a tile reads first: pieces of `bytes` bytes each, `stride` bytes apart.
struct FirstWeights {
  const std::byte* from;
  int64_t pieces, bytes, stride;
};

struct BoundCall {
  std::vector<TensorArg> inputs, outputs;
  std::vector<int64_t> params;  // in the order of the kernel row's parameter list
  std::vector<double> fparams;
  const TileProgram* program = nullptr;  // region code or epilogue; null if none
  IsaLevel isa = IsaLevel::kPortable;
  CallError* error = nullptr;  // never null when running

  // Set by the driver; results do not depend on them:
  int64_t workers = 1;                   // that share the tiles, each beginning with its own share
  const BoundCall* following = nullptr;  // the next call of the sequence with first_weights; null: none

  // Set by prepare():
  RunTile run = nullptr;
  int64_t tiles = 0;          // independent pieces; any worker may take any, results do not depend on who
  int64_t scratch_bytes = 0;  // per worker
  // Null unless tiles read weights, which no step before has brought into a near cache.
  FirstWeights (*first_weights)(const BoundCall& call, int64_t tile) = nullptr;
  // What prepare() computed for run(), e.g. collapsed strides; 64-bit words so that plain structs fit by
  // memcpy.
  std::vector<int64_t> state;
};

// First tile of a worker's share; the last share ends at `tiles`.
inline int64_t share_begin(int64_t tiles, int64_t workers, int64_t worker) {
  return tiles / workers * worker + tiles % workers * worker / workers;
}

// The worker whose share ends with this tile; -1 if none does.
inline int64_t share_ending_with(const BoundCall& call, int64_t tile) {
  for (int64_t worker = 0; worker < call.workers; ++worker)
    if (share_begin(call.tiles, call.workers, worker + 1) == tile + 1) return worker;
  return -1;
}

}  // namespace aicf
