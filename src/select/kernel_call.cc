#include "select/kernel_call.h"

#include <algorithm>
#include <utility>

#include "ir/op.h"
#include "kernels/common/custom_kernel.h"

namespace aicf {
namespace {

// "a … b"
constexpr char kBetween[] = " … ";

std::string bundle_way(const Bundle& bundle) {
  const int stages = bundle.members.empty() ? 0 : bundle.members.back().stage + 1;
  return std::to_string(bundle.members.size()) + " calls in " + std::to_string(stages) +
         (stages == 1 ? " stage" : " stages");
}

struct Name {
  RunName operator()(std::monostate) const { return {}; }
  RunName operator()(const RowCall& row) const { return {row.row, to_string(row.way)}; }
  RunName operator()(const LibraryRun& library) const { return (*this)(library.fallback); }
  RunName operator()(const Bundle& bundle) const { return {kBundleKernel, bundle_way(bundle)}; }
  RunName operator()(const GroupedProducts& group) const {
    return {kProductGroup, group.members.empty() ? "" : named(group.members[0]).way};
  }
  RunName operator()(const PrologueFusion& joined) const {
    const bool region = has_program(*joined.producer, ProgramRole::kRegion);
    return {region ? kRegionProduct : kRopeAttention, named(*joined.consumer).way};
  }
  RunName operator()(const ControlRun& control) const {
    return {std::string(op_info(control.kind).name), ""};
  }
  RunName operator()(const CustomRun& custom) const { return {std::string(kCustomPrefix) + custom.op, ""}; }
};

}  // namespace

bool Bundle::operator==(const Bundle& other) const { return members == other.members; }
bool GroupedProducts::operator==(const GroupedProducts& other) const { return members == other.members; }
bool PrologueFusion::operator==(const PrologueFusion& other) const {
  return *producer == *other.producer && *consumer == *other.consumer;
}
bool KernelCall::operator==(const KernelCall&) const = default;

bool is_row(const KernelCall& call, std::string_view row) {
  const RowCall* own = row_call(call);
  return own != nullptr && own->row == row;
}

bool has_program(const KernelCall& call, ProgramRole role) {
  const RowCall* own = own_row(call);
  return own != nullptr && std::any_of(own->programs.begin(), own->programs.end(),
                                       [&](const ProgramUse& use) { return use.role == role; });
}

bool is_region(const KernelCall& call) {
  return is_row(call, kRegionRow) && has_program(call, ProgramRole::kRegion);
}

std::vector<Dim> plan_params(const RowCall& row) {
  std::vector<Dim> params = row.params;
  if (row.indexed) params.push_back(Dim(*row.indexed));
  return params;
}

RowCall region_row(Schedule schedule, int program) {
  RowCall row{.row = std::string(kRegionRow), .params = {Dim(schedule.inner_rank)}};
  row.schedule = std::move(schedule);
  row.programs = {{ProgramRole::kRegion, program, 0}};
  return row;
}

std::vector<StagedCall> members_of(const KernelCall& call) {
  std::vector<StagedCall> members;
  if (const auto* bundle = std::get_if<Bundle>(&call.what)) {
    for (const BundleMember& member : bundle->members) members.push_back({&member.call, member.stage});
  } else if (const auto* group = std::get_if<GroupedProducts>(&call.what)) {
    for (const KernelCall& member : group->members) members.push_back({&member, 0});
  } else if (const auto* joined = std::get_if<PrologueFusion>(&call.what)) {
    members = {{&*joined->producer, 0}, {&*joined->consumer, 1}};
  }
  return members;
}

std::string current_name(const std::string& name) {
  const size_t slash = name.find('/');
  const std::optional<Way> way =
      slash == name.npos ? std::nullopt : parse_way(std::string_view(name).substr(slash + 1));
  return way && is_named(*way) ? to_string(RunName{name.substr(0, slash), to_string(*way)}) : name;
}

std::string to_string(const RunName& name) {
  return name.way.empty() ? name.kernel : name.kernel + "/" + name.way;
}

RunName named(const KernelCall& call) { return std::visit(Name(), call.what); }

std::string origin_text(const KernelCall& call) {
  const std::vector<StagedCall> members = members_of(call);
  if (!members.empty() && !std::holds_alternative<PrologueFusion>(call.what)) {
    const std::string first = origin_text(*members.front().call);
    return members.size() == 1 ? first : first + kBetween + origin_text(*members.back().call);
  }
  std::string text;
  for (size_t i = 0; i < call.origins.size(); ++i) text += (i > 0 ? kBetween : "") + call.origins[i];
  return text;
}

}  // namespace aicf
