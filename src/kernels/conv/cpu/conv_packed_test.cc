// Convolutions with packed weights beside those with plain ones.
#include <functional>

#include "kernels/conv/testing/conv_case.h"

namespace aicf {
namespace {

using namespace conv_testing;

// Packed weights, any layout, tiles in any order: the bits of conv_f32.
TEST(Conv, PackedEqualsPlain) {
  std::vector<ConvCase> list = cases();
  list.push_back({1, 64, 100, 1, {13, 15}, {3, 3}, {2, 1}, {1, 1}, {1, 1}, {1, 1}});
  list.push_back({2, 48, 36, 3, {9, 10}, {3, 2}, {1, 1}, {1, 0}, {1, 1}, {2, 1}, false});
  list.push_back({1, 9, 200, 1, {40, 41}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}});
  list.push_back({1, 24, 310, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}});  // halved inside a panel
  list.push_back({1, 10, 16, 1, {4, 5, 6}, {3, 3, 3}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}, {1, 1, 1}});
  for (const ConvCase& c : list) {
    for (IsaLevel isa : isa_levels()) {
      Tensors plain = make(c, DType::f32, false, Layout::kDense);
      run_step(step_of(c, plain, "conv_f32"), isa);
      for (Layout layout : {Layout::kDense, Layout::kChannelsLast, Layout::kReversed, Layout::kGaps}) {
        Tensors t = make(c, DType::f32, false, layout);
        t.out.poison();
        run_step(packed_step(c, t, pack(c, t, isa)), isa, true);
        for (int64_t i = 0; i < t.out.count(); ++i)
          ASSERT_EQ(t.out.bits(i), plain.out.bits(i)) << isa_name(isa) << " element " << i;
      }
    }
  }
}

// Few pixels: workers share output channels, whose tiles end anywhere in the panels of an ISA.
TEST(Conv, PackedOfFewPixelsTakesAnyNumberOfMaps) {
  for (const int64_t maps : {145, 160, 177, 208, 224, 256, 272, 320, 369}) {
    const ConvCase c = {1, 32, maps, 1, {7, 7}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
    for (const IsaLevel isa : isa_levels()) {
      Tensors plain = make(c, DType::f32, false, Layout::kDense);
      run_step(step_of(c, plain, "conv_f32"), isa);
      for (const int64_t workers : {1, 2, 3, 4, 8, 17}) {
        Tensors t = make(c, DType::f32, false, Layout::kChannelsLast);
        t.out.poison();
        const Packed packed = pack(c, t, isa);
        Step step = packed_step(c, t, packed);
        step.workers = workers;
        run_step(step, isa, true);
        for (int64_t i = 0; i < t.out.count(); ++i)
          ASSERT_EQ(t.out.bits(i), plain.out.bits(i))
              << isa_name(isa) << " " << maps << " maps, " << workers << " workers, element " << i;
      }
    }
  }
}

// Last panels of every width, and rows that fill no tile.
TEST(Conv, PackedTakesAnyNumberOfMapsAndPixels) {
  for (int64_t maps = 1; maps <= 80; ++maps) {
    const ConvCase c = {1, 6, maps, 1, {1 + maps % 13, 1}, {1, 1}, {1, 1}, {0, 0}, {0, 0}, {1, 1}};
    for (const IsaLevel isa : isa_levels()) {
      Tensors plain = make(c, DType::f32, false, Layout::kDense);
      run_step(step_of(c, plain, "conv_f32"), isa);
      Tensors t = make(c, DType::f32, false, Layout::kChannelsLast);
      t.out.poison();
      run_step(packed_step(c, t, pack(c, t, isa)), isa, true);
      for (int64_t i = 0; i < t.out.count(); ++i)
        ASSERT_EQ(t.out.bits(i), plain.out.bits(i)) << isa_name(isa) << " " << maps << " maps, element " << i;
    }
  }
}

TEST(Conv, PackedRefusesStepsThatDoNotFit) {
  const ConvCase c = {1, 4, 6, 2, {9, 9}, {3, 3}, {1, 1}, {1, 1}, {1, 1}, {1, 1}};
  const Tensors t = make(c, DType::f32, false, Layout::kDense);
  const Packed packed = pack(c, t, IsaLevel::kPortable);
  const Step good = packed_step(c, t, packed);
  bind_step(good, IsaLevel::kPortable);
  const auto broken = [&](const char* what, const std::function<void(Step&)>& change) {
    Step step = good;
    change(step);
    expect_refused(step, what);
  };
  broken("too few bytes", [](Step& s) { --s.inputs[1].sizes[0]; });
  broken("strided bytes", [](Step& s) { s.inputs[1].strides[0] = 2; });
  broken("dtype of the bytes", [](Step& s) { s.inputs[1].dtype = DType::f32; });
  broken("kernel", [](Step& s) { s.params.back() = 5; });
  broken("huge kernel", [](Step& s) { s.params.back() = int64_t{1} << 40; });
  broken("groups", [](Step& s) { s.params[1] = 4; });
  broken("missing kernel", [](Step& s) { s.params.pop_back(); });
  broken("channels", [](Step& s) { s.inputs[0].sizes[1] = 6; });
  Step step{"pack_conv_w_f32", {t.w.arg()}, {packed.arg}, {2}, {}};
  bind_step(step, IsaLevel::kPortable);
  step.params[0] = 4;
  expect_refused(step, "groups of the weights");
  step.params[0] = 2;
  --step.outputs[0].sizes[0];
  expect_refused(step, "too few bytes for the weights");
}

}  // namespace
}  // namespace aicf
