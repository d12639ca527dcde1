#include "tune/trial.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "calls/rules.h"
#include "ir/updates.h"
#include "kernels/conv/windows.h"
#include "select/choose.h"
#include "select/layout.h"
#include "select/library_call.h"

namespace aicf {
namespace {

SelectOptions select_options(const Program& program) {
  SelectOptions options;
  options.ranges = program.sizes;
  options.updated = updated_variables(program);
  return options;
}

// Every operand and output on a root of its own, in the order of the problem's.
class Roots {
 public:
  Window add(Window window) {
    window.root = next_++;
    return window;
  }

 private:
  ValueId next_ = 0;
};

Window window_of(const KeyOperand& operand) {
  Window window{operand.dtype, Dim(0), {}, {}, kNoValue};
  for (size_t i = 0; i < operand.sizes.size(); ++i) {
    window.sizes.emplace_back(operand.sizes[i].hi);
    window.strides.emplace_back(operand.strides[i].hi);
  }
  return window;
}

// The call that packs `weights`, of which its inputs are parts side by side.
KernelCall packing(KernelCall init, const Window& weights, ValueId packed) {
  init.outputs[0].root = packed;
  Dim start(0);
  for (Window& part : init.inputs) {
    const Shape sizes = part.sizes;
    part = weights;
    if (sizes == weights.sizes) continue;
    const size_t axis = sizes.size() - 1;
    part.offset = weights.offset + start * weights.strides[axis];
    part.sizes = sizes;
    start = start + sizes[axis];
  }
  return init;
}

Trial trial_of(const ProblemKey& key, const KernelCall& call, const std::vector<KernelCall>& init_calls,
               const std::optional<Region>& region) {
  Trial trial;
  Roots roots;
  KernelCall own = call;
  for (size_t i = 0; i < own.inputs.size(); ++i) {
    Window& w = own.inputs[i];
    const ValueId old_root = w.root;
    w = roots.add(w);
    trial.operands.push_back(w);
    if (w.dtype == key.inputs[i].dtype) continue;
    const auto init = std::find_if(init_calls.begin(), init_calls.end(),
                                   [&](const KernelCall& made) { return made.outputs[0].root == old_root; });
    AICF_CHECK(init != init_calls.end(), "an operand of another dtype that no step of init makes");
    trial.operands.back() = roots.add(window_of(key.inputs[i]));
    trial.init.push_back(packing(*init, trial.operands.back(), w.root));
  }
  for (Window& w : own.outputs) trial.outputs.push_back(w = roots.add(w));
  if (region) {
    own_row(own)->programs[0].index = 0;
    trial.regions.push_back(*region);
  }
  trial.calls.push_back(std::move(own));
  return trial;
}

std::optional<Region> region_of(const RowCall& row, const CallGraph& calls) {
  return row.programs.empty() ? std::nullopt
                              : std::optional(calls.regions[static_cast<size_t>(row.programs[0].index)]);
}

// ---- the reference ----

// In a problem of half types f32 is precise enough; in others f64 is.
DType raised(DType dtype, bool half) {
  if (half) return is_half(dtype) ? DType::f32 : dtype;
  return dtype == DType::f32 ? DType::f64 : dtype;
}

Array raised_constant(const Array& array, bool half) {
  Array result(raised(array.dtype(), half), array.sizes());
  for (int64_t i = 0; i < array.count(); ++i) {
    if (is_float(array.dtype()))
      result.set_f64(i, array.get_f64(i));
    else
      result.set_i64(i, array.get_i64(i));
  }
  return result;
}

Region raised_region(const Region& region, bool half) {
  Region result;
  result.full_shape = region.full_shape;
  const Graph& body = region.body;
  std::vector<ValueId> map(static_cast<size_t>(body.value_count()), kNoValue);
  for (const ValueId id : body.leaves()) {
    const Value& value = body.value(id);
    ValueId& to = map[static_cast<size_t>(id)];
    if (value.role == Role::kConstant) {
      to = result.body.add_constant(raised_constant(value.constant, half));
    } else {
      to = result.body.add_input(value.name, {raised(value.type.dtype, half), value.type.shape});
    }
  }
  for (const Node& node : body.nodes()) {
    std::vector<ValueId> operands;
    for (const ValueId id : node.operands)
      operands.push_back(id == kNoValue ? kNoValue : map[static_cast<size_t>(id)]);
    Attrs attrs = node.attrs;
    if (const Attr* dtype = attrs.find("dtype"); dtype != nullptr && std::holds_alternative<DType>(*dtype))
      attrs.set("dtype", raised(std::get<DType>(*dtype), half));
    map[static_cast<size_t>(node.results[0])] = result.body.add(node.op, operands, attrs);
  }
  for (size_t i = 0; i < body.outputs().size(); ++i)
    result.body.add_output(map[static_cast<size_t>(body.outputs()[i])], body.output_names()[i]);
  return result;
}

// The contraction alone into a buffer, then its region over that: for kernels without an epilogue.
bool split_reference(Trial& trial, const std::string& family, const Target& target) {
  KernelCall& whole = trial.calls[0];
  const Region& region = trial.regions[0];
  const auto own = static_cast<size_t>(row_call(whole)->programs[0].first_operand);
  KernelCall product = whole, tile;
  product.inputs.resize(own);
  row_call(product)->programs.clear();
  const auto root = static_cast<ValueId>(whole.inputs.size() + whole.outputs.size());
  product.outputs = {row_major_window(root, {whole.inputs[0].dtype, region.full_shape})};
  const auto rows = target.candidates(problem_of_call(product, family, false));
  if (rows.empty()) return false;
  row_call(product)->row = rows.back()->name;
  tile.inputs = product.outputs;
  tile.inputs.insert(tile.inputs.end(), whole.inputs.begin() + static_cast<std::ptrdiff_t>(own),
                     whole.inputs.end());
  tile.outputs = whole.outputs;
  for (auto* list : {&tile.inputs, &tile.outputs})
    for (Window& w : *list) {
      // A region of a contraction may run over merged rows.
      if (w.sizes.size() == region.full_shape.size()) continue;
      return false;
    }
  const auto rank = static_cast<int64_t>(region.full_shape.size());
  Schedule schedule{.inner_rank = static_cast<int>(rank)};
  for (int64_t axis = 0; axis < rank; ++axis) schedule.domain_axes.push_back(axis);
  tile.what = region_row(std::move(schedule), 0);
  trial.calls = {std::move(product), std::move(tile)};
  return true;
}

}  // namespace

std::vector<TuneProblem> list_problems(const Program& optimised, const Target& target) {
  std::vector<TuneProblem> problems;
  std::map<std::string, size_t> known;
  const SelectOptions options = select_options(optimised);
  for (const Graph& entry : optimised.entries) {
    CallGraph calls = select_kernels(entry, target, options);
    run_required_rules(calls, target, options);
    for (const char* rule : {"join_attention", "join_rows"}) run_call_rule(rule, calls, target, options);
    for (const KernelCall& call : calls.calls) {
      const RowCall* row = own_row(call);
      if (!call.choice.key || row == nullptr || facts_of(row->row).is_join) continue;
      const auto [at, fresh] = known.emplace(to_string(*call.choice.key), problems.size());
      if (fresh) {
        TuneProblem problem{*call.choice.key,      origin_text(call), 0, call.choice.candidates, call,
                            region_of(*row, calls)};
        problems.push_back(std::move(problem));
      }
      ++problems[at->second].uses;
    }
  }
  return problems;
}

bool multiplies_in_tf32(const TuneProblem& problem) {
  const std::string& op = problem.key.op;
  const std::vector<Dim>& params = own_row(problem.call)->params;
  if (op == "matmul") return !params.empty();
  if (op == "conv" || op == "conv_weight_gradient") return asks_tf32(params);
  if (op == "conv_transpose") return asks_tf32(params, true);
  return op.starts_with("attention") && params.size() > 3;
}

std::vector<DType> held_dtypes(const TuneProblem& problem) {
  std::vector<DType> held;
  for (const KeyOperand& operand : problem.key.inputs) held.push_back(operand.dtype);
  if (!multiplies_in_tf32(problem)) return held;
  const size_t multiplied = problem.key.op.starts_with("attention") ? 3 : 2;
  for (size_t i = 0; i < std::min(multiplied, held.size()); ++i)
    if (held[i] == DType::f32) held[i] = DType::f16;
  return held;
}

TrialMaker::TrialMaker(const Program& optimised, const Target& target)
    : program_(optimised), target_(target), options_(select_options(optimised)) {}

Trial TrialMaker::candidate(const TuneProblem& problem, const Candidate& candidate) const {
  KernelCall call = problem.call;
  use_candidate(call, candidate, problem.candidates[0]);
  // Candidates of a GPU take the same operands; one of the CPU may want them packed.
  if (target_.is_cuda()) return trial_of(problem.key, call, {}, problem.region);
  SelectOptions options = options_;
  options.forced = {{"*", to_string(candidate)}};
  for (const Graph& entry : program_.entries) {
    const CallGraph calls = select_kernels(entry, target_, options);
    for (const KernelCall& made : calls.calls)
      if (made.choice.key == problem.key && is_row(made, candidate.kernel))
        return trial_of(problem.key, made, calls.init_calls, region_of(*row_call(made), calls));
  }
  AICF_CHECK(false, "a candidate that selection does not give: " + to_string(candidate));
}

std::optional<Trial> TrialMaker::reference(const TuneProblem& problem) const {
  // The last own candidate is the plainest: it takes its operands as they are stored.
  const auto own = std::find_if(problem.candidates.rbegin(), problem.candidates.rend(),
                                [](const Candidate& c) { return !is_library_kernel(c.kernel); });
  const Trial plain = candidate(problem, *own);
  if (!plain.init.empty()) return std::nullopt;
  Trial trial = trial_of(problem.key, plain.calls[0], {}, std::nullopt);
  KernelCall& call = trial.calls[0];
  const bool half = is_half(call.inputs[0].dtype);
  call.what = RowCall(*own_row(call));
  RowCall& row = *row_call(call);
  row.way = {};
  for (auto* list : {&call.inputs, &call.outputs, &trial.operands, &trial.outputs})
    for (Window& w : *list) w.dtype = raised(w.dtype, half);
  if (problem.region) {
    trial.regions = {raised_region(*problem.region, half)};
    row.programs[0].index = 0;
  }
  const std::string& family = problem.key.op;
  const auto rows = target_.candidates(problem_of_call(call, family, problem.region.has_value()));
  if (!rows.empty()) {
    row.row = rows.back()->name;
    return trial;
  }
  if (!problem.region || !split_reference(trial, family, target_)) return std::nullopt;
  return trial;
}

}  // namespace aicf
