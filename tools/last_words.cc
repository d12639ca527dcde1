#include "last_words.h"

#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "base/out_of_memory.h"
#include "console.h"

namespace aicf::cli {
namespace {

bool json_wanted = false;

// Without memory, locks or exceptions: a handler of a signal may.
[[noreturn]] void end(int code, const char* text, const char* json) {
  (void)!write(STDERR_FILENO, text, std::strlen(text));
  if (json_wanted) (void)!write(STDOUT_FILENO, json, std::strlen(json));
  _exit(code);
}

[[noreturn]] void end_without_memory() { end(kEnvironmentError, kOutOfMemoryText, kOutOfMemoryJson); }

// Where there is not even memory for an exception, std::terminate comes without one.
bool is_memory_short() {
  constexpr size_t kEnough = 1 << 20;
  void* volatile memory = std::malloc(kEnough);
  std::free(memory);
  return memory == nullptr;
}

[[noreturn]] void on_terminate() {
  const std::exception_ptr thrown = std::current_exception();
  if (thrown == nullptr && is_memory_short()) end_without_memory();
  try {
    if (thrown != nullptr) std::rethrow_exception(thrown);
  } catch (const Error& error) {
    Console console;
    console.json = json_wanted;
    console.report(thrown);
    _exit(Console::exit_code(error));
  } catch (const std::exception& error) {
    if (says_out_of_memory(error)) end_without_memory();
  } catch (...) {
  }
  end(kInternalError,
      "error[AICF-I0001]: the program cannot go on\n"
      "  remedy: please report this with the model or the command that led here\n",
      "{\"schema\": 1, \"error\": {\"code\": \"AICF-I0001\", \"kind\": \"internal\",\n"
      "\"message\": \"the program cannot go on\", \"op\": \"\", \"value\": \"\", \"expected\": \"\",\n"
      "\"actual\": \"\", \"remedy\": \"please report this with the model or the command that led here\"}}\n");
}

void on_bus_error(int) {
  end(kEnvironmentError,
      "error[AICF-E0007]: a file was cut off while it was read\n"
      "  remedy: run it again; to replace a file in use, write another and rename it into its place\n",
      "{\"schema\": 1, \"error\": {\"code\": \"AICF-E0007\", \"kind\": \"environment\",\n"
      "\"message\": \"a file was cut off while it was read\", \"op\": \"\", \"value\": \"\", \"expected\": "
      "\"\",\n"
      "\"actual\": \"\", \"remedy\": \"run it again; to replace a file in use, write another and rename it "
      "into "
      "its place\"}}\n");
}

// Before the static objects of what is linked in, which need memory, too. The loader gives it main's
// arguments.
[[gnu::constructor(101)]] void begin(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) json_wanted = json_wanted || std::strcmp(argv[i], "--json") == 0;
  std::set_terminate(on_terminate);
  std::signal(SIGBUS, on_bus_error);
}

}  // namespace

bool asks_for_json() { return json_wanted; }

}  // namespace aicf::cli
