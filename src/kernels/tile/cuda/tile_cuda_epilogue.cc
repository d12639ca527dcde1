#include <algorithm>
#include <numeric>
#include <set>

#include "base/error.h"
#include "kernels/tile/cuda/tile_epilogue_writer.h"
#include "kernels/tile/cuda/tile_half_sums.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

bool is_half_rounding(TileOp op) { return op == TileOp::round_f16 || op == TileOp::round_bf16; }

// Everything in one step over the elements.
class TileEpilogueWriter : public EpilogueWriter {
 public:
  TileEpilogueWriter(const CudaProblem& problem, size_t own_inputs, CudaParams& params)
      : EpilogueWriter(problem, own_inputs, params) {
    AICF_CHECK(program_.stages.size() == 1, "an epilogue of tiles has one stage");
  }

  CudaEpilogue write() {
    std::vector<size_t> views(outputs_from());
    std::iota(views.begin(), views.end(), size_t{0});
    const std::string row = row_function(), shared = fetch_function("Shared", views, true),
                      own = fetch_function("Own", views, false);
    return struct_text(row + shared + own + apply_function() + sums_function());
  }

 private:
  std::string apply_function() {
    const std::string results_of = accumulators_ == 1 ? "acc" : "acc, acc1";
    const std::string head =
        "  template <int V, class A>\n  __device__ __forceinline__ void apply(const Row& row, int64_t col, "
        "const A (&acc)[V]" +
        std::string(accumulators_ == 1 ? "" : ", const A (&acc1)[V]");
    const std::string two_steps = head + ", const Shared<V>& shared, const Own<V>& own";
    std::string text =
        has_sums_ ? two_steps + ", float (&sums)[V]"
                  : head +
                        ") const {\n    Shared<V> shared;\n    Own<V> own;\n    fetch(shared, col);\n    "
                        "fetch(own, row, col);\n    apply(row, col, " +
                        results_of + ", shared, own);\n  }\n" + two_steps;
    text += ") const {\n    const Index c = Index(col);\n";
    const std::vector<std::optional<DType>> sums = half_sums(values_, half_inputs());
    std::vector<int> sinks, rounded;
    std::vector<bool> wanted(sums.size());  // of the sums
    std::string results, stores;
    for (const TileStore& store : values_.stores) {
      const size_t view = view_of(store.operand);
      const DType dtype = space_.views[view].dtype;
      if (store.sums) {
        sinks.push_back(store.value);
        results +=
            "      sums[v] = aicf::tile::add(sums[v], " + tile_reference(values_, store.value) + ");\n";
        continue;
      }
      const int value = stored(store);
      if (sums[static_cast<size_t>(value)] == dtype) {
        wanted[static_cast<size_t>(value)] = true;
        stores += memory_text(view, "h" + std::to_string(value));
        continue;
      }
      sinks.push_back(value);
      text += result_array(store);
      results += result_text(store);
      stores += store_text(store);
    }
    const std::vector<int> needed = needed_values(values_, sinks, [&](int id) {
      const int sum = half_sum_of(values_, sums, id);
      if (sum < 0) return false;
      wanted[static_cast<size_t>(sum)] = true;
      rounded.push_back(id);
      return true;
    });
    text += half_sums_text(sums, wanted);
    if (sinks.empty()) return text + stores + "  }\n";
    const std::string loop = "#pragma unroll\n    for (int v = 0; v < V; ++v) {\n";
    std::string inside;
    for (int id : rounded)
      inside += "      " + tile_definition(values_, id,
                                           "aicf::tile::value(h" +
                                               std::to_string(half_sum_of(values_, sums, id)) + ".at[v])");
    for (int id : needed) {
      if (!tile_shares_work(values_, id)) {
        inside += element_text(id);
        continue;
      }
      // Its operands first, of all elements; what they are made of the compiler computes once.
      const std::string all = "g" + std::to_string(id);
      text += "    float " + all + "[V];\n" + loop + inside + "      " + all +
              "[v] = " + tile_reference(values_, value(id).args[0]) + ";\n    }\n    " +
              "aicf::tile::gelu_tanh_half(" + all + ");\n";
      inside += "      " + tile_definition(values_, id, all + "[v]");
    }
    return text + loop + inside + results + "    }\n" + stores + "  }\n";
  }

