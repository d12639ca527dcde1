#include "calls/verify_calls.h"

#include <algorithm>
#include <optional>
#include <set>

#include "base/error.h"
#include "calls/call_code.h"
#include "calls/call_forms.h"
#include "calls/call_windows.h"
#include "calls/legality.h"
#include "ir/op.h"
#include "kernels/common/cuda_kernel.h"

namespace aicf {
namespace {

class CallVerifier {
 public:
  CallVerifier(const CallGraph& calls, const std::string& after)
      : calls_(calls), graph_(calls.graph), after_(after) {
    for (const auto& [name, range] : calls.ranges) ends_[0][name] = range.lo, ends_[1][name] = range.hi;
  }

  void run() {
    check_lists();
    const size_t roots = calls_.constant.size();
    written_.assign(roots, false);
    for (size_t root = 0; root < roots; ++root) written_[root] = is_there_before(static_cast<ValueId>(root));
    find_lost_variables();
    for (const auto* list : {&calls_.init_calls, &calls_.calls})
      for (const KernelCall& call : *list) {
        check_call(call);
        run_in_order(call, list == &calls_.init_calls);
      }
    check_lanes();
    for (const ValueId root : calls_.output_roots)
      require(written_[static_cast<size_t>(root)], "nothing writes an output", nullptr, root);
  }

 private:
  void require(bool condition, const char* what, const KernelCall* call = nullptr,
               ValueId root = kNoValue) const {
    if (condition) return;
    const std::string where =
        call == nullptr ? "" : ", " + named(*call).kernel + " (" + origin_text(*call) + ")";
    const std::string value = root == kNoValue ? "" : ": %" + std::to_string(root);
    AICF_CHECK(condition, "calls do not hold together after " + after_ + ": " + graph_.name() + where + ": " +
                              what + value);
  }

  void check_lists() const {
    const auto values = static_cast<size_t>(graph_.value_count());
    require(calls_.placement.size() == values, "not every value has a place");
    require(calls_.constant.size() == values + calls_.extra.size(), "not every value is constant or not");
    require(calls_.output_roots.size() == graph_.outputs().size(), "not every output has a root");
    for (const ValueId root : calls_.output_roots)
      require(root >= 0 && static_cast<size_t>(root) < calls_.constant.size(), "an output has no root");
  }

  // Of leaves: the caller's, a variable's or a constant's memory. A value without elements is no memory.
  bool is_there_before(ValueId root) const {
    if (!calls_.is_extra(root) && graph_.value(root).role != Role::kTemp) return true;
    return has_no_elements(calls_.type_of(root).shape);
  }
  static bool has_no_elements(const Shape& shape) {
    return std::any_of(shape.begin(), shape.end(), [](const Dim& size) { return size == Dim(0); });
  }

  // Variables whose new value nothing but the update reads.
  void find_lost_variables() {
    const std::vector<int> uses = graph_.use_counts();
    for (const Update& update : graph_.updates()) {
      bool alone = true;
      for (ValueId value = update.value;;) {
        alone = alone && uses[static_cast<size_t>(value)] == 1;
        const Node* node = graph_.producer(value);
        if (node == nullptr || !op_info(node->op).has(kView)) break;
        value = node->operands[0];
      }
      if (alone) lost_.insert(update.variable);
    }
  }

  void check_lanes() const {
    OpenLanes open;
    for (size_t at = 0; at < calls_.calls.size(); ++at) {
      const KernelCall& call = calls_.calls[at];
      const auto is_lane = [](int32_t number) { return number >= 1 && number <= kMostLanes; };
      require(call.lane.number == 0 || (is_lane(call.lane.number) && call.lane.joins.empty()),
              "it is in no lane", &call);
      require(std::all_of(call.lane.joins.begin(), call.lane.joins.end(), is_lane), "it joins no lane",
              &call);
      open.begin(call.lane, at);
      open.visit_beside(call.lane, [&](size_t other) {
        require(!must_keep_order_by_byte(calls_.calls[other], call),
                "it runs beside a call whose memory it needs", &call);
      });
    }
  }

  void check_call(const KernelCall& call) const {
    for (const auto* list : {&call.inputs, &call.outputs})
      for (const Window& w : *list) check_window(w, call);
    for (const int32_t number : call.elementwise)
      require(number >= 0 && static_cast<size_t>(number) < call.inputs.size(), "elementwise names no input",
              &call);
    std::visit([&](const auto& what) { check_what(what, call); }, call.what);
  }

