// Regions whose rows lie across memory: neighbours in memory belong to different rows. A thread takes a
// vector of rows, so that accesses are wide; the threads of a block that share one walk its elements in turn.
// The vectors of all places are one row of them, of which a block takes several. Where there are few rows,
// blocks share them too: every stage is a launch, which leaves partial results for the next. A thread that
// has few elements keeps them in registers from stage to stage.
#include <algorithm>

#include "kernels/tile/cuda/tile_columns_shape.h"
#include "kernels/tile/cuda/tile_moments.h"
#include "kernels/tile/cuda/tile_stages.h"
#include "kernels/tile/tile_info.h"

namespace aicf {
namespace {

constexpr int kMemberThreads = 128;  // beside which members of other kinds find room
// Of moments (tile_moments.cuh): numbers that they are; that a thread has of a column, with the sums of its
// elements at hand; instructions of an element.
constexpr int kMomentsValues = 3, kMomentsRegisters = 5, kMomentsInstructions = 5;

class ColumnsWriter : public StagedWriter {
 public:
  ColumnsWriter(const CudaProblem& problem, const TileSpace& space) : StagedWriter(problem, space) {}

  CudaCode write() {
    choose();
    plan_stages(false, splits_ > 1);
    for (size_t i = 0; i < space_.views.size(); ++i) pattern_of(i);
    CudaCode code;
    code.source = kTileIncludes;
    if (!values_.moments.empty()) code.source += kMomentsInclude;
    code.member = is_member(problem_);
    if (splits_ > 1) code.workspace_bytes = partial_bytes(rows_, splits_);
    std::vector<std::string> bodies;
    for (size_t s = 0; s < (splits_ > 1 ? stages_.size() : 1); ++s) {
      bodies.push_back(body_text(s));
      code.launches.push_back(launch_of(s));
    }
    for (size_t s = 0; s < bodies.size(); ++s) {
      code.launches[s].params = params_.dims();
      code.source += cuda_kernel_head(problem_, code.launches[s], splits_ > 1) + bodies[s] + "}\n";
    }
    return code;
  }

 private:
  size_t axis() const { return space_.outer - 1; }  // neighbours in memory
  int splits(size_t stage) const { return stages_[stage].walks() ? splits_ : 1; }

  void choose() {
    rows_ = space_count(space_, 0, space_.outer);
    length_ = space_count(space_, space_.outer, space_.rank());
    columns_ = space_.sizes[axis()];
    join_moments(values_, length_);
    const ColumnsWork columns_work = work();
    shape_ = columns_shape(columns_work);
    held_ = held_elements(columns_work, shape_);
    elements_ = thread_elements(columns_work, shape_);
    vector_ = shape_.vector, threads_ = shape_.threads, across_ = shape_.across, splits_ = shape_.splits;
    tail_ = !divisible(columns_, vector_);
  }