  // Where part `block` of a column's sum goes.
  std::string sums_function() {
    if (!has_sums_) return "";
    const std::string columns = members_.number(space_.sizes.back());
    return "  template <int V>\n  __device__ __forceinline__ void store_sums(int block, int64_t col, const "
           "float "
           "(&sums)[V]) const {\n    aicf::tile::Vec<float, V> parts;\n    aicf::tile::narrow(parts, "
           "sums);\n    "
           "aicf::tile::store<16>(static_cast<float*>(workspace) + Size(block) * Size(" +
           columns + ") + Size(col), parts);\n  }\n";
  }

  // Element types of the operands that are there as halves.
  std::vector<std::optional<DType>> half_inputs() const {
    std::vector<std::optional<DType>> types(accumulators_, tile_type_);
    for (size_t i = accumulators_; i < program_.inputs.size(); ++i) {
      const DType dtype = program_.inputs[i];
      types.push_back(dtype == DType::f16 || dtype == DType::bf16 ? std::optional(dtype) : std::nullopt);
    }
    return types;
  }

  // The wanted sums and those that they are made of, as vectors h<value>.
  std::string half_sums_text(const std::vector<std::optional<DType>>& sums, std::vector<bool>& wanted) const {
    const auto operand = [&](int id) {
      const int sum = half_sum_of(values_, sums, id);
      if (sum >= 0) return "h" + std::to_string(sum) + ".at";
      const TileValue& value = values_.values[static_cast<size_t>(id)];
      const int from = value.op == TileOp::load ? id : value.args[0];
      const int input = values_.values[static_cast<size_t>(from)].operand;
      return is_accumulator(input) ? accumulator(input) : vector_of(input) + ".at";
    };
    std::string text;
    for (size_t id = sums.size(); id-- > 0;) {
      if (!wanted[id]) continue;
      const auto& args = values_.values[id].args;
      for (const int arg : {args[0], args[1]})
        if (const int sum = half_sum_of(values_, sums, arg); sum >= 0)
          wanted[static_cast<size_t>(sum)] = true;
      const std::string h = "h" + std::to_string(id);
      text = "    aicf::tile::Vec<" + std::string(cuda_type(*sums[id])) + ", V> " + h +
             ";\n    aicf::tile::add_halves(" + h + ", " + operand(args[0]) + ", " + operand(args[1]) +
             ");\n" + text;
    }
    return text;
  }
};

}  // namespace

std::string EpilogueMembers::number(const Dim& dim) {
  if (const auto value = dim.constant(); value && (!any_sizes_ || *value == 0 || *value == 1))
    return *value < 0 ? "(" + std::to_string(*value) + ")" : std::to_string(*value);
  auto at = std::find(dims_.begin(), dims_.end(), dim);
  if (at == dims_.end()) at = dims_.insert(dims_.end(), dim);
  return "q" + std::to_string(at - dims_.begin());
}

std::string EpilogueMembers::declarations() const {
  std::string text;
  for (size_t i = 0; i < dims_.size(); ++i) text += "  Index q" + std::to_string(i) + ";\n";
  return text;
}

std::string EpilogueMembers::arguments() const {
  std::string text;
  for (const Dim& dim : dims_)
    text += ", Epilogue::Index(" + (any_sizes_ ? params_.param(dim) : params_.expr(dim)) + ")";
  return text;
}

