// Which weights are stored in panels of 64 rows of K (kPanelDepth), on sm_90: those
// that products of few rows read, whose time is that of their weights, if nothing reads them in another form.
// One step of init lays them out; the products' tiles, sums and bits stay.
#pragma once

#include "select/call_program.h"

namespace aicf {

// The name that leaves weights as they are (CompileOptions::skip_passes).
inline constexpr char kPanelWeights[] = "panel_weights";

// Of all graphs together, which share their weights.
void panel_weights(CallProgram& program);

}  // namespace aicf
