#include <algorithm>
#include <charconv>
#include <string>
#include <string_view>

#include "base/error.h"
#include "kernels/common/custom_kernel.h"

namespace aicf {
namespace {

constexpr std::string_view kVersion = ".version ", kTarget = ".target sm_", kParam = ".param";
constexpr int kFirstWithWait = 90;  // programmatic dependent launch

UserError bad_ptx(const std::string& message, std::string expected) {
  return UserError(ErrorCode::kU_bad_attribute, message)
      .with_value("cuda")
      .with_expected(std::move(expected));
}

size_t skip_comments(std::string_view text) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t start = text.find_first_not_of(" \t\r\n", at);
    if (start == std::string_view::npos || !text.substr(start).starts_with("//")) return start;
    at = std::min(text.find('\n', start), text.size());
  }
  return std::string_view::npos;
}

// Where the name of the function's entry stands; npos if it has none.
size_t entry_of(const std::string& text, const std::string& function) {
  for (size_t at = text.find(".entry"); at != std::string::npos; at = text.find(".entry", at + 1)) {
    const size_t name = text.find_first_not_of(" \t\r\n", at + 6);
    if (name == std::string::npos || text.compare(name, function.size(), function) != 0) continue;
    const size_t after = text.find_first_not_of(" \t\r\n", name + function.size());
    if (after != std::string::npos && text[after] == '(') return name;
  }
  return std::string::npos;
}

int target_of(const std::string& text) {
  const size_t at = text.find(kTarget);
  int arch = 0;
  if (at != std::string::npos)
    std::from_chars(text.data() + at + kTarget.size(), text.data() + text.size(), arch);
  return arch;
}

}  // namespace

bool is_ptx(const std::string& text) {
  const size_t start = skip_comments(text);
  return start != std::string::npos && std::string_view(text).substr(start).starts_with(kVersion);
}

CudaCode custom_ptx_code(const CustomCuda& custom, int arch) {
  std::string text = custom.text.substr(skip_comments(custom.text));
  const size_t name = custom.function.empty() ? std::string::npos : entry_of(text, custom.function);
  const size_t body = name == std::string::npos ? name : text.find('{', name);
  if (body == std::string::npos)
    throw bad_ptx("the PTX of a custom op does not define its function",
                  ".visible .entry " + custom.function);
  const int made_for = target_of(text);
  if (made_for == 0 || made_for > arch)
    throw bad_ptx("the PTX of a custom op is for a later architecture than the target",
                  ".target sm_" + std::to_string(arch) + " or earlier")
        .with_actual("sm_" + std::to_string(made_for));
  CudaCode code;
  code.launches = {custom.launch};
  CudaLaunch& launch = code.launches[0];
  launch.function = custom.function;
  int64_t taken = 0;
  for (size_t at = text.find(kParam, name); at < body; at = text.find(kParam, at + 1)) ++taken;
  const int64_t given = custom.operands + static_cast<int64_t>(launch.params.size() + launch.fparams.size());
  if (taken < given)
    throw bad_ptx("the PTX of a custom op takes too few parameters", std::to_string(given))
        .with_actual(std::to_string(taken));
  launch.fparams.resize(launch.fparams.size() + static_cast<size_t>(taken - given), 0.0);
  if (arch >= kFirstWithWait) text.insert(body + 1, "\n\tgriddepcontrol.wait;");
  text.insert(name, "\n");  // where the builder finds it to make it unique
  if (arch >= kFirstWithWait && made_for < kFirstWithWait) {
    const size_t at = text.find(kTarget) + kTarget.size();
    text.replace(at, text.find_first_not_of("0123456789", at) - at, std::to_string(kFirstWithWait));
  }
  code.source = std::move(text);
  return code;
}

}  // namespace aicf