EpilogueWriter::EpilogueWriter(const CudaProblem& problem, size_t own_inputs, size_t accumulators,
                               std::vector<GatheredOperand> gathered, CudaParams& params)
    : program_(*problem.program),
      accumulators_(accumulators),
      members_(params, has_any_sizes(problem)),
      own_inputs_(own_inputs),
      gathered_(std::move(gathered)) {
  AICF_CHECK(program_.inputs.size() >= accumulators_, "an epilogue has a tile");
  AICF_CHECK(problem.inputs.size() - own_inputs + accumulators_ == program_.inputs.size() &&
                 problem.outputs.size() == program_.outputs.size(),
             "an epilogue's operands are not those of its program");
  values_ = tile_values(program_, [](int) { return true; });
  has_sums_ = sums_rows(program_);
  if (accumulators_ > 0) tile_type_ = epilogue_tile(program_, accumulators_);
  std::vector<CudaWindow> windows(problem.inputs.begin() + static_cast<std::ptrdiff_t>(own_inputs),
                                  problem.inputs.end());
  windows.insert(windows.end(), problem.outputs.begin(), problem.outputs.end());
  for (const GatheredOperand& operand : gathered_) windows.push_back(operand.indices);
  const SymbolRanges& ranges = ranges_of(problem);
  // The last axis stays apart even if its size is 1.
  has_axis_ = !problem.outputs[0].sizes.empty() && !is_number(problem.outputs[0].sizes.back(), 1);
  space_ = tile_space(windows, has_axis_ ? 1 : 0, AxisOrder::kKept, AxisOrder::kKept, ranges);
  for (const GatheredOperand& operand : gathered_)
    space_.wide = space_.wide || upper_bound(operand.size * operand.stride, ranges) > INT32_MAX / 2;
  for (size_t i = 0; i < outputs_from() + program_.outputs.size(); ++i) offsets_.push_back(offset_of(i));
}

CudaEpilogue EpilogueWriter::struct_text(const std::string& functions) const {
  const std::string type = accumulators_ > 0 ? "Epilogue" : "Updates";
  std::string text =
      "#include \"prelude.cuh\"\n#include \"tile/cuda/tile_memory.cuh\"\n\nstruct " + type + " {\n";
  if (accumulators_ > 0) {
    text += "  using Acc = " + std::string(tile_cuda_type(tile_register_type(program_.inputs[0]))) + ";\n";
    text += "  using Tile = " + std::string(tile_type_ ? cuda_type(*tile_type_) : "Acc") + ";\n";
  }
  text += space_.wide ? "  using Index = int64_t;\n  using Size = uint64_t;\n"
                      : "  using Index = int32_t;\n  using Size = uint32_t;\n";
  std::string make = type + "{";
  std::set<std::string> names;
  const auto add_pointer = [&](const std::string& element, const std::string& name) {
    if (!names.insert(name).second) return;
    text += "  " + element + "* " + name + ";\n";
    make += (make.back() == '{' ? "" : ", ") + name;
  };
  for (size_t i = 0; i < offsets_.size(); ++i) {
    const bool output = i >= outputs_from();
    if (output && accumulators_ == 0) break;
    add_pointer((output ? "" : "const ") + std::string(cuda_type(space_.views[i].dtype)), operand_name(i));
  }
  for (const GatheredOperand& operand : gathered_)
    add_pointer("const " + std::string(cuda_type(operand.indices.dtype)),
                "in" + std::to_string(operand.indices_input));
  if (!gathered_.empty()) add_pointer("aicf::CallError", "error");
  if (accumulators_ > 0)
    text += "  static constexpr bool kSumsRows = " + std::string(has_sums_ ? "true" : "false") + ";\n";
  if (has_sums_) {
    text += "  void* workspace;\n";
    make += ", workspace";
  }
  text += members_.declarations();
  return {text + functions + "};\n", make + members_.arguments() + "}"};
}

std::string EpilogueWriter::operand_name(size_t view) const {
  return view < outputs_from() ? "in" + std::to_string(own_inputs_ + view)
                               : "out" + std::to_string(view - outputs_from());
}

// Which of the distinct row offsets a view has; -1: none.
int EpilogueWriter::offset_of(size_t view) {
  const std::vector<Dim>& strides = space_.views[view].strides;
  RowOffset offset{{strides.begin(), strides.begin() + static_cast<std::ptrdiff_t>(space_.outer)}};
  const auto gathered = std::find_if(gathered_.begin(), gathered_.end(), [&](const GatheredOperand& operand) {
    return operand.input == view + accumulators_;
  });
  if (gathered != gathered_.end())
    offset.gathered = static_cast<int>(gathered - gathered_.begin());
  else if (std::all_of(offset.strides.begin(), offset.strides.end(),
                       [](const Dim& s) { return is_number(s, 0); }))
    return -1;
  auto at = std::find(patterns_.begin(), patterns_.end(), offset);
  if (at == patterns_.end()) at = patterns_.insert(patterns_.end(), offset);
  return static_cast<int>(at - patterns_.begin());
}