  ColumnsWork work() {
    const auto number = [&](const Dim& dim) { return static_cast<double>(std::max<int64_t>(bound(dim), 1)); };
    ColumnsWork work;
    work.machine = problem_.machine;
    work.places = number(space_count(space_, 0, axis()));
    work.columns = number(columns_), work.length = number(length_);
    work.inner_axes = static_cast<int>(space_.rank() - space_.outer);
    if (is_member(problem_)) work.most_threads = kMemberThreads;
    work.most_vector = std::min(vector_width(axis()), 8);  // Registers: every lane has its own sums.
    while (work.most_vector > 1 && bound(columns_) < work.most_vector) work.most_vector /= 2;
    plan_stages(false, false);
    std::vector<size_t> before;
    for (const Stage& stage : stages_) work.stages.push_back(stage_work(stage, before));
    stages_.clear();
    for (size_t view : before)
      (one_element(view, axis()) ? work.repeat_bytes : work.column_bytes) +=
          dtype_bytes(space_.views[view].dtype);
    return work;
  }
  // `before`: the views that earlier stages have read.
  ColumnsStage stage_work(const Stage& stage, std::vector<size_t>& before) const {
    ColumnsStage work;
    work.walks = stage.walks();
    work.reductions = static_cast<int>(stage.reductions.size() + stage.moments.size());
    work.partials = static_cast<int>(stage.complete.size() + kMomentsValues * stage.complete_moments.size());
    work.instructions = static_cast<int>(stage.elements.size() + stage.reductions.size() +
                                         kMomentsInstructions * stage.moments.size());
    work.lane_registers =
        static_cast<int>(stage.reductions.size() + kMomentsRegisters * stage.moments.size());
    work.reads = false;
    for (size_t view : loaded_views(stage.elements)) {
      const int bytes = dtype_bytes(space_.views[view].dtype);
      const bool first = std::find(before.begin(), before.end(), view) == before.end();
      if (first) before.push_back(view), work.reads = true;
      if (access(view, axis()) != Access::kContiguous) {
        (one_element(view, axis()) ? work.repeat_bytes : work.along_loads) += bytes;
        continue;
      }
      work.load_bytes += bytes;
      if (first) work.first_bytes += bytes;
    }
    for (const TileStore& store : stage.stores) {
      const auto view = static_cast<size_t>(store.operand);
      const bool across = access(view, axis()) == Access::kContiguous;
      (across ? work.store_bytes : work.along_stores) += dtype_bytes(space_.views[view].dtype);
    }
    return work;
  }
  // Threads of a block side by side and one behind the other.
  int across(size_t stage) const {
    return splits_ > 1 && !stages_[stage].walks() ? combining_across(shape_) : across_;
  }
  // Blocks of all columns.
  Dim groups(size_t stage) const {
    return ceildiv(space_count(space_, 0, axis()) * ceildiv(columns_, Dim(vector_)), Dim(across(stage)));
  }

  CudaLaunch launch_of(size_t stage) const {
    CudaLaunch launch;
    launch.function =
        "tile_columns" + tile_program_name(values_) + (splits_ > 1 ? "_stage" + std::to_string(stage) : "");
    launch.block = threads_;
    launch.shared_bytes = scratch_bytes();
    launch.grid[0] = groups(stage) * Dim(splits(stage));
    return launch;
  }

  // A value of the widest reduction for each lane of each thread; of moments those of half of the threads,
  // and a count.
  int64_t scratch_bytes() const {
    int bytes = 0;
    for (int id = 0; id < static_cast<int>(values_.values.size()); ++id)
      if (reduction(id)) bytes = std::max(bytes, tile_type_bytes(value(id).result));
    return std::max(int64_t{threads_} * vector_ * bytes,
                    int64_t{threads_} / 2 * (kMomentsValues * vector_ + 1) * moments_bytes());
  }

  std::string row_offset(size_t view) {
    const int number = pattern_of(view);
    return number < 0 ? "0" : "o" + std::to_string(number);
  }
  // Of element i of the thread's rows, whose inner coordinates are b0….
  std::string offset_text(size_t view) {
    const bool one = space_.rank() == space_.outer + 1;
    std::vector<std::string> names;
    for (size_t at = space_.outer; at < space_.rank(); ++at)
      names.push_back(one ? "i" : "b" + std::to_string(at - space_.outer));
    const std::string inner = offsets_.sum(space_.views[view], space_.outer, space_.rank(), names);
    const std::string row = row_offset(view);
    return row == "0" ? inner : inner == "0" ? row : row + " + " + inner;
  }
  std::string inner_coordinates() {
    if (space_.rank() == space_.outer + 1) return "";
    const Shape inner(space_.sizes.begin() + static_cast<std::ptrdiff_t>(space_.outer), space_.sizes.end());
    return "Size j = Size(i);\n" + offsets_.split("j", inner, "b");
  }
  std::string left() const { return tail_ ? "columns - c" : ""; }

