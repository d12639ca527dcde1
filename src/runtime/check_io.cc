#include "runtime/check_io.h"

#include <algorithm>
#include <cstring>
#include <tuple>

#include "base/comma_list.h"
#include "base/dim_solve.h"
#include "base/error.h"
#include "base/option_text.h"

namespace aicf {
namespace {

std::string input_name(const IoTensor& io) { return "input '" + io.name + "'"; }

void check_count(ErrorCode code, const char* what, size_t expected, size_t actual) {
  if (expected == actual) return;
  throw UserError(code, std::string("wrong number of ") + what)
      .with_expected(std::to_string(expected))
      .with_actual(std::to_string(actual));
}

void check_type(const IoTensor& io, const TensorView& input) {
  if (input.dtype != io.dtype)
    throw UserError(ErrorCode::kU_input_dtype, input_name(io) + " has the wrong dtype")
        .with_expected(std::string(dtype_name(io.dtype)))
        .with_actual(std::string(dtype_name(input.dtype)))
        .with_remedy("convert it before the call");
  if (input.sizes.size() != io.sizes.size())
    throw UserError(ErrorCode::kU_input_shape, input_name(io) + " has the wrong rank")
        .with_expected(to_string(io.sizes))
        .with_actual(to_string(input.sizes));
}

UserError wrong_shape(const IoTensor& io, const std::string& expected, const TensorView& input) {
  return UserError(ErrorCode::kU_input_shape, input_name(io) + " has the wrong shape")
      .with_expected(expected)
      .with_actual(to_string(input.sizes));
}

// Axes that are a sum over one symbol give it its value.
void take_symbols(const IoTensor& io, const TensorView& input, SymbolValues& values) {
  for (size_t axis = 0; axis < io.sizes.size(); ++axis) {
    const auto solved = solve(io.sizes[axis], input.sizes[axis]);
    if (!solved) continue;
    if (!solved->value) throw wrong_shape(io, to_string(io.sizes), input);
    const auto [at, fresh] = values.emplace(solved->name, *solved->value);
    if (!fresh && at->second != *solved->value)
      throw UserError(ErrorCode::kU_size_conflict,
                      "two inputs give different values to size '" + solved->name + "'")
          .with_op(input_name(io))
          .with_expected(std::to_string(at->second))
          .with_actual(std::to_string(*solved->value));
  }
}

// A symbol that no input gives has its value if its range holds just one.
void apply_ranges(const SymbolRanges& ranges, SymbolValues& values) {
  for (const auto& [name, range] : ranges) {
    auto at = values.find(name);
    if (at == values.end()) {
      if (range.lo == range.hi) values[name] = range.lo;
      continue;
    }
    if (at->second < range.lo || at->second > range.hi)
      throw UserError(ErrorCode::kU_size_out_of_range,
                      "size '" + name + "' is outside the range the model was compiled for")
          .with_expected(std::to_string(range.lo) + ".." + std::to_string(range.hi))
          .with_actual(std::to_string(at->second))
          .with_remedy("compile with a range that includes it: " + dims_text({{name, "LO..HI"}}));
  }
}

void check_shape(const IoTensor& io, const TensorView& input, const SymbolValues& values) {
  const std::vector<int64_t> expected = evaluate(io.sizes, values);
  if (expected == input.sizes) return;
  const std::string declared = to_string(io.sizes), wanted = to_string(expected);
  throw wrong_shape(io, declared == wanted ? wanted : declared + " = " + wanted, input);
}

UserError shared_memory(const IoTensor& output, const std::string& other) {
  return UserError(ErrorCode::kU_misuse, "an output has an element in memory that is needed otherwise")
      .with_op("output '" + output.name + "'")
      .with_actual("it shares memory with " + other)
      .with_remedy("give every output memory of its own");
}

}  // namespace

std::vector<Array> inputs_in_order(const EntryPlan& entry, const std::map<std::string, Array>& given) {
  for (const auto& item : given)
    if (std::none_of(entry.inputs.begin(), entry.inputs.end(),
                     [&](const IoTensor& io) { return io.name == item.first; }))
      throw UserError(ErrorCode::kU_unknown_input, "the model has no input of this name")
          .with_value(item.first)
          .with_expected(comma_list(entry.inputs, &IoTensor::name));
  std::vector<Array> inputs;
  for (const IoTensor& io : entry.inputs) {
    const auto at = given.find(io.name);
    if (at == given.end())
      throw UserError(ErrorCode::kU_missing_input, "a required input was not given")
          .with_value(io.name)
          .with_expected(comma_list(entry.inputs, &IoTensor::name));
    inputs.push_back(at->second);
  }
  return inputs;
}

SymbolValues sizes_of_inputs(const Plan& plan, const EntryPlan& entry,
                             const std::vector<TensorView>& inputs) {
  check_count(ErrorCode::kU_missing_input, "inputs", entry.inputs.size(), inputs.size());
  SymbolValues values;
  for (size_t i = 0; i < inputs.size(); ++i) {
    check_type(entry.inputs[i], inputs[i]);
    take_symbols(entry.inputs[i], inputs[i], values);
  }
  apply_ranges(plan.sizes, values);
  for (size_t i = 0; i < inputs.size(); ++i) check_shape(entry.inputs[i], inputs[i], values);
  return values;
}

void check_outputs(const EntryPlan& entry, const std::vector<std::vector<int64_t>>& sizes,
                   const std::vector<TensorView>& outputs) {
  check_count(ErrorCode::kU_input_shape, "outputs", entry.outputs.size(), outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    const IoTensor& io = entry.outputs[i];
    const bool same_type = outputs[i].dtype == io.dtype;
    if (same_type && outputs[i].sizes == sizes[i]) continue;
    throw UserError(same_type ? ErrorCode::kU_input_shape : ErrorCode::kU_input_dtype,
                    "output '" + io.name + "' does not fit")
        .with_expected(std::string(dtype_name(io.dtype)) + to_string(sizes[i]))
        .with_actual(std::string(dtype_name(outputs[i].dtype)) + to_string(outputs[i].sizes));
  }
}

namespace {

// Whether all views are row-major and an output's bytes are nobody else's, which addresses in ascending order
// show without a look at every pair.
bool have_own_bytes(const std::vector<TensorView>& inputs, const std::vector<TensorView>& outputs) {
  struct Bytes {
    bool on_device;
    uintptr_t begin, end;
    bool is_output;
  };
  static thread_local std::vector<Bytes> all;  // kept: a run allocates nothing
  all.clear();
  for (const auto* list : {&inputs, &outputs})
    for (const TensorView& view : *list) {
      if (!view.row_major()) return false;
      const auto begin = reinterpret_cast<uintptr_t>(view.data);
      const auto bytes = static_cast<uintptr_t>(view.bytes());
      if (bytes > 0) all.push_back({view.on_device, begin, begin + bytes, list == &outputs});
    }
  std::sort(all.begin(), all.end(), [](const Bytes& a, const Bytes& b) {
    return std::tie(a.on_device, a.begin) < std::tie(b.on_device, b.begin);
  });
  uintptr_t end = 0, end_of_outputs = 0;  // of those before, in the same kind of memory
  for (size_t i = 0; i < all.size(); ++i) {
    if (i > 0 && all[i].on_device != all[i - 1].on_device) end = end_of_outputs = 0;
    if (all[i].begin < (all[i].is_output ? end : end_of_outputs)) return false;
    end = std::max(end, all[i].end);
    if (all[i].is_output) end_of_outputs = std::max(end_of_outputs, all[i].end);
  }
  return true;
}

}  // namespace

void check_apart(const EntryPlan& entry, const std::vector<TensorView>& inputs,
                 const std::vector<TensorView>& outputs) {
  if (have_own_bytes(inputs, outputs)) return;
  for (size_t i = 0; i < outputs.size(); ++i) {
    if (repeats_elements(outputs[i])) throw shared_memory(entry.outputs[i], "itself");
    for (size_t other = 0; other < i; ++other)
      if (share_elements(outputs[i], outputs[other]))
        throw shared_memory(entry.outputs[i], "output '" + entry.outputs[other].name + "'");
    for (size_t input = 0; input < inputs.size(); ++input)
      if (share_elements(inputs[input], outputs[i]))
        throw shared_memory(entry.outputs[i], input_name(entry.inputs[input]));
  }
}

void check_bucket(const EntryPlan& entry, const EntryPlan& bucket, const SymbolValues& sizes) {
  const auto same = [&](const std::vector<IoTensor>& a, const std::vector<IoTensor>& b) {
    return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](const IoTensor& x, const IoTensor& y) {
      return x.dtype == y.dtype && evaluate(x.sizes, sizes) == evaluate(y.sizes, sizes);
    });
  };
  if (same(entry.inputs, bucket.inputs) && same(entry.outputs, bucket.outputs)) return;
  throw UserError(ErrorCode::kU_bad_artifact,
                  "the plan is not consistent: a bucket has other inputs or outputs")
      .with_op("entry " + entry.name + " for " + to_string(bucket.bucket))
      .with_remedy("compile the model again");
}

void require_row_major(const TensorView& view) {
  if (view.row_major()) return;
  throw UserError(ErrorCode::kU_input_shape, "a strided tensor in device memory cannot be bound")
      .with_actual("sizes " + to_string(view.sizes) + ", strides " + to_string(view.strides))
      .with_remedy("make it contiguous before the call");
}

void check_only_value(const IoTensor& input, const std::byte* given) {
  if (std::memcmp(input.only_value.data(), given, static_cast<size_t>(input.only_value.bytes())) == 0) return;
  throw UserError(ErrorCode::kU_input_value,
                  input_name(input) + " accepts only the value it had when compiling")
      .with_remedy("compile again with the new value");
}

}  // namespace aicf
