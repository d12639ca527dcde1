// Which candidate is likely the fastest of a problem that nobody measured, by what was measured of others.
// The estimates of the kernel table's rows are physical and rank most candidates well, but rows do not share
// a model, and no two tiles miss their estimate alike. A small regression over the estimate, the sizes and
// the tile, fitted by bench/fit_order.py to all candidates of problems drawn by seeds (docs/tuning.md), puts
// the likely fastest first. Learned cost models order candidates so in other compilers, too: Chen et al.,
// Learning to Optimize Tensor Programs, 2018.
#pragma once

#include <vector>

#include "select/kernel_call.h"

namespace aicf {

// What the regression sees of each candidate; `candidates` are all of the problem, as their rows rank them.
// None of a problem unlike those that were measured: products, convolutions and attention on sm_90, of up to
// the sizes that were drawn.
std::vector<std::vector<double>> order_features(const ProblemKey& key,
                                                const std::vector<Candidate>& candidates);

// Moves the candidate that is likely the fastest to the front, if it is likely enough; the others keep their
// order. Whether it moved one.
bool order_by_measurements(const ProblemKey& key, std::vector<Candidate>& candidates);

}  // namespace aicf
