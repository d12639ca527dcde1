#include "plan/plan_part.h"

#include <algorithm>
#include <map>

namespace aicf {
namespace {

// New numbers for what is kept of a list, in its order.
class Renumbering {
 public:
  explicit Renumbering(size_t count) : kept_(count, false), numbers_(count, -1) {}
  void keep(int32_t old) {
    if (old >= 0) kept_[static_cast<size_t>(old)] = true;
  }
  bool keeps(size_t old) const { return kept_[old]; }
  // Gives the old numbers.
  std::vector<size_t> close() {
    std::vector<size_t> list;
    for (size_t i = 0; i < kept_.size(); ++i) {
      if (!kept_[i]) continue;
      numbers_[i] = static_cast<int32_t>(list.size());
      list.push_back(i);
    }
    return list;
  }
  void renumber(int32_t& number) const {
    if (number >= 0) number = numbers_[static_cast<size_t>(number)];
  }

 private:
  std::vector<bool> kept_;
  std::vector<int32_t> numbers_;
};

template <typename Visit>
void for_each_plan(Plan& plan, const Visit& visit) {
  for (auto* list : {&plan.entries, &plan.buckets, &plan.bodies})
    for (EntryPlan& entry : *list) visit(entry);
}

template <typename T>
void pick(std::vector<T>& list, const std::vector<size_t>& numbers) {
  std::vector<T> picked;
  for (const size_t number : numbers) picked.push_back(std::move(list[number]));
  list = std::move(picked);
}

// Bytes of the packed area.
struct Packed {
  int64_t begin, end;
};

void add_packed(const EntryPlan& entry, const std::vector<TensorRef>& refs, std::vector<Packed>& needed) {
  for (const TensorRef& ref : refs)
    if (const Buffer& buffer = entry.buffers[static_cast<size_t>(ref.buffer)];
        buffer.kind == BufferKind::kPacked)
      needed.push_back({buffer.offset, buffer.offset + buffer.max_bytes});
}

// The steps of init that fill what the others read, and those that these read in turn.
void keep_needed_steps(EntryPlan& init, std::vector<Packed> needed) {
  std::vector<Step> kept;
  for (size_t i = init.steps.size(); i-- > 0;) {
    Step& step = init.steps[i];
    std::vector<Packed> written;
    add_packed(init, step.outputs, written);
    const bool read = std::any_of(written.begin(), written.end(), [&](const Packed& w) {
      return std::any_of(needed.begin(), needed.end(),
                         [&](const Packed& n) { return w.begin < n.end && n.begin < w.end; });
    });
    if (!read) continue;
    add_packed(init, step.inputs, needed);
    kept.push_back(std::move(step));
  }
  init.steps.assign(std::make_move_iterator(kept.rbegin()), std::make_move_iterator(kept.rend()));
  Renumbering buffers(init.buffers.size());
  for (const Step& step : init.steps)
    for (const auto* refs : {&step.inputs, &step.outputs})
      for (const TensorRef& ref : *refs) buffers.keep(ref.buffer);
  pick(init.buffers, buffers.close());
  for (Step& step : init.steps)
    for (auto* refs : {&step.inputs, &step.outputs})
      for (TensorRef& ref : *refs) buffers.renumber(ref.buffer);
}

void prune_init(Plan& plan) {
  const auto init = std::find_if(plan.entries.begin(), plan.entries.end(),
                                 [](const EntryPlan& entry) { return entry.name == kInitEntry; });
  if (init == plan.entries.end()) return;
  std::vector<Packed> needed;
  plan.packed_bytes = 0;
  for_each_plan(plan, [&](const EntryPlan& entry) {
    if (entry.name == kInitEntry) return;
    for (const Buffer& buffer : entry.buffers)
      if (buffer.kind == BufferKind::kPacked)
        needed.push_back({buffer.offset, buffer.offset + buffer.max_bytes});
  });
  keep_needed_steps(*init, std::move(needed));
  for_each_plan(plan, [&](const EntryPlan& entry) {
    for (const Buffer& buffer : entry.buffers)
      if (buffer.kind == BufferKind::kPacked)
        plan.packed_bytes = std::max(plan.packed_bytes, buffer.offset + buffer.max_bytes);
  });
  if (init->steps.empty()) plan.entries.erase(init);
}

// Bodies that no step runs any more go; a body comes before the one that holds its step.
void prune_bodies(Plan& plan) {
  Renumbering bodies(plan.bodies.size());
  const auto mark = [&](const EntryPlan& entry) {
    for (const Step& step : entry.steps)
      for (const int32_t body : step.bodies) bodies.keep(body);
  };
  for (const auto* list : {&plan.entries, &plan.buckets})
    for (const EntryPlan& entry : *list) mark(entry);
  for (size_t i = plan.bodies.size(); i-- > 0;)
    if (bodies.keeps(i)) mark(plan.bodies[i]);
  pick(plan.bodies, bodies.close());
  for_each_plan(plan, [&](EntryPlan& entry) {
    for (Step& step : entry.steps)
      for (int32_t& body : step.bodies) bodies.renumber(body);
  });
}

std::vector<size_t> prune_code(Plan& plan) {
  Renumbering programs(plan.programs.size()), modules(static_cast<size_t>(plan.modules));
  for_each_plan(plan, [&](const EntryPlan& entry) {
    for (const Step& step : entry.steps) {
      programs.keep(step.program);
      modules.keep(step.module);
    }
  });
  pick(plan.programs, programs.close());
  std::vector<size_t> kept = modules.close();
  plan.modules = static_cast<int32_t>(kept.size());
  for_each_plan(plan, [&](EntryPlan& entry) {
    for (Step& step : entry.steps) {
      programs.renumber(step.program);
      modules.renumber(step.module);
    }
  });
  return kept;
}

// A size that no input decides is in no entry.
void prune_sizes(Plan& plan) {
  std::map<std::string, int> used;
  for (const EntryPlan& entry : plan.entries)
    for (const IoTensor& io : entry.inputs)
      for (const Dim& dim : io.sizes) dim.collect_symbols(used);
  std::erase_if(plan.sizes, [&](const auto& item) { return !used.contains(item.first); });
}

}  // namespace

std::set<std::string> buffer_names(const Plan& plan, BufferKind kind) {
  std::set<std::string> names;
  for (const auto* list : {&plan.entries, &plan.buckets, &plan.bodies})
    for (const EntryPlan& entry : *list)
      for (const Buffer& buffer : entry.buffers)
        if (buffer.kind == kind) names.insert(buffer.name);
  return names;
}

PlanPart part_of(const Plan& whole, const std::set<std::string>& names) {
  PlanPart part{whole, {}};
  Plan& plan = part.plan;
  std::erase_if(plan.entries, [&](const EntryPlan& entry) {
    return entry.name != kInitEntry && !names.contains(entry.name);
  });
  std::erase_if(plan.buckets, [&](const EntryPlan& bucket) { return !names.contains(bucket.name); });
  prune_bodies(plan);
  prune_init(plan);
  part.modules = prune_code(plan);
  prune_sizes(plan);
  const std::set<std::string> variables = buffer_names(plan, BufferKind::kVariable);
  std::erase_if(plan.variables, [&](const PlanVariable& v) { return !variables.contains(v.name); });
  return part;
}

}  // namespace aicf