  std::string body_text(size_t stage) {
    std::string text = tile_index_types(space_) + "constexpr int kVector = " + std::to_string(vector_) +
                       ", kAcross = " + std::to_string(across(stage)) +
                       ", kDeep = " + std::to_string(threads_ / across(stage)) + ";\n";
    if (scratch_bytes() > 0) text += "extern __shared__ __align__(16) char scratch[];\n";
    text += place_text(stage) + cuda_wait_text(problem_);
    if (splits_ > 1) {
      for (int id : stages_[stage].complete) text += complete_text(id);
      for (const TileMoments& moments : stages_[stage].complete_moments)
        text += complete_moments_text(moments);
      return text + stage_text(stages_[stage]);
    }
    for (const Stage& each : stages_) text += stage_text(each);
    return text;
  }

  // The vector's place, its column c, elements [begin, end) and the rows' offsets.
  std::string place_text(size_t stage) {
    const Dim chunk = ceildiv(length_, Dim(splits(stage)));
    const std::string vectors = "Size(" + offsets_.number(ceildiv(columns_, Dim(vector_))) + ")";
    std::string text = "constexpr Size kSplits = " + std::to_string(splits_) + ";\n";
    text += splits(stage) > 1
                ? "const Size split = Size(block_index) % kSplits, group = Size(block_index) / kSplits;\n"
                : "const Size split = 0, group = Size(block_index);\n";
    text += "const Size number = group * kAcross + threadIdx.x % kAcross;\nSize place = number / " + vectors +
            ";\nconst Index columns = " + offsets_.number(columns_) + ", c = Index(number - place * " +
            vectors +
            ") * kVector;\nconst int depth = threadIdx.x / kAcross;\nconst bool live = place < Size(" +
            offsets_.number(space_count(space_, 0, axis())) + ");\n";
    text += "const Size row_number = place * Size(columns) + c;\n";
    text += "const Index begin = Index(split) * " + offsets_.number(chunk) + ", chunk_end = begin + " +
            offsets_.number(chunk) + ", length = " + offsets_.number(length_) +
            ";\nconst Index end = !live ? 0 : chunk_end < length ? chunk_end : length;\n";
    const Shape outer(space_.sizes.begin(), space_.sizes.begin() + static_cast<std::ptrdiff_t>(axis()));
    text += offsets_.split("place", outer, "a");
    std::vector<std::string> names;
    for (size_t i = 0; i < axis(); ++i) names.push_back("a" + std::to_string(i));
    names.emplace_back("c");
    for (size_t i = 0; i < patterns_.size(); ++i)
      text += "const Index o" + std::to_string(i) + " = " +
              offsets_.sum(TileView{DType::f32, Dim(0), {}, patterns_[i]}, 0, space_.outer, names) + ";\n";
    return text;
  }

  static std::string each_lane(const std::string& body) {
    return "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n" + body + "}\n";
  }

  // Definitions of the row values among `ids` from their arrays w<i>.
  std::string row_references(const std::vector<int>& ids) const {
    std::string text;
    for (int id : ids) text += tile_definition(values_, id, "w" + std::to_string(id) + "[v]");
    return text;
  }
  // Row values that the given ones read, but for those in the list itself.
  std::vector<int> row_operands(const std::vector<int>& ids, const std::vector<int>& sinks) const {
    std::vector<int> found;
    const auto note = [&](int id) {
      const bool listed = std::find(ids.begin(), ids.end(), id) != ids.end();
      if (!listed && value(id).per_row && value(id).op != TileOp::constant &&
          std::find(found.begin(), found.end(), id) == found.end())
        found.push_back(id);
    };
    for (int id : ids)
      for (int arg : value(id).args)
        if (arg >= 0) note(arg);
    for (int id : sinks) note(id);
    return found;
  }

  std::string row_values_text(const Stage& stage) {
    std::string before, body = row_references(row_operands(stage.row_values, {}));
    for (int id : stage.row_values) {
      const std::string w = "w" + std::to_string(id);
      before += value_type(id) + " " + w + "[kVector];\n";
      std::string from = tile_expression_of(id);
      body += tile_definition(values_, id, from) + w + "[v] = v" + std::to_string(id) + ";\n";
      if (value(id).op != TileOp::load) continue;
      const auto view = static_cast<size_t>(value(id).operand);
      before += array_text(view) + ";\nif (live) " +
                load_text(view, axis(), "x" + std::to_string(view), row_offset(view), left());
    }
    return stage.row_values.empty() ? "" : before + each_lane(body);
  }

