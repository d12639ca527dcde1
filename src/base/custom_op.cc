#include "base/custom_op.h"

#include <dlfcn.h>

#include <cstdlib>
#include <map>
#include <mutex>
#include <sstream>

#include "base/error.h"

namespace aicf {
namespace {

struct Registry {
  std::mutex mutex;
  std::map<std::string, CustomOp, std::less<>> ops;  // never erased: addresses are handed out
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

using AddOp = void (*)(const char* name, CustomFunction function, void* user);

void add_op(const char* name, CustomFunction function, void* user) {
  register_custom_op(name, {function, user});
}

void load_libraries_of_environment() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* paths = std::getenv("AICF_CUSTOM_OPS");
    std::istringstream list(paths != nullptr ? paths : "");
    for (std::string path; std::getline(list, path, ':');)
      if (!path.empty()) load_custom_ops(path);
  });
}

thread_local int calls_under_way = 0;

}  // namespace

void call_custom_op(const CustomOp& op, const CustomTensor* inputs, int32_t input_count,
                    const CustomTensor* outputs, int32_t output_count, const int64_t* params,
                    const double* fparams) {
  ++calls_under_way;
  op.function(inputs, input_count, outputs, output_count, params, fparams, op.user);
  --calls_under_way;
}

bool in_custom_op() { return calls_under_way > 0; }

void register_custom_op(const std::string& name, CustomOp op) {
  if (name.empty() || op.function == nullptr)
    throw UserError(ErrorCode::kU_misuse, "a custom op needs a name and a function").with_value(name);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto [at, fresh] = all.ops.emplace(name, op);
  if (!fresh && !(at->second == op))
    throw UserError(ErrorCode::kU_misuse, "a custom op of this name is registered already").with_value(name);
}

const CustomOp* find_custom_op(std::string_view name) {
  load_libraries_of_environment();
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto at = all.ops.find(name);
  return at != all.ops.end() ? &at->second : nullptr;
}

const CustomOp& require_custom_op(std::string_view name) {
  if (const CustomOp* op = find_custom_op(name)) return *op;
  throw UserError(ErrorCode::kU_missing_custom_op, "the model needs a custom op that is not registered")
      .with_op(std::string(name))
      .with_remedy(
          "register it before loading: aicf.register_op, aicf_register_op, or its library in "
          "AICF_CUSTOM_OPS");
}

void load_custom_ops(const std::string& path) {
  void* library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    throw UserError(ErrorCode::kU_file_not_found, "a library of custom ops does not open")
        .with_value(path)
        .with_actual(dlerror());
  constexpr const char* kEntry = "aicf_register_custom_ops";
  auto* entry = reinterpret_cast<void (*)(AddOp)>(dlsym(library, kEntry));
  if (entry == nullptr)
    throw UserError(ErrorCode::kU_bad_option, "a library of custom ops lacks its entry point")
        .with_value(path)
        .with_expected(kEntry);
  entry(add_op);
}

}  // namespace aicf
