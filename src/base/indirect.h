// A value that lies elsewhere: for a type that is not complete yet where it is held, as a member of itself.
// Copies copy the value. What a move leaves behind may only be assigned to or destroyed.
#pragma once

#include <memory>
#include <utility>

namespace aicf {

template <typename T>
class Indirect {
 public:
  Indirect(T value) : value_(std::make_unique<T>(std::move(value))) {}
  Indirect(const Indirect& other) : value_(std::make_unique<T>(*other.value_)) {}
  Indirect(Indirect&&) noexcept = default;
  Indirect& operator=(Indirect other) noexcept {
    value_ = std::move(other.value_);
    return *this;
  }
  ~Indirect() = default;

  T& operator*() { return *value_; }
  const T& operator*() const { return *value_; }
  T* operator->() { return value_.get(); }
  const T* operator->() const { return value_.get(); }

 private:
  std::unique_ptr<T> value_;
};

}  // namespace aicf
