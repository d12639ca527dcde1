// Which candidate is likely the fastest of a problem that nobody measured, by what was measured of others.
// The estimates of the kernel table's rows are physical and rank most candidates well, but rows do not share
// a model, and no two tiles miss their estimate alike. A small regression over the estimate, the sizes and
// the tile, fitted by bench/fit_order.py to the best estimated candidates of problems drawn by seeds
// (docs/tuning.md), puts the likely fastest first. Learned cost models order candidates so in other
// compilers, too: Chen et al., Learning to Optimize Tensor Programs, 2018.
#pragma once

#include <vector>

#include "select/kernel_call.h"

namespace aicf {

// Whether problems like this one were measured: products, convolutions and attention on sm_90, of up to the
// sizes that were drawn. Masks, strides of images and ranges, which count by their upper ends, were not
// drawn.
bool is_like_measured(const ProblemKey& key);
// Whether ways like this candidate's were among those measured: of younger ones the regression knows nothing.
bool is_like_measured(const ProblemKey& key, const Candidate& candidate);

// What the regression sees of a candidate of such a problem; `first` is the rows' own choice.
std::vector<double> order_features(const ProblemKey& key, const Candidate& candidate, const Candidate& first);

// Moves the candidate that is likely the fastest to the front, if it is likely enough; the others keep their
// order, which is that of their rows. It is expected to take no longer than the one that it goes before: its
// price is then at most that one's. Whether it moved one. Problems unlike those measured stay as they are.
bool order_by_measurements(const ProblemKey& key, std::vector<Candidate>& candidates);

}  // namespace aicf