std::string EpilogueWriter::sum_text(const std::vector<Dim>& strides) {
  std::string sum;
  for (size_t axis = 0; axis < space_.outer; ++axis)
    if (!is_number(strides[axis], 0))
      sum += (sum.empty() ? "a" : " + a") + std::to_string(axis) + " * " + members_.number(strides[axis]);
  return sum.empty() ? "0" : sum;
}

std::string EpilogueWriter::row_function() {
  std::string text = "  struct Row {\n";
  for (size_t i = 0; i < patterns_.size(); ++i) text += "    Index o" + std::to_string(i) + ";\n";
  text += "  };\n  __device__ __forceinline__ Row row(int64_t outer) const {\n    Size i = Size(outer);\n";
  for (size_t axis = space_.outer; axis-- > 0;) {
    const std::string name = "    const Index a" + std::to_string(axis) + " = Index(i";
    if (axis == 0) {
      text += name + ");\n";
    } else {
      const std::string size = "Size(" + members_.number(space_.sizes[axis]) + ")";
      text += name + " % " + size + ");\n    i /= " + size + ";\n";
    }
  }
  text += "    return {";
  for (size_t i = 0; i < patterns_.size(); ++i) {
    text += i ? ", " : "";
    if (patterns_[i].gathered < 0) {
      text += sum_text(patterns_[i].strides);
      continue;
    }
    const auto number = static_cast<size_t>(patterns_[i].gathered);
    const GatheredOperand& operand = gathered_[number];
    text += "Index(aicf::gathered_row(in" + std::to_string(operand.indices_input) + "[" +
            sum_text(space_.views[offsets_.size() + number].strides) + "], " + members_.number(operand.size) +
            ", error)) * " + members_.number(operand.stride);
  }
  return text + "};\n  }\n";
}

std::string EpilogueWriter::address(size_t view) {
  std::string text = operand_name(view);
  if (space_.views[view].dtype == DType::boolean)
    text =
        "reinterpret_cast<" + std::string(view < outputs_from() ? "const " : "") + "uint8_t*>(" + text + ")";
  if (offsets_[view] >= 0) text += " + row.o" + std::to_string(offsets_[view]);
  if (has_axis_ && !is_number(stride(view), 0))
    text += " + c" + (is_number(stride(view), 1) ? "" : " * " + members_.number(stride(view)));
  return text;
}

std::string EpilogueWriter::alignment(size_t view) const {
  return std::to_string(view_alignment(space_.views[view], space_.outer));
}

std::string EpilogueWriter::load_text(const std::string& x, size_t view) {
  if (repeats(view)) return x + ".at[0] = *(" + address(view) + ");\n";
  return contiguous(view) ? "aicf::tile::load<" + alignment(view) + ">(" + x + ", " + address(view) + ");\n"
                          : "aicf::tile::load_each(" + x + ", " + address(view) + ", Index(" +
                                members_.number(stride(view)) + "), Index(V));\n";
}

std::string EpilogueWriter::vector_text(size_t view) const {
  return "aicf::tile::Vec<" + std::string(tile_memory_type(space_.views[view].dtype)) +
         (repeats(view) ? ", 1> x" : ", V> x") + std::to_string(view + 1) + ";\n";
}

std::string EpilogueWriter::fetch_function(const std::string& name, const std::vector<size_t>& views,
                                           bool shared) {
  std::string members, loads;
  for (size_t i : views) {
    if (is_shared(i) != shared) continue;
    members += "    " + vector_text(i);
    loads += "    " + load_text("to.x" + std::to_string(i + 1), i);
  }
  return "  template <int V>\n  struct " + name + " {\n" + members +
         "  };\n  template <int V>\n  __device__ __forceinline__ void fetch(" + name + "<V>& to, " +
         (shared ? "" : "const Row& row, ") + "int64_t col) const {\n    const Index c = Index(col);\n" +
         loads + "  }\n";
}

int EpilogueWriter::stored(const TileStore& store) const {
  return stored_value(values_, store, space_.views[view_of(store.operand)].dtype);
}

std::string EpilogueWriter::result_array(const TileStore& store) const {
  return "    " + std::string(tile_cuda_type(store.type)) + " y" + output_number(store) + "[V];\n";
}

