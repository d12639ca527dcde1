// Epilogues over whole rows of results: what comes before the first statistic of a row runs tile by tile and
// leaves one half value per element; the stages after it go over these.
#include <algorithm>

#include "base/error.h"
#include "kernels/tile/cuda/tile_epilogue_writer.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

// Stored by the part that runs tile by tile.
bool is_early(const TileStore& store) { return store.stage == 0 && !store.per_row; }

std::vector<int> reductions_of(const TileValues& program) {
  std::vector<int> ids;
  for (int id = 0; id < static_cast<int>(program.values.size()); ++id)
    if (is_tile_reduction(program.values[static_cast<size_t>(id)].op)) ids.push_back(id);
  return ids;
}

// What the stages after the first part compute, and the values of rows that are stored.
std::vector<int> late_sinks(const TileValues& program) {
  std::vector<int> sinks;
  for (const int id : reductions_of(program))
    sinks.push_back(program.values[static_cast<size_t>(id)].args[0]);
  for (const TileStore& store : program.stores)
    if (store.stage > 0 || store.per_row) sinks.push_back(store.value);
  return sinks;
}

// The value of the first stage, rounded to a half type, through which alone everything later depends on the
// accumulator; -1: there is none.
int kept_value(const TileValues& program) {
  for (int id = static_cast<int>(program.values.size()); id-- > 0;) {
    const TileValue& value = program.values[static_cast<size_t>(id)];
    if ((value.op != TileOp::round_f16 && value.op != TileOp::round_bf16) || value.per_row || value.stage > 0)
      continue;
    const auto known = [&](int other) {
      return other == id || is_tile_reduction(program.values[static_cast<size_t>(other)].op);
    };
    const std::vector<int> late = needed_values(program, late_sinks(program), known);
    if (std::none_of(late.begin(), late.end(), [&](int other) {
          const TileValue& v = program.values[static_cast<size_t>(other)];
          return v.op == TileOp::load && v.operand == 0;
        }))
      return id;
  }
  return -1;
}

// Values that the part before the statistics computes.
std::vector<int> early_values(const TileValues& program, int kept) {
  std::vector<int> sinks = {kept};
  for (const TileStore& store : program.stores)
    if (is_early(store)) sinks.push_back(store.value);
  return needed_values(program, sinks, [](int) { return false; });
}

constexpr int kMostOwnBytes =
    2;  // of an element's own operands, which are all fetched before the part begins

int own_bytes(const CudaProblem& problem, size_t own_inputs, const TileValues& program) {
  int bytes = 0;
  for (const int id : early_values(program, kept_value(program))) {
    const TileValue& value = program.values[static_cast<size_t>(id)];
    if (value.op != TileOp::load || value.operand == 0) continue;
    const CudaWindow& window = problem.inputs[own_inputs + static_cast<size_t>(value.operand) - 1];
    for (size_t axis = 0; axis + 1 < window.sizes.size(); ++axis)
      if (!is_number(window.strides[axis], 0) && !is_number(window.sizes[axis], 1)) {
        bytes += dtype_bytes(window.dtype);
        break;
      }
  }
  return bytes;
}

class RowEpilogueWriter : public EpilogueWriter {
 public:
  RowEpilogueWriter(const CudaProblem& problem, size_t own_inputs, CudaParams& params)
      : EpilogueWriter(problem, own_inputs, params),
        kept_(kept_value(values_)),
        row_known_(values_.values.size()) {
    AICF_CHECK(kept_ >= 0, "an epilogue of rows that keeps no half value");
  }

  CudaEpilogue write() {
    const std::vector<int> early = early_values(values_, kept_);
    const auto known = [&](int id) { return id == kept_ || is_tile_reduction(value(id).op); };
    const std::vector<int> late = needed_values(values_, late_sinks(values_), known);
    const bool half = value(kept_).op == TileOp::round_f16;
    std::string text =
        "  using Kept = aicf::" + std::string(half ? "f16" : "bf16") +
        ";\n  static constexpr int kReductions = " + std::to_string(reductions_of(values_).size()) + ";\n" +
        row_function();
    text += fetch_function("Shared", views_of(early), true) + fetch_function("Own", views_of(early), false);
    text +=
        fetch_function("LateShared", views_of(late), true) + fetch_function("LateOwn", views_of(late), false);
    return struct_text(text + begin_function(early) + finish_function());
  }

