// Running. A Model is a loaded artifact: weights, shared by any number of users and threads. An Executable is
// one user of it with states and working memory of its own; it has one run in flight (AICF-U0404), so give
// each thread a clone.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "aicf/compile.h"
#include "aicf/error.h"
#include "aicf/tensor.h"

namespace aicf::v1 {

// Where the memory of a GPU comes from in place of the driver. Called from any thread that loads, runs or
// destroys.
struct DeviceAllocator {
  std::function<void*(int64_t bytes)> allocate;  // a multiple of 256; null if there is no memory left
  std::function<void(void* address, int64_t bytes)> release;
};

struct LoadOptions {
  int threads = 0;             // 0: AICF_NUM_THREADS, else the physical cores. Results do not depend on it.
  std::string isa;             // "", or pins "avx2", "avx512", "portable"
  std::string device = "cpu";  // or "cuda", "cuda:ORDINAL"
  // CUDA: what the model and all its Executables take together, in bytes; 0: no limit. Beyond it AICF-U0503.
  int64_t device_memory_limit = 0;
  DeviceAllocator allocator;  // CUDA; empty: the driver's
};

// An input or output. Sizes may be symbolic.
struct TensorSpec {
  std::string name;
  DType dtype = DType::f32;
  std::vector<Size> sizes;
  std::vector<SizeRange> ranges;  // what each size may be
};

class AICF_API Model {
 public:
  static Model load(const std::string& path, const LoadOptions& options = {});
  explicit Model(const Artifact& artifact, const LoadOptions& options = {});

  void save(const std::string& path) const;
  const std::map<std::string, std::string>& metadata() const;
  std::vector<std::string> entries() const;
  // Of the entry; "" is the first.
  std::vector<TensorSpec> inputs(const std::string& entry = "") const;
  std::vector<TensorSpec> outputs(const std::string& entry = "") const;
  // The named sizes and what they may be.
  std::map<std::string, SizeRange> sizes() const;
  // Steps and memory, for people.
  std::string plan_text() const;
  std::vector<std::string> weight_names() const;
  // A model with some weights replaced: same names, types and sizes.
  Model with_weights(const std::map<std::string, Tensor>& weights) const;

 private:
  friend struct Access;
  Model() = default;
  struct Impl;
  detail::Held<std::shared_ptr<const Impl>> impl_;
};

struct RunOptions {
  // CUDA: the stream (a CUstream or cudaStream_t) that the run is ordered on; null: one of the Executable's
  // device. It must live until the next run or finish(). The legacy default stream is CU_STREAM_LEGACY.
  void* stream = nullptr;
  // false: return when the run is queued, if inputs and outputs are in the device's memory. Errors in data
  // are then met by finish() or a later run.
  bool wait = true;
};

struct VerifyResult {
  int64_t replays = 0;
  std::map<std::string, int64_t> hashes;  // hash of all outputs and states → how many replays gave it
  bool passed() const { return replays > 0 && hashes.size() == 1; }
};

class AICF_API Executable {
 public:
  explicit Executable(const Model& model);
  static Executable load(const std::string& path, const LoadOptions& options = {});
  Executable(Executable&&) noexcept;
  Executable& operator=(Executable&&) noexcept;
  ~Executable();

  const Model& model() const;

  // By name; the outputs are fresh memory. AICF-U0400 an input is missing, -U0401 unknown, -U0402 wrong
  // dtype, -U0403 wrong shape, -U0201 a size outside the compiled range, -U0202 two inputs disagree about a
  // size.
  std::map<std::string, Tensor> run(const std::map<std::string, TensorView>& inputs,
                                    const std::string& entry = "");
  // In the order of Model::inputs() and outputs().
  std::vector<Tensor> run(const std::vector<TensorView>& inputs, const std::string& entry = "");
  // Writes into memory of the caller. Sizes seen before and row-major memory: allocates nothing.
  void run_into(const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs,
                const RunOptions& options = {});
  void run_into(const std::string& entry, const std::vector<TensorView>& inputs,
                const std::vector<TensorView>& outputs, const RunOptions& options = {});
  // Waits for the runs that were not waited for.
  void finish();
  // Outputs in the device's memory, from a pool.
  std::vector<DeviceTensor> run_on_device(const std::vector<TensorView>& inputs,
                                          const RunOptions& options = {}, const std::string& entry = "");
  // A tensor in the device's memory with the contents of the view.
  DeviceTensor to_device(const TensorView& view, void* stream = nullptr);
  // What run_into's outputs must be for inputs of these sizes; data of the inputs is not read.
  std::vector<std::vector<int64_t>> output_sizes(const std::vector<TensorView>& inputs,
                                                 const std::string& entry = "") const;

  std::vector<std::string> state_names() const;
  Tensor state(const std::string& name) const;
  void set_state(const std::string& name, const TensorView& value);
  // All states as at load.
  void reset();
  // A second user of the model, states copied.
  Executable clone() const;

  // Replays from the states at load and hashes every result. Without inputs: made-up ones, from the seed,
  // at the lowest sizes. Leaves the states as they were.
  VerifyResult verify(int64_t replays, uint64_t seed = 0);
  VerifyResult verify(int64_t replays, const std::map<std::string, TensorView>& inputs,
                      const std::string& entry = "");

 private:
  friend struct Access;
  struct Impl;
  explicit Executable(std::unique_ptr<Impl> impl);
  detail::Held<std::unique_ptr<Impl>> impl_;
};

}  // namespace aicf::v1
