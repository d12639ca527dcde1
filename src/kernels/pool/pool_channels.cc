#include <limits>

#include "kernels/common/isa.h"
#include "kernels/common/step_check.h"
#include "kernels/pool/pool_plan.h"
#include "kernels/pool/pool_rows.h"

namespace aicf {

AICF_DECLARE_PER_ISA(extern const PoolIsa kPoolIsa)

namespace {

// One row of output positions: body(result, o, for_each_tap) with for_each_tap(take) calling take(x, first)
// for the positions of the window inside the input.
template <class Body>
void run_row(const BoundCall& call, int64_t tile, Body body) {
  const PoolPlan& plan = stored_plan<PoolPlan>(call);
  const WindowAxis* axis = plan.windows.axis;
  const int64_t y = tile % axis[1].out, z = tile / axis[1].out % axis[0].out,
                n = tile / axis[1].out / axis[0].out;
  const float* x = static_cast<const float*>(call.inputs[0].data) + n * plan.x_batch;
  float* out = static_cast<float*>(call.outputs[0].data) + n * plan.out_batch + z * axis[0].out_stride +
               y * axis[1].out_stride;
  const KernelRange zs = kernel_range(axis[0], z), ys = kernel_range(axis[1], y);
  const int64_t padded = padded_count(axis[0], z) * padded_count(axis[1], y);
  for (int64_t o = 0; o < axis[2].out; ++o, out += axis[2].out_stride) {
    const KernelRange xs = kernel_range(axis[2], o);
    int64_t taken = 0;
    const auto for_each_tap = [&](auto take) {
      for (int64_t kz = zs.begin; kz < zs.end; ++kz)
        for (int64_t ky = ys.begin; ky < ys.end; ++ky)
          for (int64_t kx = xs.begin; kx < xs.end; ++kx)
            take(x + axis[0].position(z, kz) * axis[0].in_stride +
                     axis[1].position(y, ky) * axis[1].in_stride +
                     axis[2].position(o, kx) * axis[2].in_stride,
                 taken++ == 0);
      return taken;
    };
    body(plan, out, padded * padded_count(axis[2], o), for_each_tap);
  }
}

}  // namespace

void max_channels_last(const BoundCall& call, int64_t tile, std::byte*) {
  const PoolIsa& isa = *AICF_PICK_ISA(call.isa, kPoolIsa);
  run_row(call, tile, [&](const PoolPlan& plan, float* out, int64_t, auto for_each_tap) {
    const int64_t taken =
        for_each_tap([&](const float* x, bool first) { isa.take_max(out, x, plan.channels, first); });
    if (taken == 0) std::fill_n(out, plan.channels, -std::numeric_limits<float>::infinity());
  });
}

void average_channels_last(const BoundCall& call, int64_t tile, std::byte*) {
  const PoolIsa& isa = *AICF_PICK_ISA(call.isa, kPoolIsa);
  run_row(call, tile, [&](const PoolPlan& plan, float* out, int64_t padded, auto for_each_tap) {
    const int64_t taken =
        for_each_tap([&](const float* x, bool first) { isa.take_sum(out, x, plan.channels, first); });
    if (taken == 0) std::fill_n(out, plan.channels, 0.0f);
    isa.divide(out, plan.channels, static_cast<float>(plan.flag ? padded : taken));
  });
}

}  // namespace aicf
