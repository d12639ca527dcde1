// The calls of a whole program for one target: what selection gives, rules over calls rewrite, code
// generation writes text for and the plan puts into bytes and steps. A plain value: it compares, prints
// (to_string) and is verified (calls/verify_calls.h).
#pragma once

#include <algorithm>
#include <string>
#include <vector>

#include "kernels/common/tile_program.h"
#include "select/kernel_call.h"
#include "target/target.h"

namespace aicf {

// A value that selection adds beside those of the graph: ids count on from the graph's value_count().
struct ExtraValue {
  enum class Kind { kPacked, kTemp };
  Kind kind;
  TensorType type;  // packed: u8, its byte count as size
  std::string name;
  bool operator==(const ExtraValue&) const = default;
};

// An entry, or a body that control flow runs.
struct CallGraph {
  Graph graph;          // optimised; the windows' roots are its values
  SymbolRanges ranges;  // of its sizes
  SymbolRanges bucket;  // the sizes that it is for; empty: all
  bool is_body = false;
  std::vector<int32_t> bodies;  // what ControlRun::bodies numbers: graphs of the CallProgram
  std::vector<KernelCall> calls, init_calls;
  std::vector<Region> regions;
  std::vector<TileProgram> programs;  // of the regions, and behind them those that rules over calls add
  std::vector<ExtraValue> extra;
  // Where each value of the graph lives: its window on a root. Index = value id.
  std::vector<Window> placement;
  // The value whose storage is output i: a temp of the graph that nothing else claims, or an extra one that a
  // copy fills.
  std::vector<ValueId> output_roots;
  // By value, extra ones included: no call but those of init writes its storage.
  std::vector<bool> constant;

  // Roots are values of the graph or extra ones.
  bool is_extra(ValueId root) const { return root >= graph.value_count(); }
  const ExtraValue& extra_of(ValueId root) const {
    return extra[static_cast<size_t>(root - graph.value_count())];
  }
  const TensorType& type_of(ValueId root) const {
    return is_extra(root) ? extra_of(root).type : graph.type(root);
  }
  const std::string& name_of(ValueId root) const {
    return is_extra(root) ? extra_of(root).name : graph.value(root).name;
  }
  // Whether it has memory for as long as calls need it, else for good.
  bool is_temp(ValueId root) const {
    return is_extra(root) ? extra_of(root).kind == ExtraValue::Kind::kTemp
                          : graph.value(root).role == Role::kTemp;
  }
  bool is_output(ValueId root) const {
    return std::find(output_roots.begin(), output_roots.end(), root) != output_roots.end();
  }
  ValueId add_extra(ExtraValue value);

  // Of a call whose row has one.
  const TileProgram& program_of(const KernelCall& call) const {
    return programs[static_cast<size_t>(own_row(call)->programs[0].index)];
  }
  bool operator==(const CallGraph&) const;
};

struct CallProgram {
  Target target;
  std::vector<CallGraph> graphs;  // bodies come before the graphs that run them
  bool operator==(const CallProgram&) const;
};

// All that tells two apart: calls with their windows and members, programs, and where outputs lie.
std::string to_string(const CallGraph& calls);
std::string to_string(const CallProgram& program);

}  // namespace aicf
