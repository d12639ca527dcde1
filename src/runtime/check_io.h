// What a run demands of the tensors that it is given. Errors name the input or output, what was expected and
// what came.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/array.h"
#include "plan/plan.h"
#include "runtime/tensor_view.h"

namespace aicf {

// The inputs of the entry out of those given by name: unknown_input, missing_input.
std::vector<Array> inputs_in_order(const EntryPlan& entry, const std::map<std::string, Array>& given);

// The sizes that the inputs of a run give to the plan's symbols. Errors: missing_input, input_dtype,
// input_shape, size_conflict, size_out_of_range, unset_size.
SymbolValues sizes_of_inputs(const Plan& plan, const EntryPlan& entry, const std::vector<TensorView>& inputs);

// Outputs have the entry's dtypes and these sizes: input_dtype, input_shape.
void check_outputs(const EntryPlan& entry, const std::vector<std::vector<int64_t>>& sizes,
                   const std::vector<TensorView>& outputs);

// No element of an output is one of another output, of an input or a second one of its own: misuse.
void check_apart(const EntryPlan& entry, const std::vector<TensorView>& inputs,
                 const std::vector<TensorView>& outputs);

// A bucket takes and gives what its entry does, against which the caller's memory was checked: bad_artifact.
void check_bucket(const EntryPlan& entry, const EntryPlan& bucket, const SymbolValues& sizes);

// Kernels and device copies take row-major memory: input_shape.
void require_row_major(const TensorView& view);

// Row-major bytes of an input that decided shapes when compiling are the only ones accepted: input_value.
void check_only_value(const IoTensor& input, const std::byte* given);

}  // namespace aicf
