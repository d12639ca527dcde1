#include "calls/join_pairs.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "calls/call_joiner.h"
#include "calls/call_windows.h"
#include "calls/joined_choice.h"
#include "calls/joined_program.h"
#include "kernels/cuda_kernel.h"
#include "select/cost_model.h"
#include "select/cuda_problem.h"

namespace aicf {
namespace {

constexpr char kPairKernel[] = "matmul_pair";
constexpr size_t kMatrices = 2;  // x and y, before the operands of a product's epilogue

// A product, or some of its columns.
struct Part {
  size_t call;                 // where it stands
  std::vector<Window> inputs;  // for these columns: x, y, the epilogue's
  std::vector<Window> outputs;
  size_t output = 0;  // the result that is read
  bool whole = true;  // all columns
};

// Where the two parts meet: a call, its operands over the axes of the products, the program that has their
// results as inputs.
struct Meeting {
  size_t call;
  Part first, second;
  TileProgram program;
  std::vector<Window> inputs, outputs;
};

Window columns_of(Window window, const Dim& first, const Dim& count) {
  window.offset = window.offset + first * window.strides.back();
  window.sizes.back() = count;
  return window;
}

// What joined_program can hand on.
bool is_handed(DType dtype) { return dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::f32; }

class PairJoiner : CallJoiner {
 public:
  using CallJoiner::CallJoiner;

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i) {
      std::optional<KernelCall> joined;
      const std::optional<Meeting> found = meeting_at(i);
      if (!found || !may_join(*found) || !(joined = join(*found))) continue;
      legality_.replace(i, std::move(*joined));
      for (const size_t gone : calls_before(*found)) legality_.remove(gone);
    }
    legality_.finish();
  }

 private:
  bool is_product(const KernelCall& call) const {
    return is_open_product(call, all_) && has_elements_alone(program_of(call));
  }

  // The product before call `end` that gives this window, or of whose result it is some columns.
  std::optional<Part> part_of(const Window& read, size_t end) const {
    const std::optional<size_t> writer = legality_.sole_writer(read.root, end);
    if (!writer) return std::nullopt;
    const KernelCall& call = calls_[*writer];
    if (!is_product(call) || !is_handed(read.dtype)) return std::nullopt;
    const std::optional<Window> window = over_rows(read, call.outputs[0].sizes.size());
    if (!window) return std::nullopt;
    for (size_t o = 0; o < call.outputs.size(); ++o)
      if (call.outputs[o] == *window) return Part{*writer, call.inputs, call.outputs, o, true};
    return columns_part(*writer, *window);
  }

  std::optional<Part> columns_part(size_t at, const Window& read) const {
    const KernelCall& call = calls_[at];
    const Window& all = call.outputs[0];
    const Dim first = read.offset - all.offset, &count = read.sizes.back();
    if (call.outputs.size() != 1 || !(all.strides.back() == Dim(1)) ||
        !(columns_of(all, first, count) == read))
      return std::nullopt;
    Part part{at, call.inputs, {read}, 0, false};
    for (size_t i = 1; i < part.inputs.size(); ++i) part.inputs[i] = columns_of(part.inputs[i], first, count);
    return part;
  }

  // Two different matrices of one form by which the same x is multiplied.
  bool are_pair(const Part& a, const Part& b) const {
    const KernelCall &one = calls_[a.call], &other = calls_[b.call];
    const Window &y = a.inputs[1], &z = b.inputs[1];
    return a.inputs[0] == b.inputs[0] && !(y == z) && row_call(one)->params == row_call(other)->params &&
           row_call(one)->fparams == row_call(other)->fparams && y.dtype == z.dtype && y.sizes == z.sizes &&
           y.strides == z.strides &&
           one.outputs[a.output].sizes.size() == other.outputs[b.output].sizes.size();
  }

  std::optional<Meeting> meeting_at(size_t at) const {
    const KernelCall& call = calls_[at];
    if (is_product(call)) return in_epilogue(at);
    return is_region(call) && has_elements_alone(program_of(call)) ? in_region(at) : std::nullopt;
  }