  void check_what(std::monostate, const KernelCall& call) const { require(false, "nothing runs", &call); }
  void check_what(const RowCall& row, const KernelCall& call) const {
    const bool has_region = has_program(call, ProgramRole::kRegion);
    require(has_region == row.schedule.has_value(), "a schedule is a region's", &call);
    for (const ProgramUse& use : row.programs) check_program(use, row, call);
  }
  void check_what(const LibraryRun& library, const KernelCall& call) const {
    require(!library.text.empty(), "a library's call says nothing", &call);
    check_what(library.fallback, call);
  }
  void check_what(const Bundle&, const KernelCall& call) const { check_members(call); }
  void check_what(const GroupedProducts& group, const KernelCall& call) const {
    check_members(call);
    const RowCall* first = row_call(group.members[0]);
    for (const KernelCall& member : group.members) {
      const RowCall* row = row_call(member);
      require(row != nullptr && row->row == first->row && row->way == first->way,
              "its members run in several ways", &call);
    }
  }
  void check_what(const PrologueFusion& joined, const KernelCall& call) const {
    const KernelCall &producer = *joined.producer, &consumer = *joined.consumer;
    check_members(call);
    require(row_call(producer) != nullptr && row_call(consumer) != nullptr, "a part of it is no row", &call);
    require(!consumer.inputs.empty() && has_root(producer.outputs, consumer.inputs[0].root),
            "its consumer does not read what its producer writes", &call);
  }
  void check_what(const ControlRun& control, const KernelCall& call) const {
    require(!control.bodies.empty(), "it has no body", &call);
    for (const int body : control.bodies)
      require(body >= 0 && static_cast<size_t>(body) < calls_.bodies.size(), "it names no body", &call);
  }
  void check_what(const CustomRun& custom, const KernelCall& call) const {
    require(!custom.op.empty(), "an op of the user's has no name", &call);
  }

  void check_window(const Window& w, const KernelCall& call) const {
    require(w.root >= 0 && static_cast<size_t>(w.root) < calls_.constant.size(), "a window is on no value",
            &call);
    require(w.sizes.size() == w.strides.size(), "a window has not a stride for each axis", &call);
    require(inside(w, ends_[1]) || inside(w, ends_[0]), "a window leaves the memory of its root", &call,
            w.root);
  }

  // A size that no range is given for is data: the plan's checks at bind see it.
  static std::optional<int64_t> value_of(const Dim& dim, const SymbolValues& sizes) {
    if (dim.is_constant()) return dim.constant_part();
    try {
      return evaluate(dim, sizes);
    } catch (const UserError&) {
      return std::nullopt;
    }
  }
  static std::optional<int64_t> count_of(const Shape& shape, const SymbolValues& sizes) {
    int64_t count = 1;
    for (const Dim& dim : shape) {
      const std::optional<int64_t> size = value_of(dim, sizes);
      if (!size) return std::nullopt;
      count = checked_mul(count, *size);
    }
    return count;
  }

  bool inside(const Window& w, const SymbolValues& sizes) const {
    const auto offset = value_of(w.offset, sizes);
    const auto elements = count_of(calls_.type_of(w.root).shape, sizes);
    if (!offset || !elements) return true;
    int64_t first = *offset, last = *offset;
    for (size_t i = 0; i < w.sizes.size(); ++i) {
      const auto size = value_of(w.sizes[i], sizes), stride = value_of(w.strides[i], sizes);
      if (!size || !stride || *size == 0) return true;
      (*stride < 0 ? first : last) += (*size - 1) * *stride;
    }
    const int64_t bytes = *elements * dtype_bytes(calls_.type_of(w.root).dtype);
    return first >= 0 && (last + 1) * dtype_bytes(w.dtype) <= bytes;
  }

  // How many products' sums a row hands to an epilogue; 0: its program is a region.
  static size_t sums_of(WorkForm work) {
    if (work == WorkForm::kPair) return 2;
    return work == WorkForm::kProduct || work == WorkForm::kConv || work == WorkForm::kConvTranspose ? 1 : 0;
  }

