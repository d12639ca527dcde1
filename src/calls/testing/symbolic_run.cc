#include "calls/testing/symbolic_run.h"

#include <algorithm>
#include <set>

namespace aicf::testing {
namespace {

uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a * 0x9e3779b97f4a7c15u + b + 0x632be59bd9b4e019u;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9u;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebu;
  return x ^ (x >> 31);
}

int64_t value_of(const Dim& dim, int64_t size) {
  if (const auto constant = dim.constant()) return *constant;
  return evaluate(dim, {{"n", size}});
}

}  // namespace

SymbolicRun::SymbolicRun(const CallProgram& program, size_t graph, Grain grain, int64_t size)
    : grain_(grain), size_(size) {
  const CallGraph& own = program.graphs[graph];
  const auto bytes_of = [&](const TensorType& type) {
    int64_t count = dtype_bytes(type.dtype);
    for (const Dim& dim : type.shape) count *= value_of(dim, size);
    return count;
  };
  for (ValueId id = 0; id < own.graph.value_count(); ++id) {
    bytes_.push_back(bytes_of(own.graph.type(id)));
    kept_.push_back(own.graph.value(id).role != Role::kTemp);
  }
  for (const ExtraValue& extra : own.extra) bytes_.push_back(bytes_of(extra.type));
  kept_.resize(bytes_.size(), false);
  inputs_ = own.graph.inputs();
  outputs_ = own.output_roots;
  for (const ValueId root : outputs_) kept_[static_cast<size_t>(root)] = true;
  for (const KernelCall& call : own.calls) {
    std::vector<Act>& acts = calls_.emplace_back();
    const std::vector<StagedCall> members = members_of(call);
    if (members.empty()) acts.push_back(act_of({&call, 0}, program, own));
    for (const StagedCall& member : members) acts.push_back(act_of(member, program, own));
  }
}

SymbolicRun::Act SymbolicRun::act_of(const StagedCall& staged, const CallProgram& program,
                                     const CallGraph& graph) const {
  const KernelCall& call = *staged.call;
  Act act{staged.stage, {}, {}, {}};
  for (const Window& w : call.inputs) act.reads.push_back(touched(w));
  for (const Window& w : call.outputs) act.writes.push_back(touched(w));
  const auto* control = std::get_if<ControlRun>(&call.what);
  for (const int body : control == nullptr ? std::vector<int>() : control->bodies)
    act.bodies.emplace_back(program, static_cast<size_t>(graph.bodies[static_cast<size_t>(body)]),
                            Grain::kElements, size_);
  return act;
}

SymbolicRun::Touched SymbolicRun::touched(const Window& w) const {
  Touched result{w.root, {}, {}};
  const int64_t bytes = dtype_bytes(w.dtype);
  std::vector<int64_t> elements{value_of(w.offset, size_)};
  bool known = w.offset.is_constant();
  for (size_t axis = 0; axis < w.sizes.size(); ++axis) {
    known = known && w.sizes[axis].is_constant() && w.strides[axis].is_constant();
    std::vector<int64_t> next;
    for (const int64_t element : elements)
      for (int64_t i = 0; i < value_of(w.sizes[axis], size_); ++i)
        next.push_back(element + i * value_of(w.strides[axis], size_));
    elements = std::move(next);
  }
  for (const int64_t element : elements)
    for (int64_t byte = 0; byte < bytes; ++byte) result.bytes.push_back(element * bytes + byte);
  if (grain_ == Grain::kElements) return result;
  const std::set<int64_t> own(result.bytes.begin(), result.bytes.end());
  // Where sizes decide, a range may be anything.
  const bool whole = grain_ == Grain::kRoots || !known;
  const int64_t first = whole ? 0 : *own.begin(),
                last = whole ? bytes_[static_cast<size_t>(w.root)] - 1 : *own.rbegin();
  for (int64_t byte = first; byte <= last; ++byte)
    if (!own.contains(byte)) result.mixed.push_back(byte);
  return result;
}

std::vector<SymbolicRun::Tokens> SymbolicRun::memory_at_start(ValueId changed) const {
  std::vector<Tokens> memory;
  for (size_t root = 0; root < bytes_.size(); ++root) {
    Tokens& tokens = memory.emplace_back();
    const uint64_t salt = static_cast<ValueId>(root) == changed ? 1 : 0;
    for (int64_t byte = 0; byte < bytes_[root]; ++byte)
      tokens.push_back(mix(mix(root, static_cast<uint64_t>(byte)), salt));
  }
  return memory;
}