  // The epilogue of one product reads the other's results.
  std::optional<Meeting> in_epilogue(size_t at) const {
    const KernelCall& call = calls_[at];
    const Part own{at, call.inputs, call.outputs, 0, true};
    for (size_t i = kMatrices; i < call.inputs.size(); ++i) {
      const std::optional<Part> other = part_of(call.inputs[i], at);
      if (!other || !are_pair(*other, own)) continue;
      Meeting meeting{at, *other, own, {}, call.inputs, call.outputs};
      meeting.program = joined(*other, program_of(call), i - kMatrices + 1, at);
      meeting.inputs.erase(meeting.inputs.begin() + static_cast<std::ptrdiff_t>(i));
      meeting.inputs.erase(meeting.inputs.begin(), meeting.inputs.begin() + kMatrices);
      return meeting;
    }
    return std::nullopt;
  }

  // A region reads the results of both.
  std::optional<Meeting> in_region(size_t at) const {
    const KernelCall& call = calls_[at];
    for (size_t i = 0; i < call.inputs.size(); ++i) {
      const std::optional<Part> first = part_of(call.inputs[i], at);
      for (size_t j = i + 1; first && j < call.inputs.size(); ++j) {
        const std::optional<Part> second = part_of(call.inputs[j], at);
        if (!second || !are_pair(*first, *second)) continue;
        Meeting meeting{at, *first, *second, {}, {}, {}};
        if (!set_operands(meeting, i, j)) return std::nullopt;
        const size_t before = program_of(calls_[second->call]).inputs.size();
        meeting.program = joined(*first, joined(*second, program_of(call), j, at), before + i, at);
        return meeting;
      }
    }
    return std::nullopt;
  }

  // The region's other operands and its results, over the axes of the products.
  bool set_operands(Meeting& meeting, size_t first, size_t second) const {
    const KernelCall& call = calls_[meeting.call];
    const size_t rank = calls_[meeting.first.call].outputs[0].sizes.size();
    const auto add = [&](const Window& w, std::vector<Window>& to) {
      const std::optional<Window> merged = over_rows(w, rank);
      if (merged) to.push_back(*merged);
      return merged.has_value();
    };
    for (size_t i = 0; i < call.inputs.size(); ++i)
      if (i != first && i != second && !add(call.inputs[i], meeting.inputs)) return false;
    return std::all_of(call.outputs.begin(), call.outputs.end(),
                       [&](const Window& w) { return add(w, meeting.outputs); });
  }

  // What `program` does with input `middle` behind the part that gives it.
  TileProgram joined(const Part& part, const TileProgram& program, size_t middle, size_t meeting) const {
    return joined_program(program_of(calls_[part.call]), part.output, kept(part, meeting), program, middle);
  }

  // Which results of a part others read, too.
  std::vector<bool> kept(const Part& part, size_t meeting) const {
    std::vector<bool> kept;
    for (const Window& w : part.outputs) kept.push_back(legality_.others_need(w.root, {part.call, meeting}));
    return kept;
  }

  // The calls that go, in order: the products but one in whose epilogue they meet.
  static std::vector<size_t> calls_before(const Meeting& m) {
    std::vector<size_t> calls = {m.first.call, m.second.call};
    std::sort(calls.begin(), calls.end());
    calls.erase(std::unique(calls.begin(), calls.end()), calls.end());
    std::erase(calls, m.call);
    return calls;
  }

  // Whether the parts are the two halves of one product.
  bool are_all_columns(const Meeting& m) const {
    const Window &all = calls_[m.first.call].outputs[0], &a = m.first.outputs[0], &b = m.second.outputs[0];
    const Dim& count = a.sizes.back();
    return m.first.call == m.second.call && count * Dim(2) == all.sizes.back() &&
           (b.offset - a.offset == count || a.offset - b.offset == count);
  }

  bool may_join(const Meeting& m) const {
    for (const Part* part : {&m.first, &m.second}) {
      // Columns that others read, but the region does not, are not stored.
      if (!part->whole && !are_all_columns(m) &&
          legality_.others_need(part->outputs[0].root, {part->call, m.call}))
        return false;
      // Only the thread that made them has seen the products.
      for (const Window& w : part->outputs)
        if (part->call != m.call && meets(m.inputs, w.root)) return false;
    }
    const std::vector<size_t> moved = calls_before(m);
    return std::all_of(moved.begin(), moved.end(),
                       [&](size_t call) { return legality_.may_move(call, m.call - 1); });
  }

