#include "select/choose.h"

#include <algorithm>
#include <iterator>

#include "base/error.h"
#include "base/format.h"
#include "ir/hash.h"
#include "ir/text.h"
#include "select/cost_model.h"
#include "select/cuda_problem.h"
#include "select/library_call.h"
#include "select/measured_order.h"

namespace aicf {
namespace {

int alignment_of(const Dim& offset, DType dtype) {
  for (int64_t bytes = 16; bytes > dtype_bytes(dtype); bytes /= 2)
    if (divide_exactly(offset * Dim(dtype_bytes(dtype)), Dim(bytes))) return static_cast<int>(bytes);
  return dtype_bytes(dtype);
}

KeyOperand key_operand(const Window& window, const SymbolRanges& ranges) {
  KeyOperand operand;
  operand.dtype = window.dtype;
  operand.alignment = alignment_of(window.offset, window.dtype);
  for (size_t i = 0; i < window.sizes.size(); ++i) {
    operand.sizes.push_back(bounds(window.sizes[i], ranges));
    const int64_t stride = bounds(window.strides[i], ranges).hi;
    operand.strides.push_back({stride, stride});
  }
  return operand;
}

struct AttrText {
  std::string operator()(const std::string& v) const { return v; }
  std::string operator()(DType v) const { return std::string(dtype_name(v)); }
  std::string operator()(bool v) const { return v ? "true" : "false"; }
  std::string operator()(int64_t v) const { return std::to_string(v); }
  std::string operator()(double v) const { return format_hex(v); }
  std::string operator()(const Shape&) const { return "shape"; }  // sizes stand in the operands
  template <class T>
  std::string operator()(const std::vector<T>& list) const {
    std::string text;
    for (const T& v : list) text += (*this)(v) + " ";
    return text;
  }
};

// What a region computes, whatever its sizes.
std::string region_text(const Graph& body) {
  std::string text;
  for (const ValueId id : body.leaves()) {
    const Value& value = body.value(id);
    text += "%" + std::to_string(id) + " " + std::string(dtype_name(value.type.dtype));
    if (value.role == Role::kConstant) text += " " + to_string(hash_content(value.constant));
    text += "\n";
  }
  for (const Node& node : body.nodes()) {
    text += std::string(op_info(node.op).name) + "(";
    for (const ValueId id : node.operands) text += " " + std::to_string(id);
    text += " ) ->";
    for (const ValueId id : node.results)
      text += " " + std::to_string(id) + " " + std::string(dtype_name(body.dtype(id)));
    for (const auto& [name, attr] : node.attrs.items())
      text += " " + name + "=" + std::visit(AttrText(), attr);
    text += "\n";
  }
  for (const ValueId id : body.outputs()) text += "out " + std::to_string(id) + "\n";
  return text;
}

std::string region_hash(const Graph& body) {
  constexpr size_t kDigits = 16;
  const std::string text = region_text(body);
  return to_string(hash_bytes(text.data(), static_cast<int64_t>(text.size()))).substr(0, kDigits);
}

std::string params_text(const RowCall& row, const SymbolRanges& ranges) {
  std::string text;
  for (const Dim& param : row.params) text += " " + std::to_string(bounds(param, ranges).hi);
  for (const double param : row.fparams) text += " " + AttrText()(param);
  return text.empty() ? "-" : text.substr(1);
}

std::string_view match_name(Records::Match match) {
  constexpr std::string_view kNames[] = {"exact", "padded", "nearest"};
  return kNames[static_cast<size_t>(match)];
}

std::string microseconds(double value) { return format_fixed(value, 1) + " us"; }

// Moves the first product of sliced.cuh to the front, which may share a launch with others (bundle_calls), if
// it takes no longer than the edge and the start of a kernel that this saves. Whether it moved one.
bool prefer_shared_launch(std::vector<Candidate>& candidates, const Target& target) {
  const auto shared = std::find_if(candidates.begin(), candidates.end(), [](const Candidate& c) {
    const auto* way = std::get_if<MatmulWay>(&c.way);
    return way != nullptr && is_sliced(*way);
  });
  if (shared == candidates.begin() || shared == candidates.end() ||
      shared->estimate_us > candidates[0].estimate_us + target.facts().edge_microseconds + kStartMicroseconds)
    return false;
  std::rotate(candidates.begin(), shared, shared + 1);
  return true;
}

// `why`: what put the first one there beside the estimates.
std::string rank_reason(const Choice& choice, std::string_view why) {
  const auto& list = choice.candidates;
  if (list.size() == 1) return "only candidate";
  return "first of " + std::to_string(list.size()) + " candidates" + std::string(why) + ", " +
         time_text(list[0]);
}

// What decides over the order of a call's candidates. A library's call is a candidate if it is known by name:
// by a record of exactly this problem, or forced.
class Chooser {
 public:
  Chooser(KernelCall& call, std::string_view op, const Region* region, const Target& target,
          const SelectOptions& options)
      : call_(call), target_(target), ranges_(options.ranges), choice_(call.choice) {
    if (options.libraries && target.is_cuda()) library_form_ = library_form(call, op, region);
  }