  std::string array_text(size_t view) const {
    return "aicf::tile::Vec<" + memory_type(view) + ", " + std::to_string(lanes(view, axis(), vector_)) +
           "> x" + std::to_string(view);
  }

  std::string element_expression(int id) const {
    const TileValue& v = value(id);
    if (v.op != TileOp::load) return tile_expression_of(id);
    const auto view = static_cast<size_t>(v.operand);
    return lane_text(view, axis(), "x" + std::to_string(view) + "[u]");
  }

  std::string tile_expression_of(int id) const {
    const TileValue& v = value(id);
    if (v.op == TileOp::inner_index) return value_type(id) + "(i)";
    if (v.op != TileOp::load) return tile_expression(values_, id);
    const auto view = static_cast<size_t>(v.operand);
    return lane_text(view, axis(), "x" + std::to_string(view));
  }

  std::string stage_text(const Stage& stage) {
    std::string text = row_values_text(stage);
    if (stage.walks()) text += elements_text(stage);
    for (int id : stage.reductions) text += finish_reduction(id);
    for (const TileMoments& moments : stage.moments) text += finish_moments(moments);
    for (const TileStore& store : stage.row_stores) {
      const auto view = static_cast<size_t>(store.operand);
      const std::string y = "y" + std::to_string(view - input_count());
      text += std::string(tile_cuda_type(store.type)) + " " + y + "[kVector];\n" +
              each_lane(row_references(row_operands({}, {store.value})) + y +
                        "[v] = " + tile_reference(values_, store.value) + ";\n");
      text += "if (depth == 0 && live" + std::string(splits_ > 1 ? " && split == 0" : "") + ") " +
              store_text(view, axis(), y, row_offset(view), left());
    }
    return text;
  }

  std::string elements_text(const Stage& stage) {
    std::string before, arrays, loads, inside, after, first, started, taken;
    std::vector<int> sinks;
    for (int id : stage.reductions) sinks.push_back(value(id).args[0]);
    for (const TileMoments& moments : stage.moments) sinks.push_back(value(moments.sum).args[0]);
    for (const TileStore& store : stage.stores) sinks.push_back(store.value);
    std::string body = row_references(row_operands(stage.elements, sinks));
    for (int id : stage.reductions)
      before += value_type(id) + " w" + std::to_string(id) + "[kVector];\n" +
                each_lane("w" + std::to_string(id) + "[v] = " + operation(id) + "::neutral();\n");
    for (size_t view : loaded_views(stage.elements)) {
      if (held_ > 0) {
        if (std::find(in_registers_.begin(), in_registers_.end(), view) != in_registers_.end()) continue;
        in_registers_.push_back(view);
        before += array_text(view) + "[" + std::to_string(held_) + "];\n";
      } else {
        arrays += array_text(view) + "[kAtOnce];\n";
      }
      loads += load_text(view, axis(), "x" + std::to_string(view) + "[u]", offset_text(view), left());
    }
    for (int id : stage.elements) body += tile_definition(values_, id, element_expression(id));
    const std::string elements = body;
    for (int id : stage.reductions) {
      const std::string w = "w" + std::to_string(id) + "[v]";
      body += w + " = " + operation(id) + "::apply(" + w + ", " + tile_reference(values_, value(id).args[0]) +
              ");\n";
    }
    for (const TileMoments& moments : stage.moments) {
      const std::string number = std::to_string(moments.sum), n = "n" + number, m = "m" + number + "[v]",
                        s = "s" + number, q = "q" + number,
                        x = tile_reference(values_, value(moments.sum).args[0]);
      before += moments_text(moments) + "int " + n + " = 0;\n";
      arrays += value_type(moments.sum) + " " + s + "[kVector] = {}, " + q + "[kVector] = {};\n";
      first += "if (u == 0) " + m + ".mean = " + x + ";\n" + s + "[v] = aicf::tile::add(" + s +
               "[v], aicf::tile::sub(" + x + ", " + m + ".mean));\n";
      started += m + ".start(" + s + "[v], count);\n" + s + "[v] = 0;\n";
      body += "aicf::tile::add_difference(" + m + ", " + x + ", " + s + "[v], " + q + "[v]);\n";
      after += "++" + n + ";\n";
      taken += each_lane(m + ".take(" + s + "[v], " + q + "[v], " + n + ");\n");
    }
    for (const TileStore& store : stage.stores) {
      const auto view = static_cast<size_t>(store.operand);
      const std::string y = "y" + std::to_string(view - input_count());
      inside += std::string(tile_cuda_type(store.type)) + " " + y + "[kVector];\n";
      body += y + "[v] = " + tile_reference(values_, store.value) + ";\n";
      after += store_text(view, axis(), y, offset_text(view), left());
    }
    const std::string each =
        "#pragma unroll\nfor (int u = 0; u < kAtOnce; ++u) {\nconst Index i = first + u * kDeep;\nif (i < "
        "end) {\n" +
        inner_coordinates();
    if (!first.empty())
      first = "if (n" + std::to_string(stage.moments[0].sum) + " == 0) {\nint count = 0;\n" + each +
              each_lane(elements + first) + "++count;\n}\n}\n" + each_lane(started) + "}\n";
    const int at_once = held_ > 0 ? held_ : this->at_once(stage, axis(), vector_, elements_);
    const std::string walk =
        held_ > 0 ? "const Index first = begin + depth;\n{\n"
                  : "for (Index first = begin + depth; first < end; first += kAtOnce * kDeep) {\n";
    return before + "{\nconstexpr int kAtOnce = " + std::to_string(at_once) + ";\n" + walk + arrays +
           (loads.empty() ? "" : each + loads + "}\n}\n") + first + each + inside + each_lane(body) + after +
           "}\n}\n" + taken + "}\n}\n";
  }

