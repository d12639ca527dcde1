#include "base/option_text.h"

#include <gtest/gtest.h>

#include <string>

namespace aicf {
namespace {

// Each text in the language of C++, Python and the command line.
struct Case {
  std::string (*text)();
  const char* spelled[3];
};

constexpr Case kCases[] = {
    {[] { return dims_text({{"batch", "1..8"}}); },
     {R"(dims = {{"batch", "1..8"}})", R"(dims={"batch": "1..8"})", "--dim batch=1..8"}},
    {[] { return dims_text({{"w", "2*h"}, {"h", "8"}}); },
     {R"(dims = {{"w", "2*h"}, {"h", "8"}})", R"(dims={"w": "2*h", "h": "8"})", "--dim w=2*h --dim h=8"}},
    {[] { return option_text(Option::kDim, "batch=8"); },
     {R"(dims = {{"batch", "8"}})", R"(dims={"batch": "8"})", "--dim batch=8"}},
    {[] { return option_text(Option::kTarget, "sm_90"); },
     {R"(target = "sm_90")", R"(options={"target": "sm_90"})", "--target sm_90"}},
    {[] { return option_text(Option::kDevice, "cpu"); },
     {R"(device = "cpu")", R"(device="cpu")", "--device cpu"}},
    {[] { return option_text(Option::kThreads, "2"); }, {"threads = 2", "threads=2", "--threads 2"}},
    {[] { return option_text(Option::kIsa, "avx2"); }, {R"(isa = "avx2")", R"(isa="avx2")", "--isa avx2"}},
    {[] { return option_text(Option::kOptLevel, "3"); },
     {"opt_level = 3", R"(options={"opt": 3})", "--opt 3"}},
    {[] { return option_text(Option::kSkipPass, "fuse"); },
     {R"(skip_passes = {"fuse"})", R"(options={"skip_passes": ["fuse"]})", "--skip fuse"}},
    {[] { return option_text(Option::kResult, "y"); },
     {R"(results = {"y"})", R"(options={"results": ["y"]})", "--result y"}},
    {[] { return values_text({"a", "b"}); },
     {R"(values = {{"a", array}, {"b", array}})", R"(inputs={"a": array, "b": array})",
      "--value a=x.npy --value b=x.npy"}},
    {[] { return untrained_text({"a", "b"}); },
     {R"(ParamGroup{.patterns = {"a", "b"}, .trainable = false})",
      R"(optim.Group(["a", "b"], trainable=False))",
      R"(ParamGroup{.patterns = {"a", "b"}, .trainable = false})"}},
};

class CallerIs {
 public:
  explicit CallerIs(Caller caller) : before_(aicf::caller()) { set_caller(caller); }
  ~CallerIs() { set_caller(before_); }

 private:
  Caller before_;
};

TEST(OptionText, IsWrittenInTheCallersLanguage) {
  for (const Case& one : kCases)
    for (const Caller caller : kCallers) {
      const CallerIs set(caller);
      EXPECT_EQ(one.text(), one.spelled[static_cast<size_t>(caller)]);
    }
}

TEST(OptionText, NoLanguageHasWordsOfAnother) {
  for (const Option option : kOptions)
    for (const Caller caller : kCallers) {
      const CallerIs set(caller);
      const std::string text = option_text(option, "a=b");
      EXPECT_EQ(text.find("--") != std::string::npos, caller == Caller::kCommandLine) << text;
      EXPECT_EQ(text.find(" = ") != std::string::npos, caller == Caller::kCpp) << text;
    }
}

}  // namespace
}  // namespace aicf
