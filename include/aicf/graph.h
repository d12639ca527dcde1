// Programs: what a model computes. A Builder makes one from named ops over symbolic sizes; import_onnx reads
// one from a file. Ops, their operands and attributes are listed in docs/ops.md. Every call is checked as it
// is made: a wrong shape is an error of that call.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "aicf/error.h"
#include "aicf/held.h"
#include "aicf/tensor.h"

namespace aicf::v1 {

// A size of a tensor: a number, or an expression over named sizes ("batch", "2*seq + 1"). Kept as canonical
// text.
class AICF_API Size {
 public:
  Size() : Size(int64_t{0}) {}
  Size(int value) : Size(static_cast<int64_t>(value)) {}           // NOLINT: a number is a size
  Size(int64_t value) : text_(std::to_string(value)) {}            // NOLINT
  Size(const char* expression) : Size(std::string(expression)) {}  // NOLINT
  Size(const std::string& expression);                             // NOLINT: UserError AICF-U0106

  const std::string& text() const { return text_; }
  bool is_constant() const;
  int64_t value() const;  // UserError AICF-U0203 if it is not constant

  bool operator==(const Size& other) const { return text_ == other.text_; }
  bool operator!=(const Size& other) const { return text_ != other.text_; }

 private:
  std::string text_;
};
AICF_API Size operator+(const Size& a, const Size& b);
AICF_API Size operator-(const Size& a, const Size& b);
AICF_API Size operator*(const Size& a, const Size& b);
AICF_API Size floordiv(const Size& a, const Size& b);

struct SizeRange {
  int64_t lo = 0, hi = 0;  // inclusive
};

// Value of an op's attribute. Braces hold integers or sizes: {"axes", {0, 2}}, {"shape", {batch, 4}}.
class Attr {
 public:
  using Any = std::variant<int64_t, double, bool, std::string, std::vector<int64_t>, std::vector<double>,
                           DType, std::vector<Size>>;
  Attr(int value) : any_(static_cast<int64_t>(value)) {}          // NOLINT: all of these are attributes
  Attr(int64_t value) : any_(value) {}                            // NOLINT
  Attr(double value) : any_(value) {}                             // NOLINT
  Attr(bool value) : any_(value) {}                               // NOLINT
  Attr(const char* value) : any_(std::string(value)) {}           // NOLINT
  Attr(std::string value) : any_(std::move(value)) {}             // NOLINT
  Attr(DType value) : any_(value) {}                              // NOLINT
  Attr(std::vector<int64_t> values) : any_(std::move(values)) {}  // NOLINT
  Attr(std::vector<double> values) : any_(std::move(values)) {}   // NOLINT
  Attr(std::vector<Size> values) : any_(std::move(values)) {}     // NOLINT
  Attr(std::initializer_list<int64_t> values) : any_(std::vector<int64_t>(values)) {}
  Attr(std::initializer_list<Size> values) : any_(std::vector<Size>(values)) {}
  const Any& any() const { return any_; }

 private:
  Any any_;
};
using Attributes = std::map<std::string, Attr>;

// An immutable program. Copies share it.
class AICF_API Program {
 public:
  // The readable form; parse() takes it back. Weights are not part of the text.
  std::string text() const;
  static Program parse(const std::string& text);
  std::vector<std::string> entries() const;

 private:
  friend struct Access;
  struct Impl;
  detail::Held<std::shared_ptr<const Impl>> impl_;
};

// A value of the entry under construction. Default: an absent optional operand.
struct Value {
  int32_t entry = -1, id = -1;
};

class AICF_API Builder {
 public:
  explicit Builder(const std::string& entry = "main");
  Builder(Builder&&) noexcept;
  Builder& operator=(Builder&&) noexcept;
  ~Builder();

  // Declares a named size that may take any value of the range when the program runs.
  Size size(const std::string& name, int64_t lo, int64_t hi);
  Value input(const std::string& name, DType dtype, const std::vector<Size>& sizes);
  // A weight with its contents; the program keeps the tensor's memory.
  Value param(const std::string& name, const Tensor& contents);
  // Lives from run to run; update() writes it.
  Value state(const std::string& name, const Tensor& initial);
  // A param or state declared before, for use in a further entry.
  Value variable(const std::string& name);
  Value constant(const Tensor& contents);
  Value scalar(DType dtype, double value);

  // Appends an op that has one result.
  Value op(const std::string& name, const std::vector<Value>& operands, const Attributes& attributes = {});
  // Appends an op and gives all its results.
  std::vector<Value> op_results(const std::string& name, const std::vector<Value>& operands,
                                const Attributes& attributes = {});

  void output(const std::string& name, Value value);
  // After all reads in this entry, the param or state takes this value.
  void update(Value variable, Value value);
  // Begins a further entry over the same params and states.
  void entry(const std::string& name);
  void metadata(const std::string& key, const std::string& value);

  DType dtype(Value value) const;
  std::vector<Size> sizes(Value value) const;

  // The program so far, checked as a whole.
  Program finish() const;

 private:
  friend struct Access;
  struct Impl;
  detail::Held<std::unique_ptr<Impl>> impl_;
};

struct ImportOptions {
  // What each dynamic size of the model may be, by its name or "INPUT:AXIS": "8", "1,8", "16..512" or
  // another size's name.
  std::map<std::string, std::string> dims;
  // (past, present): input `past` becomes a state that starts at zero, output `present` its update.
  std::vector<std::pair<std::string, std::string>> states;
  // Values of inputs that decide shapes.
  std::map<std::string, Tensor> input_values;
  // If any: results of nodes to give instead of the model's outputs.
  std::vector<std::string> results;
};
// UserError AICF-U0200 lists sizes that are not set, AICF-U0301 every op that is not supported.
AICF_API Program import_onnx(const std::string& path, const ImportOptions& options = {});

}  // namespace aicf::v1