  std::string reduce_text(int id) const {
    const std::string number = std::to_string(id);
    return "aicf::tile::reduce_deep<" + operation(id) + ", kAcross, kDeep>(w" + number +
           ", reinterpret_cast<" + value_type(id) + "*>(scratch));\n";
  }

  std::string finish_reduction(int id) {
    const std::string text = reduce_text(id);
    if (splits_ == 1) return text;
    return text + "if (depth == 0 && live) {\n" +
           each_lane(std::string(tail_ ? "if (c + v < columns) " : "") + partial_text(id, rows_, splits_) +
                     "[split * Size(" + offsets_.number(rows_) + ") + row_number + v] = w" +
                     std::to_string(id) + "[v];\n") +
           "}\n";
  }

  std::string moments_text(const TileMoments& moments) const {
    return "aicf::tile::Moments<" + value_type(moments.sum) + "> m" + std::to_string(moments.sum) +
           "[kVector];\n";
  }
  // Over the threads of a column, from the parts that they have.
  std::string reduce_moments(const TileMoments& moments) const {
    const std::string number = std::to_string(moments.sum), type = value_type(moments.sum);
    return "aicf::tile::reduce_moments<kAcross, kDeep>(m" + number + ", " + type + "(n" + number +
           "), reinterpret_cast<" + type + "*>(scratch));\n";
  }
  std::string moments_results(const TileMoments& moments) const {
    const std::string m = "m" + std::to_string(moments.sum) + "[v]", type = value_type(moments.sum),
                      sum = "w" + std::to_string(moments.sum),
                      squares = "w" + std::to_string(moments.squares);
    return type + " " + sum + "[kVector], " + squares + "[kVector];\n" +
           each_lane(sum + "[v] = " + m + ".sum(" + type + "(length));\n" + squares + "[v] = " + m +
                     ".squares;\n");
  }
  // Where part `split` of a number of the moments lies: of all rows, the thread's first one.
  std::string moments_part(const TileMoments& moments, const std::string& number, const std::string& split) {
    return partial_text(number == "squares" ? moments.squares : moments.sum, rows_, splits_) + " + (" +
           split + (number == "low" ? " + kSplits" : "") + ") * Size(" + offsets_.number(rows_) +
           ") + row_number";
  }