  void use_record(const Records& records) {
    bool stale = false;
    const auto usable = [&](const Record& record, Records::Match match) {
      if (match == Records::Match::kExact && add_library(record.choice)) return true;
      if (index_of(record.choice) < choice_.candidates.size() && !is_stale(record)) return true;
      stale = stale || (match == Records::Match::kExact && !parse_library_candidate(record.choice) &&
                        !facts_of(kernel_of(record.choice)).is_join);
      return false;
    };
    if (const auto found = records.find(*choice_.key, usable)) {
      const size_t index = index_of(found->record->choice);
      set_price(choice_.candidates[index], *found, choice_.candidates[0].price_us);
      choose(index, ChoiceSource::kRecord,
             "recorded (" + found->layer + ", " + std::string(match_name(found->match)) +
                 "): " + microseconds(found->record->microseconds) + " measured, " +
                 microseconds(found->record->heuristic_microseconds) + " by the heuristic");
    } else if (stale) {
      call_.reason += "; its record is of a kernel that has changed and is passed over";
    }
  }

  void use_forced(const std::string& candidate) {
    add_library(candidate);
    const size_t index = index_of(candidate);
    if (index < choice_.candidates.size()) choose(index, ChoiceSource::kForced, "forced");
  }

 private:
  // By its full name or by its kernel's; the number of candidates if there is none.
  size_t index_of(const std::string& name) const {
    const auto found =
        std::find_if(choice_.candidates.begin(), choice_.candidates.end(),
                     [&](const Candidate& c) { return to_string(c) == name || c.kernel == name; });
    return static_cast<size_t>(found - choice_.candidates.begin());
  }
  bool add_library(const std::string& name) {
    const auto known = library_form_ ? parse_library_candidate(name) : std::nullopt;
    if (!known || !same_meaning(*known, *library_form_)) return false;
    if (index_of(name) == choice_.candidates.size())
      choice_.candidates.push_back(library_candidate(*known, call_, choice_.candidates[0], target_, ranges_));
    return true;
  }
  void choose(size_t index, ChoiceSource source, const std::string& why) {
    choice_.chosen = index;
    choice_.source = source;
    call_.reason = why + ", of " + std::to_string(choice_.candidates.size()) + " candidates";
  }