  // A prologue's operands stand behind x and the indices of a scatter, before what numbers the rows of tables
  // and an order that is taken. It makes the updates, of the result's type.
  void check_prologue(const TileProgram& program, const ProgramUse& use, const RowCall& row,
                      const KernelCall& call) const {
    constexpr size_t kOwn = 2;
    const size_t operands = kOwn + program.inputs.size();
    require(use.first_operand == kOwn && row.params.size() == 1 + program.inputs.size() &&
                program.outputs.size() == 1 && program.outputs[0] == call.outputs[0].dtype,
            "a prologue makes no updates of its scatter", &call);
    const size_t all = operands + count_lists(program, row, call, operands);
    require(call.inputs.size() == all || call.inputs.size() == all + 1,
            "the program has other operands than the call", &call);
    for (size_t i = 0; i < program.inputs.size(); ++i)
      require(program.inputs[i] == call.inputs[kOwn + i].dtype,
              "an operand of the program is of another dtype", &call);
  }

  // Inputs that number the rows of the program's operands, which stand behind `operands`: each operand's, or
  // -1, is a param of the row behind its first.
  size_t count_lists(const TileProgram& program, const RowCall& row, const KernelCall& call,
                     size_t operands) const {
    std::set<int64_t> lists;
    for (size_t i = 0; i < program.inputs.size(); ++i) {
      const int64_t list = row.params[1 + i].constant().value_or(-2);
      require(list == -1 ||
                  (list >= static_cast<int64_t>(operands) && list < static_cast<int64_t>(call.inputs.size())),
              "no input numbers the rows of a table", &call);
      if (list >= 0) lists.insert(list);
    }
    return lists.size();
  }

  // How many inputs of a region stand behind its program's: the indices of what it reads at indices.
  size_t count_indices(const TileProgram& program, const RowCall& row, const KernelCall& call) const {
    if (facts_of(row.row).work != WorkForm::kIndexedRegion) return row.indexed ? 1 : 0;
    require(row.params.size() == 1 + program.inputs.size(), "not every operand is a table or none", &call);
    const size_t lists = count_lists(program, row, call, program.inputs.size());
    require(lists > 0, "it indexes no input of its program", &call);
    return lists;
  }

  // The operands of a region are those of its call, behind which the indices of an indexed one stand. An
  // epilogue reads all from its first one on; further results may stand behind its own.
  void check_program(const ProgramUse& use, const RowCall& row, const KernelCall& call) const {
    require(use.index >= 0 && static_cast<size_t>(use.index) < calls_.programs.size(),
            "there is no such program", &call);
    const TileProgram& program = calls_.programs[static_cast<size_t>(use.index)];
    const WorkForm work = facts_of(row.row).work;
    const size_t sums = sums_of(work), first = static_cast<size_t>(use.first_operand);
    const bool is_region = use.role == ProgramRole::kRegion;
    const ProgramRole role = work == WorkForm::kMessages ? ProgramRole::kPrologue
                             : sums > 0                  ? ProgramRole::kEpilogue
                                                         : ProgramRole::kRegion;
    require(use.role == role, "its program plays another role in its row", &call);
    if (role == ProgramRole::kPrologue) return check_prologue(program, use, row, call);
    require(use.first_operand >= (is_region ? 0 : static_cast<int>(sums) + 1) &&
                first <= call.inputs.size() && program.inputs.size() >= sums,
            "the program's operands begin elsewhere", &call);
    const size_t own = program.inputs.size() - sums, given = call.inputs.size() - first;
    require(own + count_indices(program, row, call) == given, "the program has other operands than the call",
            &call);
    const bool has_rows = is_region && work != WorkForm::kRegion && work != WorkForm::kIndexedRegion;
    require(row.indexed.has_value() == has_rows &&
                (!row.indexed || (*row.indexed >= 0 && static_cast<size_t>(*row.indexed) < own)),
            "it indexes no input of its program", &call);
    for (size_t i = 0; i < own; ++i)
      require(program.inputs[sums + i] == call.inputs[first + i].dtype,
              "an operand of the program is of another dtype", &call);
    require(is_region ? program.outputs.size() == call.outputs.size()
                      : program.outputs.size() <= call.outputs.size(),
            "the program has other results than the call", &call);
    for (size_t i = first; !is_region && i < call.inputs.size(); ++i)
      require(call.inputs[i].sizes == call.outputs[0].sizes, "an operand does not cover the result", &call);
    for (size_t i = 0; i < program.outputs.size(); ++i)
      require(program.outputs[i] == call.outputs[i].dtype, "a result of the program is of another dtype",
              &call);
  }