std::string EpilogueWriter::result_text(const TileStore& store) const {
  return "      y" + output_number(store) + "[v] = " + tile_reference(values_, stored(store)) + ";\n";
}

std::string EpilogueWriter::store_text(const TileStore& store) {
  const size_t view = view_of(store.operand);
  const std::string z = "z" + output_number(store);
  return "    aicf::tile::Vec<" + std::string(tile_memory_type(space_.views[view].dtype)) + ", V> " + z +
         ";\n    aicf::tile::narrow(" + z + ", y" + output_number(store) + ");\n" + memory_text(view, z);
}

std::string EpilogueWriter::memory_text(size_t view, const std::string& vector) {
  return contiguous(view)
             ? "    aicf::tile::store<" + alignment(view) + ">(" + address(view) + ", " + vector + ");\n"
             : "    aicf::tile::store_each(" + address(view) + ", " + vector + ", Index(" +
                   members_.number(stride(view)) + "), Index(V));\n";
}

std::string EpilogueWriter::vector_of(int operand) const {
  const size_t view = view_of(operand);
  return (is_shared(view) ? "shared.x" : "own.x") + std::to_string(view + 1);
}

std::string EpilogueWriter::element_text(int id) const {
  const TileValue& v = value(id);
  const std::string expression = v.op == TileOp::load ? loaded(v.operand)
                                 : is_rounded_tile(v) ? tile_reference(values_, v.args[0])
                                                      : tile_expression(values_, id);
  return "      " + tile_definition(values_, id, expression);
}

std::string EpilogueWriter::loaded(int operand) const {
  const DType dtype = program_.inputs[static_cast<size_t>(operand)];
  if (!is_accumulator(operand))
    return tile_loaded(dtype, vector_of(operand) + (repeats(view_of(operand)) ? ".at[0]" : ".at[v]"));
  const std::string result = accumulator(operand) + "[v]";
  if (tile_type_) return "aicf::tile::seen_as<" + std::string(cuda_type(*tile_type_)) + ">(" + result + ")";
  switch (dtype) {
    case DType::i16:
    case DType::i8:
    case DType::u8:
      return "aicf::tile::wrap_" + std::string(dtype_name(dtype)) + "(" + result + ")";
    default:
      return result;
  }
}

bool EpilogueWriter::is_rounded_tile(const TileValue& value) const {
  if (!tile_type_ || !is_half_rounding(value.op)) return false;
  const TileValue& from = values_.values[static_cast<size_t>(value.args[0])];
  return from.op == TileOp::load && is_accumulator(from.operand);
}

std::optional<DType> epilogue_tile(const TileProgram& program, size_t accumulators) {
  if (program.inputs[0] == DType::f16 || program.inputs[0] == DType::bf16) return program.inputs[0];
  const TileValues values = tile_values(program, [](int) { return true; });
  const auto is_tile = [&](int id) {
    if (id < 0) return false;
    const TileValue& value = values.values[static_cast<size_t>(id)];
    return value.op == TileOp::load && static_cast<size_t>(value.operand) < accumulators;
  };
  std::optional<TileOp> rounding;
  for (const TileValue& value : values.values) {
    if (std::none_of(value.args.begin(), value.args.end(), is_tile)) continue;
    if (!is_half_rounding(value.op) || rounding.value_or(value.op) != value.op) return std::nullopt;
    rounding = value.op;
  }
  for (const TileStore& store : values.stores) {
    if (!is_tile(store.value)) continue;
    const DType memory = program.outputs[static_cast<size_t>(store.operand) - program.inputs.size()];
    const TileOp op = memory == DType::f16 ? TileOp::round_f16 : TileOp::round_bf16;
    if ((memory != DType::f16 && memory != DType::bf16) || rounding.value_or(op) != op) return std::nullopt;
    rounding = op;
  }
  if (!rounding) return std::nullopt;
  return *rounding == TileOp::round_f16 ? DType::f16 : DType::bf16;
}

CudaEpilogue cuda_epilogue(const CudaProblem& problem, size_t own_inputs, CudaParams& params) {
  return TileEpilogueWriter(problem, own_inputs, params).write();
}

}  // namespace aicf