  KernelCall& call_;
  const Target& target_;
  const SymbolRanges& ranges_;
  Choice& choice_;
  std::optional<LibraryCall> library_form_;
};

}  // namespace

bool is_meant(const ForcedChoice& forced, const KernelCall& call, std::string_view op) {
  return forced.where == "*" || forced.where == op ||
         origin_text(call).find(forced.where) != std::string::npos;
}

bool is_forced(const KernelRow& row, const KernelCall& call, const SelectOptions& options) {
  return std::any_of(options.forced.begin(), options.forced.end(), [&](const ForcedChoice& forced) {
    return is_meant(forced, call, row.family) &&
           std::string_view(forced.candidate).substr(0, forced.candidate.find('/')) == row.name;
  });
}

std::string to_string(const Candidate& candidate) {
  return to_string(RunName{candidate.kernel,
                           candidate.library ? to_string(*candidate.library) : to_string(candidate.way)});
}

std::string time_text(const Candidate& candidate) {
  const std::string estimate = microseconds(candidate.estimate_us), price = microseconds(candidate.price_us);
  return "estimated " + estimate + (price == estimate ? "" : ", priced " + price);
}

Problem problem_of_call(const KernelCall& call, std::string_view family, bool has_program) {
  Problem problem;
  problem.family = family;
  for (const Window& w : call.inputs) problem.inputs.push_back({w.dtype, w.sizes});
  for (const Window& w : call.outputs) problem.outputs.push_back({w.dtype, w.sizes});
  problem.params = row_call(call)->params;
  problem.fparams = row_call(call)->fparams;
  problem.has_program = has_program;
  return problem;
}

ProblemKey problem_key(const KernelCall& call, std::string_view op, const Region* region,
                       const Target& target, const SymbolRanges& ranges) {
  ProblemKey key{target.name, target.facts().multiprocessors,      std::string(op),
                 "-",         params_text(*own_row(call), ranges), {},
                 {}};
  if (region != nullptr) key.region = region_hash(region->body);
  for (const Window& w : call.inputs) key.inputs.push_back(key_operand(w, ranges));
  for (const Window& w : call.outputs) key.outputs.push_back(key_operand(w, ranges));
  return key;
}

namespace {

// Those of a row stay together. Of neighbouring rows of one precision that price their own ways, the row
// whose choice is cheapest comes first; priorities order the others.
std::vector<Candidate> in_order_of_rows(const std::vector<const KernelRow*>& rows,
                                        std::vector<std::vector<Candidate>> by_row) {
  const auto is_priced = [&](size_t i) { return is_named(by_row[i].front().way); };
  for (size_t first = 0, end = 0; first < rows.size(); first = end) {
    for (end = first + 1; is_priced(first) && end < rows.size() && is_priced(end); ++end)
      if (!same_precision(rows[end]->facts.units, rows[first]->facts.units)) break;
    std::stable_sort(by_row.begin() + static_cast<std::ptrdiff_t>(first),
                     by_row.begin() + static_cast<std::ptrdiff_t>(end), [](const auto& a, const auto& b) {
                       return a.front().estimate_us < b.front().estimate_us;
                     });
  }
  std::vector<Candidate> candidates;
  for (auto& own : by_row) std::move(own.begin(), own.end(), std::back_inserter(candidates));
  return candidates;
}

}  // namespace

std::vector<Candidate> list_candidates(const KernelCall& call, const std::vector<const KernelRow*>& rows,
                                       const Target& target, const SymbolRanges& ranges) {
  std::vector<std::vector<Candidate>> by_row;
  std::vector<const KernelRow*> able;
  for (const KernelRow* row : rows) {
    std::vector<Candidate> candidates;
    const std::string name(row->name);
    const CudaKernel* kernel = target.is_cuda() ? find_cuda_kernel(name) : nullptr;
    std::vector<KernelVariant> variants;
    if (kernel != nullptr)
      variants = estimated_ways(*kernel, cuda_problem(call, target, ranges), call, target, ranges);
    for (const KernelVariant& variant : variants)
      candidates.push_back({name, variant.way, variant.microseconds});
    if (variants.empty() && row->facts.needs_way) continue;
    if (variants.empty()) candidates.push_back({name, {}, estimate_microseconds(call, name, target, ranges)});
    able.push_back(row);
    by_row.push_back(std::move(candidates));
  }
  return in_order_of_rows(able, std::move(by_row));
}

Candidate library_candidate(const LibraryCall& library, const KernelCall& call, const Candidate& own,
                            const Target& target, const SymbolRanges& ranges) {
  return {.kernel = std::string(library_kernel(library)),
          .estimate_us = estimate_microseconds(call, own.kernel, target, ranges),
          .library = library};
}

void set_price(Candidate& candidate, const Records::Found& found, double otherwise_us) {
  candidate.price_us = found.match == Records::Match::kExact ? found.record->microseconds
                                                             : std::min(candidate.price_us, otherwise_us);
}

const KernelRow* choose(KernelCall& call, std::string_view op, const std::vector<const KernelRow*>& rows,
                        const Region* region, const Target& target, const SelectOptions& options) {
  Choice& choice = call.choice;
  choice.candidates = list_candidates(call, rows, target, options.ranges);
  std::string_view why;
  if (choice.candidates.size() > 1) {
    choice.key = problem_key(call, op, region, target, options.ranges);
    if (target.is_cuda() && prefer_shared_launch(choice.candidates, target))
      why = " that can share a launch";
    else if (order_by_measurements(*choice.key, choice.candidates))
      why = " by measurements of like problems";
  }
  call.reason = rank_reason(choice, why);
  Chooser chooser(call, op, region, target, options);
  if (choice.key && options.records != nullptr) chooser.use_record(*options.records);
  for (const ForcedChoice& forced : options.forced)
    if (is_meant(forced, call, op)) chooser.use_forced(forced.candidate);
  use_candidate(call, choice.candidates[choice.chosen], choice.candidates[0]);
  return *std::find_if(rows.begin(), rows.end(),
                       [&](const KernelRow* row) { return row->name == own_row(call)->row; });
}

bool multiplies_by_wgmma(const Way& way) {
  const auto* product = std::get_if<MatmulWay>(&way);
  return product != nullptr && (is_wgmma(*product) || is_tf32x3(*product));
}

void use_candidate(KernelCall& call, const Candidate& winner, const Candidate& own) {
  const Candidate& runs = winner.library ? own : winner;
  RowCall row = *row_call(call);
  row.row = runs.kernel;
  row.way = runs.way;
  if (winner.library)
    call.what = LibraryRun{to_string(*winner.library), workspace_bytes(*winner.library), std::move(row)};
  else
    call.what = std::move(row);
}

}  // namespace aicf
