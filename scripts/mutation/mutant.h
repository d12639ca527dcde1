// Switches of mutants that are compiled into one build (mutant schemata, Untch, Offutt and Harrold 1993). A
// page of shared memory, a file that AICF_MUTANT_PAGE names, holds the number of the active mutant, and a
// byte for each that says whether its place was reached; without the variable no mutant is active.
#pragma once

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdlib>
#include <type_traits>

// A mutated expression may compare what the original did not.
#pragma GCC diagnostic ignored "-Wparentheses"
#pragma GCC diagnostic ignored "-Wsign-compare"
#pragma GCC diagnostic ignored "-Wunused-value"
#pragma GCC diagnostic ignored "-Wunused-variable"
#pragma GCC diagnostic ignored "-Wunused-parameter"
#pragma GCC diagnostic ignored "-Wunused-but-set-variable"
#pragma GCC diagnostic ignored "-Wunused-function"
#pragma GCC diagnostic ignored "-Wextra"
#pragma GCC diagnostic ignored "-Wbool-operation"
#pragma GCC diagnostic ignored "-Wint-in-bool-context"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#pragma GCC diagnostic ignored "-Warray-bounds"
#pragma GCC diagnostic ignored "-Wstringop-overflow"
#pragma GCC diagnostic ignored "-Wreturn-type"

namespace aicf_mutant {

struct Page {
  volatile int active;
  volatile unsigned char reached[4092];
};

inline Page* map_page() {
  static Page none = {-1, {}};
  const char* path = std::getenv("AICF_MUTANT_PAGE");
  if (path == nullptr) return &none;
  const int file = ::open(path, O_RDWR | O_CLOEXEC);
  if (file < 0) return &none;
  void* memory = ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  ::close(file);
  return memory == MAP_FAILED ? &none : static_cast<Page*>(memory);
}

inline Page& page() {
  static Page* const mapped = map_page();
  return *mapped;
}

constexpr bool on(int mutant) {
  if (std::is_constant_evaluated()) return false;
  Page& switches = page();
  if (switches.reached[mutant] == 0) switches.reached[mutant] = 1;
  return switches.active == mutant;
}

}  // namespace aicf_mutant