  std::optional<KernelCall> join(const Meeting& m) {
    KernelCall joined;
    const RowCall& product = *row_call(calls_[m.second.call]);
    joined.what = RowCall{.row = kPairKernel, .params = product.params, .fparams = product.fparams};
    joined.inputs = {m.first.inputs[0], m.first.inputs[1], m.second.inputs[1]};
    const auto add_inputs = [&](const Part& part) {
      joined.inputs.insert(joined.inputs.end(), part.inputs.begin() + kMatrices, part.inputs.end());
    };
    const auto add_outputs = [&](const Part& part) {
      const std::vector<bool> stays = kept(part, m.call);
      for (size_t i = 0; i < stays.size(); ++i)
        if (stays[i]) joined.outputs.push_back(part.outputs[i]);
    };
    add_inputs(m.first);
    add_outputs(m.first);
    if (m.second.call != m.call) {
      add_inputs(m.second);
      add_outputs(m.second);
    }
    joined.inputs.insert(joined.inputs.end(), m.inputs.begin(), m.inputs.end());
    joined.outputs.insert(joined.outputs.end(), m.outputs.begin(), m.outputs.end());
    if (!fits(joined, m)) return std::nullopt;
    return choose(std::move(joined), m);
  }

  // Every operand of the epilogue covers the result, and what is written in place is read by the thread that
  // writes it.
  bool fits(const KernelCall& joined, const Meeting& m) const {
    if (joined.inputs.size() + joined.outputs.size() > static_cast<size_t>(kMaxTileOperands) ||
        m.program.registers.size() > static_cast<size_t>(kMaxTileRegisters) ||
        m.program.scalars.size() > static_cast<size_t>(kMaxTileRegisters))
      return false;
    const Shape& sizes = joined.outputs[0].sizes;
    if (!(sizes.back() == m.first.inputs[1].sizes.back())) return false;
    const auto covers = [&](const Window& w) { return w.sizes == sizes; };
    for (size_t i = 0; i < joined.inputs.size(); ++i) {
      const Window& w = joined.inputs[i];
      const bool is_matrix = i <= kMatrices;
      if (!is_matrix && !covers(w)) return false;
      if (meets(joined.outputs, w.root) &&
          (is_matrix || std::find(joined.outputs.begin(), joined.outputs.end(), w) == joined.outputs.end()))
        return false;
    }
    return std::all_of(joined.outputs.begin(), joined.outputs.end(), covers);
  }

  // The joined call, if it takes less time than the calls apart.
  std::optional<KernelCall> choose(KernelCall joined, const Meeting& m) {
    const TileProgram program = with_input_at(m.program, program_of(calls_[m.first.call]).inputs.size(), 1);
    CudaProblem problem = cuda_problem(joined, target_.arch, ranges_);
    problem.program = &program;
    const std::vector<KernelVariant> variants = cuda_variants(*find_cuda_kernel(kPairKernel), problem);
    if (variants.empty()) return std::nullopt;
    const std::vector<size_t> gone = calls_before(m);
    joined.origins = united_origins(calls_[gone[0]], calls_[m.call]);
    joined.choice.key = calls_[m.second.call].choice.key;
    double apart = microseconds(calls_[m.call]);
    for (const size_t call : gone) apart += target_.facts().edge_microseconds + microseconds(calls_[call]);
    if (!take_variant(joined, variants, apart, "two products that meet", options_)) return std::nullopt;
    check_tile_program(program);
    row_call(joined)->programs = {
        {ProgramRole::kEpilogue, static_cast<int>(programs_.size()), kMatrices + 1}};
    programs_.push_back(program);
    return joined;
  }

  double microseconds(const KernelCall& call) const {
    return is_product(call) ? call.choice.candidates[call.choice.chosen].microseconds
                            : estimate_microseconds(call, kRegionRow, target_, ranges_);
  }
};

}  // namespace

void join_pairs(CallGraph& calls, const Target& target, const SelectOptions& options) {
  PairJoiner(calls, target, options).run();
}

}  // namespace aicf