 private:
  std::vector<size_t> views_of(const std::vector<int>& ids) const {
    std::vector<size_t> views;
    for (int id : ids)
      if (value(id).op == TileOp::load && value(id).operand > 0)
        views.push_back(static_cast<size_t>(value(id).operand) - 1);
    return views;
  }

  std::string begin_function(const std::vector<int>& early) {
    std::string text =
        "  template <int V, class A>\n  __device__ __forceinline__ void begin(const Row& row, int64_t col, "
        "const A (&acc)[V], const Shared<V>& shared, const Own<V>& own, aicf::tile::Vec<Kept, V>& kept, bool "
        "live) const {\n    const Index c = Index(col);\n    float h[V];\n";
    std::string results, stores;
    for (const TileStore& store : values_.stores) {
      if (!is_early(store)) continue;
      text += result_array(store);
      results += result_text(store);
      stores += store_text(store);
    }
    text += "#pragma unroll\n    for (int v = 0; v < V; ++v) {\n";
    for (int id : early) text += element_text(id);
    text += results + "      h[v] = " + tile_reference(values_, value(kept_).args[0]) +
            ";\n    }\n    aicf::tile::narrow(kept, h);\n";
    return text + (stores.empty() ? "" : "    if (!live) return;\n" + stores) + "  }\n";
  }

  std::string finish_function() {
    std::string text =
        "  template <int V, int kRows, int kAcross, class Group>\n  __device__ __forceinline__ void "
        "finish(const Group& group, const Row (&rows)[kRows], int64_t col, const aicf::tile::Vec<Kept, V> "
        "(&kept)[kAcross][kRows], const LateShared<V> (&late)[kAcross]) const {\n";
    for (int stage = 0; stage < values_.stages; ++stage) text += stage_text(stage);
    return text + "  }\n";
  }

  std::string stage_text(int stage) {
    std::vector<int> sums, sinks;
    std::vector<TileStore> stores, row_stores;
    for (const int id : reductions_of(values_))
      if (value(id).stage == stage) {
        sums.push_back(id);
        sinks.push_back(value(id).args[0]);
      }
    for (const TileStore& store : values_.stores) {
      if (store.stage != stage || is_early(store)) continue;
      (store.per_row ? row_stores : stores).push_back(store);
      sinks.push_back(store.per_row ? store.value : stored(store));
    }
    std::vector<int> of_rows, elements;
    const auto known = [&](int id) {
      return id == kept_ || is_tile_reduction(value(id).op) ||
             (value(id).per_row && row_known_[static_cast<size_t>(id)]);
    };
    for (int id : needed_values(values_, sinks, known))
      (value(id).per_row ? of_rows : elements).push_back(id);
    std::string text = row_values_text(of_rows);  // which the stores read
    text += row_stores_text(row_stores);
    if (!sums.empty() || !stores.empty()) text += elements_text(elements, sums, stores);
    for (int id : sums)
      text += "    group.template reduce<" + operation(id) + ", " + std::to_string(number_of(id)) + ">(w" +
              std::to_string(id) + ");\n";
    return text;
  }

  int number_of(int reduction) const {
    const std::vector<int> all = reductions_of(values_);
    return static_cast<int>(std::find(all.begin(), all.end(), reduction) - all.begin());
  }
  std::string operation(int id) const {
    return "aicf::tile::" + std::string(tile_op_info(value(id).op).name) + "<" +
           std::string(tile_cuda_type(value(id).result)) + ">";
  }
  static std::string row_loop() { return "#pragma unroll\n    for (int i = 0; i < kRows; ++i) {\n"; }

  // Names of what the statements of `ids` and `more` take from the arrays w of earlier loops over rows.
  std::string revived_text(const std::vector<int>& ids, std::vector<int> more) const {
    for (int id : ids)
      for (int arg : value(id).args)
        if (arg >= 0) more.push_back(arg);
    std::sort(more.begin(), more.end());
    more.erase(std::unique(more.begin(), more.end()), more.end());
    std::string text;
    for (int id : more)
      if (value(id).per_row && value(id).op != TileOp::constant && row_known_[static_cast<size_t>(id)])
        text += "      " + tile_definition(values_, id, "w" + std::to_string(id) + "[i]");
    return text;
  }

  // Values of the rows, as arrays w.
  std::string row_values_text(const std::vector<int>& ids) {
    if (ids.empty()) return "";
    std::string arrays, statements;
    const std::string revived = revived_text(ids, {});
    for (int id : ids) {
      const std::string number = std::to_string(id);
      arrays += "    " + std::string(tile_cuda_type(value(id).result)) + " w" + number + "[kRows];\n";
      statements += element_text(id) + "      w" + number + "[i] = v" + number + ";\n";
    }
    for (int id : ids) row_known_[static_cast<size_t>(id)] = true;
    return arrays + row_loop() + revived + statements + "    }\n";
  }

