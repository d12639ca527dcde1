#include "base/custom_op.h"

#include <cxxabi.h>
#include <dlfcn.h>

#include <array>
#include <cstdlib>
#include <exception>
#include <map>
#include <mutex>
#include <new>
#include <sstream>
#include <utility>

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

// What add_op met: no exception passes through the C function that calls it.
thread_local std::exception_ptr refused;

template <typename Function>
void add_op(const char* name, Function function, void* user) noexcept {
  try {
    register_custom_op(name != nullptr ? name : "", custom_op(function, user));
  } catch (...) {
    if (refused == nullptr) refused = std::current_exception();
  }
}

// Calls what the library exports under this name; false if it does not.
template <typename Function>
bool call_entry(void* library, const char* name) {
  using AddOp = void (*)(const char* name, Function function, void* user);
  auto* entry = reinterpret_cast<void (*)(AddOp)>(dlsym(library, name));
  if (entry == nullptr) return false;
  entry(add_op<Function>);
  if (refused != nullptr) std::rethrow_exception(std::exchange(refused, nullptr));
  return true;
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

// For as long as a call lasts, however it ends.
class UnderWay {
 public:
  UnderWay() { ++calls_under_way; }
  ~UnderWay() { --calls_under_way; }
  UnderWay(const UnderWay&) = delete;
  UnderWay& operator=(const UnderWay&) = delete;
};

[[noreturn]] void fail(const std::string& why) {
  throw UserError(ErrorCode::kU_custom_op_failed, "a custom op failed")
      .with_actual(why)
      .with_remedy("look at the op's inputs and its function");
}

// A C function must not throw, but one that is written in C++ may.
template <typename Call>
void without_exceptions(const Call& call) {
  try {
    call();
  } catch (const abi::__forced_unwind&) {  // a thread that is being cancelled
    throw;
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    fail(error.what());
  } catch (...) {
    fail("it threw an exception of an unknown type");
  }
}

}  // namespace

CustomOp custom_op(CustomFunction function, void* user) {
  CustomOp op{nullptr, reinterpret_cast<const void*>(function), user};
  if (function == nullptr) return op;
  op.function = [function, user](const CustomCall& c) {
    without_exceptions(
        [&] { function(c.inputs, c.input_count, c.outputs, c.output_count, c.params, c.fparams, user); });
  };
  return op;
}

CustomOp custom_op(CheckedFunction function, void* user) {
  CustomOp op{nullptr, reinterpret_cast<const void*>(function), user};
  if (function == nullptr) return op;
  op.function = [function, user](const CustomCall& c) {
    std::array<char, 1024> message{};
    int32_t status = 0;
    without_exceptions([&] {
      status = function(c.inputs, c.input_count, c.outputs, c.output_count, c.params, c.fparams, user,
                        message.data(), static_cast<int32_t>(message.size()));
    });
    if (status == 0) return;
    message.back() = '\0';
    const std::string text = message.data();
    fail("status " + std::to_string(status) + (text.empty() ? "" : ": " + text));
  };
  return op;
}

void call_custom_op(const CustomOp& op, const CustomCall& call) {
  const UnderWay under_way;
  try {
    op.function(call);
  } catch (UserError& error) {
    if (error.code == ErrorCode::kU_custom_op_failed && error.value.empty()) {
      error.value = op.name;
      error.refresh();
    }
    throw;
  }
}

bool in_custom_op() { return calls_under_way > 0; }

void register_custom_op(const std::string& name, CustomOp op) {
  if (name.empty() || !op.function)
    throw UserError(ErrorCode::kU_misuse, "a custom op needs a name and a function").with_value(name);
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto [at, fresh] = all.ops.emplace(name, op);
  at->second.name = name;
  if (fresh || (op.address != nullptr && op.address == at->second.address && op.user == at->second.user))
    return;
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
  constexpr const char *kPlain = "aicf_register_custom_ops", *kChecked = "aicf_register_checked_ops";
  const bool plain = call_entry<CustomFunction>(library, kPlain);
  const bool checked = call_entry<CheckedFunction>(library, kChecked);
  if (!plain && !checked)
    throw UserError(ErrorCode::kU_bad_option, "a library of custom ops lacks its entry point")
        .with_value(path)
        .with_expected(std::string(kPlain) + " or " + kChecked);
}

}  // namespace aicf
