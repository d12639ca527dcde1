#include "runtime/variant_fit.h"

#include <gtest/gtest.h>

#include <cstdlib>

#include "base/error.h"
#include "runtime/model.h"
#include "runtime/null/null_device.h"

namespace aicf {
namespace {

TEST(VariantFit, CubinsStayWithinTheirMajorVersionAndPtxGoesOn) {
  EXPECT_GT(variant_fit("sm_90", 90), variant_fit("compute_80", 90));
  EXPECT_GT(variant_fit("sm_89", 89), variant_fit("sm_86", 89));
  EXPECT_GT(variant_fit("sm_80", 89), variant_fit("compute_80", 89));
  EXPECT_GT(variant_fit("compute_80", 120), 0);
  for (const auto& [target, arch] : {std::pair("sm_90", 89),
                                     {"sm_86", 80},
                                     {"sm_80", 90},
                                     {"sm_90", 100},
                                     {"compute_80", 75},
                                     {"cpu", 90},
                                     {"sm_", 90},
                                     {"junk_90", 90},
                                     {"sm_99999999999999999999", 90},
                                     {"", 90}})
    EXPECT_EQ(variant_fit(target, arch), 0) << target << " on " << arch;
}

TEST(VariantFit, EveryDeviceHasATargetThatRunsThere) {
  EXPECT_EQ(target_for("cpu"), "cpu");
  EXPECT_EQ(target_for("sm_75"), "");
  for (const int arch : {80, 86, 87, 89, 90, 100, 103, 120})
    EXPECT_GT(variant_fit(target_for("sm_" + std::to_string(arch)), arch), 0) << arch;
  EXPECT_EQ(target_for("sm_87"), "sm_86");
  EXPECT_EQ(target_for("sm_100"), "compute_80");
}

// The null driver takes every target.
TEST(Jit, PtxIsRefusedWhereNothingMayBeCompiled) {
  Artifact artifact;
  artifact.variants.push_back({"compute_80", {}});
  const auto device = make_null_device();
  Model::load(artifact, device);
  setenv("AICF_JIT", "0", 1);
  try {
    Model::load(artifact, device);
    ADD_FAILURE() << "it was loaded";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_no_variant);
    EXPECT_EQ(error.actual, "compute_80");
    EXPECT_NE(error.text().find("AICF_JIT"), std::string::npos) << error.text();
  }
  artifact.variants.push_back({"sm_90", {}});
  EXPECT_EQ(Model::load(artifact, device)->variant().target, "sm_90");
  setenv("AICF_JIT", "maybe", 1);
  EXPECT_THROW(Model::load(artifact, device), UserError);
  unsetenv("AICF_JIT");
}

}  // namespace
}  // namespace aicf