  std::string row_stores_text(const std::vector<TileStore>& stores) {
    if (stores.empty()) return "";
    std::vector<int> read;
    std::string text;
    for (const TileStore& store : stores) {
      read.push_back(store.value);
      const size_t view = static_cast<size_t>(store.operand) - 1;
      text += "      if (group.leads(i)) *(" + address(view) + ") = aicf::tile::narrowed<" +
              std::string(tile_memory_type(space_.views[view].dtype)) + ">(" +
              tile_reference(values_, store.value) + ");\n";
    }
    return row_loop() + "      const Row& row = rows[i];\n      const Index c = 0;\n" +
           revived_text({}, read) + text + "    }\n";
  }

  std::string elements_text(const std::vector<int>& elements, const std::vector<int>& sums,
                            const std::vector<TileStore>& stores) {
    std::string arrays, before, inside, body, after, ends;
    std::vector<int> read;
    for (int id : sums) {
      const std::string number = std::to_string(id), type(tile_cuda_type(value(id).result));
      arrays += "    " + type + " w" + number + "[kRows];\n";
      before += "      " + type + " r" + number +
                "[V];\n#pragma unroll\n      for (int v = 0; v < V; ++v) r" + number +
                "[v] = " + operation(id) + "::neutral();\n";
      body += "      r" + number + "[v] = " + operation(id) + "::apply(r" + number + "[v], " +
              tile_reference(values_, value(id).args[0]) + ");\n";
      ends += "      w" + number + "[i] = aicf::tile::combine<" + operation(id) + ">(r" + number + ");\n";
      read.push_back(value(id).args[0]);
    }
    for (const TileStore& store : stores) {
      inside += result_array(store);
      body += result_text(store);
      after += store_text(store);
      read.push_back(stored(store));
    }
    if (!after.empty()) after = "    if (group.has_row(i)) {\n" + after + "    }\n";
    std::string statements =
        "      const float v" + std::to_string(kept_) + " = aicf::tile::value(kept[k][i].at[v]);\n";
    bool own = false;
    for (int id : elements) {
      statements += element_text(id);
      own = own || (value(id).op == TileOp::load && !is_shared(static_cast<size_t>(value(id).operand) - 1));
    }
    if (own) inside += "    LateOwn<V> own;\n    if (group.has_row(i)) fetch(own, row, c);\n";
    const std::string revived = revived_text(elements, read);
    for (int id : sums) row_known_[static_cast<size_t>(id)] = true;
    return arrays + row_loop() + "      const Row& row = rows[i];\n" + revived + before +
           "#pragma unroll\n    for (int k = 0; k < kAcross; ++k) {\n    const Index c = Index(col) + k * "
           "Group::kColumns;\n    const LateShared<V>& shared = late[k];\n" +
           inside + "#pragma unroll\n    for (int v = 0; v < V; ++v) {\n" + statements + body + "    }\n" +
           after + "    }\n" + ends + "    }\n";
  }

  int kept_;
  std::vector<bool> row_known_;  // values of rows that stand in an array w
};

}  // namespace

bool has_row_epilogue(const CudaProblem& problem, size_t own_inputs) {
  const TileValues values = tile_values(*problem.program, [](int) { return true; });
  const std::vector<int> reductions = reductions_of(values);
  const auto in_rows = [&](const TileStore& store) {
    return !store.per_row || values.values[static_cast<size_t>(store.value)].per_row;
  };
  return !reductions.empty() && kept_value(values) >= 0 &&
         own_bytes(problem, own_inputs, values) <= kMostOwnBytes &&
         std::all_of(values.stores.begin(), values.stores.end(), in_rows) &&
         std::all_of(values.values.begin(), values.values.end(), [](const TileValue& v) {
           return v.op != TileOp::inner_index && (!is_tile_reduction(v.op) || v.result == TileType::f32);
         });
}

int row_reductions(const TileProgram& program) {
  return static_cast<int>(reductions_of(tile_values(program, [](int) { return true; })).size());
}

CudaEpilogue cuda_row_epilogue(const CudaProblem& problem, size_t own_inputs, CudaParams& params) {
  return RowEpilogueWriter(problem, own_inputs, params).write();
}

}  // namespace aicf
