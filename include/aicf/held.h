// What an object of the API holds: a pointer whose use throws AICF-U0004 after the object was moved from, or
// was made without contents.
#pragma once

#include <utility>

#include "aicf/version.h"

namespace aicf::v1::detail {

[[noreturn]] AICF_API void throw_empty();

// Pointer: a std::unique_ptr or std::shared_ptr.
template <typename Pointer>
struct Held : Pointer {
  using Pointer::Pointer;
  Held() = default;
  Held(Pointer pointer) noexcept : Pointer(std::move(pointer)) {}  // NOLINT

  typename Pointer::element_type& operator*() const {
    if (this->get() == nullptr) throw_empty();
    return *this->get();
  }
  typename Pointer::element_type* operator->() const { return &**this; }
};

}  // namespace aicf::v1::detail