SymbolicRun::Seen SymbolicRun::run(const std::vector<size_t>& order, ValueId changed) const {
  std::vector<Tokens> memory = memory_at_start(changed);
  Seen seen{std::vector<uint64_t>(calls_.size()), {}};
  for (const size_t call : order) seen.calls[call] = run_call(call, call, changed, memory);
  for (size_t root = 0; root < memory.size(); ++root) {
    uint64_t hash = 0;
    for (const uint64_t token : memory[root]) hash = mix(hash, token);
    if (kept_[root]) seen.kept.push_back(hash);
  }
  return seen;
}

// Members of one stage have read before any of them writes.
uint64_t SymbolicRun::run_call(size_t call, uint64_t id, ValueId changed, std::vector<Tokens>& memory) const {
  const std::vector<Act>& acts = calls_[call];
  uint64_t seen = 0;
  for (size_t begin = 0, end = 0; begin < acts.size(); begin = end) {
    while (end < acts.size() && acts[end].stage == acts[begin].stage) ++end;
    std::vector<std::vector<Tokens>> written(acts.size());
    for (size_t i = begin; i < end; ++i) {
      for (const Touched& read : acts[i].reads)
        for (const auto* bytes : {&read.bytes, &read.mixed})
          for (const int64_t byte : *bytes)
            seen = mix(seen, memory[static_cast<size_t>(read.root)][static_cast<size_t>(byte)]);
      const uint64_t own = mix(id, i + 1);
      for (size_t o = 0; o < acts[i].writes.size(); ++o) {
        Tokens& tokens = written[i].emplace_back();
        for (size_t k = 0; k < acts[i].writes[o].bytes.size(); ++k)
          tokens.push_back(mix(mix(own, o), mix(k, acts[i].writes[o].root == changed ? 1 : 0)));
      }
      if (!acts[i].bodies.empty()) seen = mix(seen, run_body(acts[i], own, memory, written[i]));
    }
    for (size_t i = begin; i < end; ++i)
      for (size_t o = 0; o < acts[i].writes.size(); ++o) {
        const Touched& write = acts[i].writes[o];
        Tokens& to = memory[static_cast<size_t>(write.root)];
        for (const int64_t byte : write.mixed) {
          uint64_t& token = to[static_cast<size_t>(byte)];
          token = mix(token, mix(mix(id, i + 1), o));
        }
        for (size_t k = 0; k < write.bytes.size(); ++k)
          to[static_cast<size_t>(write.bytes[k])] = written[i][o][k];
      }
  }
  return seen;
}

// Bodies run one after the other over what the call reads, and give its results.
uint64_t SymbolicRun::run_body(const Act& act, uint64_t id, const std::vector<Tokens>& memory,
                               std::vector<Tokens>& written) const {
  uint64_t seen = 0;
  for (const SymbolicRun& body : act.bodies) {
    std::vector<Tokens> own = body.memory_at_start(kNoValue);
    for (size_t i = 0; i < act.reads.size(); ++i)
      for (size_t k = 0; k < act.reads[i].bytes.size(); ++k)
        own[static_cast<size_t>(body.inputs_[i])][k] =
            memory[static_cast<size_t>(act.reads[i].root)][static_cast<size_t>(act.reads[i].bytes[k])];
    for (size_t call = 0; call < body.calls_.size(); ++call)
      seen = mix(seen, body.run_call(call, mix(id, call), kNoValue, own));
    for (size_t o = 0; o < act.writes.size(); ++o)
      for (size_t k = 0; k < written[o].size(); ++k)
        written[o][k] = mix(written[o][k], own[static_cast<size_t>(body.outputs_[o])][k]);
  }
  return seen;
}

std::vector<std::vector<size_t>> SymbolicRun::writers() const {
  std::vector<std::vector<size_t>> writers(bytes_.size());
  std::vector<Tokens> memory = memory_at_start(kNoValue);
  for (size_t call = 0; call < calls_.size(); ++call) {
    const std::vector<Tokens> before = memory;
    run_call(call, call, kNoValue, memory);
    for (size_t root = 0; root < memory.size(); ++root)
      if (memory[root] != before[root]) writers[root].push_back(call);
  }
  return writers;
}

}  // namespace aicf::testing
