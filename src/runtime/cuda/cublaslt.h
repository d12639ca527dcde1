// Contractions by cuBLASLt, which is loaded at run time. Takes bound windows and a CublasLtCall; enqueues the
// product on a stream, which a graph captures. Names and values are those of NVIDIA's cuBLASLt reference.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "kernels/matmul/cublaslt_call.h"
#include "runtime/cuda/driver.h"

namespace aicf::cuda {

// 130101: 13.1.1. EnvironmentError device_missing if the library is not there.
int64_t cublaslt_version();

class CublasLtMatmul {
 public:
  // Descriptors for these windows, in the current context. bad_artifact if the library cannot take them or
  // the algorithm is none for this problem.
  CublasLtMatmul(const CublasLtCall& call, const std::vector<TensorArg>& inputs, const TensorArg& out,
                 const std::string& origin);
  ~CublasLtMatmul();
  CublasLtMatmul(const CublasLtMatmul&) = delete;
  CublasLtMatmul& operator=(const CublasLtMatmul&) = delete;

  // Addresses are those of the windows given.
  void enqueue(const std::vector<TensorArg>& inputs, const TensorArg& out, void* workspace,
               StreamHandle stream);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// Calls of the same meaning with the algorithms that the library recommends, best first, none of which needs
// more workspace than `most_workspace`. Empty if it has none.
std::vector<CublasLtCall> cublaslt_algorithms(const CublasLtCall& meaning,
                                              const std::vector<TensorArg>& inputs, const TensorArg& out,
                                              int count, int64_t most_workspace);

}  // namespace aicf::cuda