  void check_members(const KernelCall& call) const {
    const std::vector<StagedCall> members = members_of(call);
    require(!members.empty(), "it has no members", &call);
    const auto has = [](const std::vector<Window>& list, const Window& w) {
      return std::find(list.begin(), list.end(), w) != list.end();
    };
    KernelCall whole;
    int last = 0;
    for (const auto& [member, stage] : members) {
      check_call(*member);
      require(members_of(*member).empty(), "its member has members", &call);
      require(stage == last || (member != members[0].call && stage == last + 1),
              "stages of members do not ascend from 0", member);
      last = stage;
      add_member(*member, whole);
    }
    for (const Window& w : whole.inputs)
      require(has(call.inputs, w), "its member reads what it does not", &call);
    for (const Window& w : whole.outputs)
      require(has(call.outputs, w), "its member writes what it does not", &call);
    for (const Window& w : call.inputs) require(has(whole.inputs, w), "no member reads an operand", &call);
    for (const Window& w : call.outputs) require(has(whole.outputs, w), "no member writes a result", &call);
  }

  // Members of one stage run side by side: what one of them writes, another does not read.
  void run_in_order(const KernelCall& call, bool init) {
    const std::vector<StagedCall> members = members_of(call);
    if (members.empty()) {
      read(call);
      write(call, init);
      return;
    }
    for (size_t begin = 0, end = 0; begin < members.size(); begin = end) {
      while (end < members.size() && members[end].stage == members[begin].stage) ++end;
      for (size_t i = begin; i < end; ++i) read(*members[i].call);
      for (size_t i = begin; i < end; ++i) write(*members[i].call, init);
    }
  }
  void read(const KernelCall& call) const {
    for (const Window& w : call.inputs) {
      if (has_no_elements(w.sizes)) continue;  // it may run before what writes the rest
      require(written_[static_cast<size_t>(w.root)], "it reads what nothing has written", &call, w.root);
      require(!gone_.contains(w.root), "it reads a variable that is overwritten", &call, w.root);
    }
  }
  void write(const KernelCall& call, bool init) {
    for (const Window& w : call.outputs) {
      const auto root = static_cast<size_t>(w.root);
      require(init || !calls_.constant[root], "it writes what is constant", &call, w.root);
      written_[root] = true;
      if (!init && lost_.contains(w.root)) gone_.insert(w.root);
    }
  }

  const CallGraph& calls_;
  const Graph& graph_;
  const std::string& after_;
  SymbolValues ends_[2];       // of the ranges
  std::vector<bool> written_;  // by root, so far
  std::set<ValueId> lost_,
      gone_;  // variables whose old value is the last that anybody reads; those overwritten
};

void check_way(const KernelCall& call, const CodeContext& context) {
  const auto* group = std::get_if<GroupedProducts>(&call.what);
  const RowCall* row = group != nullptr ? row_call(group->members[0]) : own_row(call);
  if (row == nullptr)
    for (const auto& [member, stage] : members_of(call)) check_way(*member, context);
  AICF_CHECK(row == nullptr || !is_named(row->way) || has_way(ways_of(call, context), row->way),
             "a call runs in no way of its row: " + to_string(named(call)) + " (" + origin_text(call) + ")");
}

}  // namespace

void verify(const CallGraph& calls, const std::string& after) { CallVerifier(calls, after).run(); }

void verify(const CallProgram& program, const std::string& after) {
  for (size_t i = 0; i < program.graphs.size(); ++i) {
    verify(program.graphs[i], after);
    for (const int32_t body : program.graphs[i].bodies)
      AICF_CHECK(
          body >= 0 && static_cast<size_t>(body) < i && program.graphs[static_cast<size_t>(body)].is_body,
          "calls do not hold together after " + after + ": a body does not come before its graph");
  }
}

void verify_ways(const CallProgram& program) {
  if (!program.target.is_cuda()) return;
  for (const CallGraph& calls : program.graphs)
    for (const KernelCall& call : calls.calls) check_way(call, context_of(calls, program.target));
}

}  // namespace aicf