  std::string finish_moments(const TileMoments& moments) {
    const std::string text = reduce_moments(moments);
    if (splits_ == 1) return text + moments_results(moments);
    std::string stores;
    for (const std::string number : {"mean", "low", "squares"})
      stores += "*(" + moments_part(moments, number, "split") + " + v) = m" + std::to_string(moments.sum) +
                "[v]." + number + ";\n";
    return text + "if (depth == 0 && live) {\n" +
           each_lane(tail_ ? "if (c + v < columns) {\n" + stores + "}\n" : stores) + "}\n";
  }

  std::string complete_moments_text(const TileMoments& moments) {
    const std::string number = std::to_string(moments.sum), type = value_type(moments.sum), n = "n" + number,
                      chunk = offsets_.number(ceildiv(length_, Dim(splits_)));
    const int bytes = std::min(16, vector_ * tile_type_bytes(value(moments.sum).result));
    std::string loads, lanes;
    for (const std::string part : {"mean", "low", "squares"}) {
      const std::string from = moments_part(moments, part, "i");
      loads += "aicf::tile::Vec<" + type + ", kVector> " + part + ";\n";
      loads += tail_ ? "aicf::tile::load_each(" + part + ", " + from + ", Index(1), columns - c);\n"
                     : "aicf::tile::load<" + std::to_string(bytes) + ">(" + part + ", " + from + ");\n";
      lanes += "part[v]." + part + " = " + part + ".at[v];\n";
    }
    return moments_text(moments) + type + " " + n +
           " = 0;\n#pragma unroll 4\nfor (int i = depth; live && i < int(kSplits); i += kDeep) {\n" + loads +
           "aicf::tile::Moments<" + type + "> part[kVector];\n" + each_lane(lanes) +
           "const Index left = length - Index(i) * " + chunk + ";\nconst " + type + " count = " + type +
           "(left < 0 ? 0 : left < " + chunk + " ? left : " + chunk + ");\naicf::tile::merge(m" + number +
           ", " + n + ", part, count);\n" + n + " = aicf::tile::add(" + n + ", count);\n}\n" +
           reduce_moments(moments) + moments_results(moments);
  }

  // The result of a reduction of an earlier launch from its parts.
  std::string complete_text(int id) {
    const std::string w = "w" + std::to_string(id) + "[v]";
    const int bytes = std::min(16, vector_ * tile_type_bytes(value(id).result));
    const std::string from =
        partial_text(id, rows_, splits_) + " + i * Size(" + offsets_.number(rows_) + ") + row_number";
    std::string text = value_type(id) + " w" + std::to_string(id) + "[kVector];\n" +
                       each_lane(w + " = " + operation(id) + "::neutral();\n");
    text +=
        "#pragma unroll 4\nfor (int i = depth; live && i < int(kSplits); i += kDeep) {\naicf::tile::Vec<" +
        value_type(id) + ", kVector> part;\n";
    text += tail_ ? "aicf::tile::load_each(part, " + from + ", Index(1), columns - c);\n"
                  : "aicf::tile::load<" + std::to_string(bytes) + ">(part, " + from + ");\n";
    text += each_lane(std::string(tail_ ? "if (c + v < columns) " : "") + w + " = " + operation(id) +
                      "::apply(" + w + ", part.at[v]);\n") +
            "}\n";
    return text + reduce_text(id);
  }

  Dim rows_, length_, columns_;
  ColumnsShape shape_;
  int vector_ = 1, across_ = 32, splits_ = 1, threads_ = 256;
  bool tail_ = false;    // the columns are no multiple of the vector
  double elements_ = 0;  // of a row that a thread takes
  int held_ = 0;         // elements of a row that a thread keeps in registers: all of its own, or none
  std::vector<size_t> in_registers_;  // views of which it has them by now
};

}  // namespace

CudaCode generate_tile_columns(const CudaProblem& problem, const TileSpace& space) {
  return ColumnsWriter(problem, space).write();
}

}  // namespace aicf
