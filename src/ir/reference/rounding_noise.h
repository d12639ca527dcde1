// Stochastic arithmetic (D. S. Parker, Monte Carlo Arithmetic, UCLA CSD-970002, 1997; J. Vignes, A stochastic
// arithmetic for reliable scientific computation, 1993): a run of the evaluator in f64 in which every result
// is moved by a random error as large as its op's row of error_rules.h allows. Several runs show what such
// errors come to at the outputs: they grow and cancel as those of kernels do, which sums of worst cases do
// not. That sums of n terms lose sqrt(n) units and not n: N. J. Higham, T. Mary, A new approach to
// probabilistic rounding error analysis, SIAM J. Sci. Comput. 41(5), 2019.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <vector>

#include "ir/reference/ref_op.h"

namespace aicf::reference {

// What the runs over one graph and one set of inputs compute once.
struct NoiseCache {
  std::mutex mutex;
  std::map<const Node*, RefResults> exact;  // of nodes of whose operands none is moved
  // Of the sums of their terms' magnitudes, by node and how often it ran before (in a loop).
  std::map<std::pair<const Node*, size_t>, std::vector<double>> magnitudes;
};

class RoundingNoise {
 public:
  // Errors are up to `amplitude` times as large as the rows say. The graph has no composites and no regions
  // (primitives()), and outlives the cache.
  RoundingNoise(uint64_t seed, double amplitude, NoiseCache& cache);

  // The node's results with noise, then rounded to their dtypes if the run rounds; of halves the noise is
  // that of the f32 before. `moved`: an operand carries noise, or the node has a body.
  RefResults results(const RefContext& context, bool moved,
                     const std::function<RefResults()>& compute);  // `compute` does not round

 private:
  void perturb(const RefContext& context, RefTensor& result);
  const std::vector<double>& magnitudes(const RefContext& context);
  double uniform();  // in [-1, 1)

  uint64_t state_;
  double amplitude_;
  NoiseCache& cache_;
  std::map<const Node*, size_t> runs_;  // of nodes that sum
};

}  // namespace aicf::reference
