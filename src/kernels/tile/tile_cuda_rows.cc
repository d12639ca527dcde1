// Regions with values per row: a group of threads per row, vectors along the row. Rows that fit stay in
// registers from their one read to the last stage; longer ones stay in shared memory where there are many,
// else they are read again in every stage. Few long rows are split over blocks: every stage is a launch,
// which leaves partial results that the next one combines in order. Sums over the rows are taken along: a
// block goes through many rows and adds its columns up in registers; a second launch adds the blocks' sums in
// order.
#include <algorithm>

#include "base/error.h"
#include "kernels/tile/tile_stages.h"

namespace aicf {
namespace {

constexpr int64_t kReductionBytes = 32 * 8;  // of shared memory: a value per warp
constexpr int kMaxKept = 32;                 // elements of a row in one thread's registers
constexpr int64_t kMaxBlockRow = 32768;  // elements: longer rows take several blocks, if blocks form clusters
constexpr int64_t kMaxClusterRow = 8 * 512 * 64;
constexpr int64_t kMaxStagedBytes = 110 * 1024;  // of a row: two blocks of an sm_90 multiprocessor
constexpr int64_t kEarlyBytes = 4 * 32;          // of a thread's registers for constants read ahead
constexpr int64_t kMachineBlocks = 528;          // four of a hundred and thirty-two multiprocessors' worth
constexpr int kSumThreads = 128;                 // of a block that sums rows
constexpr int kSumBlocks = 3;                    // of them on a multiprocessor: all its registers
constexpr int64_t kMostSumBlocks = kSumBlocks * 132;
constexpr int kAddThreads = 512, kAddAcross = 32;  // of a block that adds the blocks' sums

class RowsWriter : public StagedWriter {
 public:
  RowsWriter(const CudaProblem& problem, const TileSpace& space) : StagedWriter(problem, space) {}

  CudaCode write() {
    choose();
    plan_stages(kept_, splits_ > 1);
    for (size_t i = 0; i < space_.views.size(); ++i) pattern_of(i);
    CudaCode code;
    code.source = kTileIncludes;
    code.member = problem_.member;
    code.static_shared_bytes = kReductionBytes * reduction_count();
    if (splits_ > 1) code.workspace_bytes = partial_bytes(rows_, splits_);
    std::vector<std::string> bodies;
    for (size_t s = 0; s < (splits_ > 1 ? stages_.size() : 1); ++s) {
      bodies.push_back(body_text(s));
      code.launches.push_back(launch_of(s));
    }
    if (has_sums()) {
      bodies.push_back(adding_text());
      code.launches.push_back(adding_launch(code.launches[0]));
      code.workspace_bytes = length_ * Dim(static_cast<int64_t>(sums().size()) * sum_blocks() * 4);
    }
    for (size_t s = 0; s < bodies.size(); ++s) {
      code.launches[s].params = params_.dims();
      code.source += cuda_kernel_head(problem_, code.launches[s], splits_ > 1 || has_sums(),
                                      has_sums() && s == 0 ? kSumBlocks : 0) +
                     bodies[s] + "}\n";
    }
    return code;
  }

 private:
  bool has_sums() const {
    return std::any_of(values_.stores.begin(), values_.stores.end(),
                       [](const TileStore& s) { return s.sums; });
  }
  std::vector<TileStore> sums() const {
    std::vector<TileStore> found;
    for (const Stage& stage : stages_) found.insert(found.end(), stage.sums.begin(), stage.sums.end());
    return found;
  }
  bool has_inner() const { return space_.rank() > space_.outer; }
  size_t axis() const { return space_.rank() - 1; }
  bool guarded() const { return !has_sums() && group_ < threads_ && !divisible(rows_, threads_ / group_); }
  bool one_inner_axis() const { return space_.rank() <= space_.outer + 1; }

  void choose() {
    rows_ = space_count(space_, 0, space_.outer);
    length_ = space_count(space_, space_.outer, space_.rank());
    vector_ = has_inner() ? vector_width(axis()) : 1;
    while (vector_ > 1 &&
           (bound(length_) < vector_ || (!one_inner_axis() && !divisible(space_.sizes[axis()], vector_))))
      vector_ /= 2;
    tail_ = !divisible(length_, vector_);
    const int64_t length = bound(length_), vectors = length / vector_ + (length % vector_ != 0);
    const bool reduces = values_.stages > 1;
    const int64_t rows = std::max<int64_t>(bound(rows_), 1);
    const bool clusters =
        problem_.arch >= 90 && length > kMaxBlockRow && length <= kMaxClusterRow && rows >= 16;
    if (has_sums()) {
      choose_sums(vectors);
    } else if (problem_.arch >= 90 && length > kMaxBlockRow && rows >= kMachineBlocks &&
               choose_staged(length)) {
      group_ = threads_ = 512, items_ = 1, kept_ = false;
    } else if (clusters) {
      choose_cluster(vectors);
    } else if (reduces && rows < kMachineBlocks / 4 && vectors >= 4096 && vectors * rows >= 4 * 4096) {
      group_ = threads_ = 512, items_ = 1, kept_ = false;
      splits_ = static_cast<int>(std::min((kMachineBlocks + rows - 1) / rows, vectors / 1024));
    } else {
      choose_group(std::max<int64_t>(vectors, 1), rows);
    }
  }

  // A warp per row.
  void choose_sums(int64_t vectors) {
    group_ = 32, threads_ = kSumThreads;
    items_ = static_cast<int>(std::max<int64_t>(1, (vectors + group_ - 1) / group_));
    AICF_CHECK(one_inner_axis() && items_ * vector_ <= kMaxKept, "rows are too long to be summed");
    whole_ = length_.constant().value_or(0) > 0 && !tail_ && vectors == int64_t{items_} * group_;
  }

  // Threads per row and vectors per thread.
  void choose_group(int64_t vectors, int64_t rows) {
    const int most = std::max(1, 32 / vector_);
    if (vectors <= 32 * most) {
      double best = 0;
      for (int group = 32; group >= 1; group /= 2) {
        const int64_t items = (vectors + group - 1) / group;
        const double used = static_cast<double>(vectors) / static_cast<double>(items * group);
        if (items > most || used < best + 0.15) continue;
        best = used, group_ = group, items_ = static_cast<int>(items);
      }
      threads_ = std::max(group_, rows * group_ < 132 * 128 * 2 ? 64 : 128);
    } else {
      kept_ = vectors * vector_ <= int64_t{1024} * kMaxKept;
      int64_t items = 2;
      while (vectors > items * 512 && items * vector_ < kMaxKept) items *= 2;
      group_ = static_cast<int>(std::min<int64_t>(1024, ((vectors + items - 1) / items + 31) / 32 * 32));
      items_ = static_cast<int>((vectors + group_ - 1) / group_);
      if (!kept_) group_ = 512, items_ = 1;
      threads_ = group_;
    }
    whole_ = kept_ && length_.constant().value_or(0) > 0 && !tail_ && vectors == int64_t{items_} * group_;
  }

  // Which operands of a row are held in shared memory: all that several stages read. False: they do not fit.
  bool choose_staged(int64_t length) {
    if (tail_ || !one_inner_axis()) return false;
    plan_stages(false, false);
    std::vector<int> readers(space_.views.size());
    for (const Stage& stage : stages_)
      for (size_t view : loaded_views(stage.elements)) ++readers[view];
    stages_.clear();
    for (size_t view = 0; view < readers.size(); ++view)
      if (readers[view] > 1 && lanes(view, axis(), vector_) == vector_) {
        staged_.push_back(view);
        staged_bytes_ += staged_row_bytes(view, length);
      }
    if (staged_.empty() || staged_bytes_ > kMaxStagedBytes) staged_.clear(), staged_bytes_ = 0;
    return !staged_.empty();
  }

  int64_t staged_row_bytes(size_t view, int64_t length) const {
    return (length * dtype_bytes(space_.views[view].dtype) + 15) / 16 * 16;
  }

  // A row in the registers of several blocks, which exchange sums through shared memory.
  void choose_cluster(int64_t vectors) {
    threads_ = 512;
    const int64_t items = std::max(1, 16 / vector_);
    cluster_ = static_cast<int>(std::min<int64_t>(8, (vectors + items * threads_ - 1) / (items * threads_)));
    group_ = cluster_ * threads_;
    items_ = static_cast<int>((vectors + group_ - 1) / group_);
    whole_ = length_.constant() && !tail_ && vectors == int64_t{items_} * group_;
  }

  CudaLaunch launch_of(size_t stage) {
    CudaLaunch launch;
    launch.function =
        "tile_rows" + tile_program_name(values_) + (splits_ > 1 ? "_stage" + std::to_string(stage) : "");
    launch.block = threads_;
    launch.cluster = cluster_;
    launch.shared_bytes = staged_bytes_;
    for (size_t view : early_reads()) launch.early_inputs.push_back(static_cast<int32_t>(view));
    launch.grid[0] = cluster_ > 1 ? rows_ * Dim(cluster_) : ceildiv(rows_, Dim(threads_ / group_));
    if (has_sums()) launch.grid[0] = Dim(sum_blocks());
    if (splits_ > 1 && stages_[stage].walks()) launch.grid[0] = rows_ * Dim(splits_);
    return launch;
  }

  std::string row_offset(size_t view) {
    const int number = pattern_of(view);
    return number < 0 ? "0" : "o" + std::to_string(number);
  }
  // Of the vector that starts at column c, whose inner coordinates are b0….
  std::string offset_text(size_t view) {
    std::vector<std::string> names;
    for (size_t i = space_.outer; i < space_.rank(); ++i)
      names.push_back(one_inner_axis() ? "c" : "b" + std::to_string(i - space_.outer));
    const std::string inner = offsets_.sum(space_.views[view], space_.outer, space_.rank(), names);
    const std::string row = row_offset(view);
    return row == "0" ? inner : inner == "0" ? row : row + " + " + inner;
  }
  std::string column_coordinates() {
    if (one_inner_axis()) return "";
    const Shape inner(space_.sizes.begin() + static_cast<std::ptrdiff_t>(space_.outer), space_.sizes.end());
    return "Size j = Size(c);\n" + offsets_.split("j", inner, "b");
  }

  // The whole program, or one stage of it.
  std::string body_text(size_t stage) {
    std::string text = tile_index_types(space_) + "constexpr int kVector = " + std::to_string(vector_) +
                       ", kItems = " + std::to_string(items_) + ", kGroup = " + std::to_string(group_) +
                       ";\n";
    text += cluster_ > 1 ? "constexpr int kCluster = " + std::to_string(cluster_) +
                               ";\nconst int lane = block_index % kCluster * " + std::to_string(threads_) +
                               " + threadIdx.x;\naicf::tile::cluster_arrive();\n"
                         : "const int lane = threadIdx.x % kGroup;\n";
    int64_t from = 0;
    if (!staged_.empty()) text += "extern __shared__ __align__(16) char staged[];\n";
    for (size_t view : staged_) {
      text += memory_type(view) + "* const row" + std::to_string(view) + " = reinterpret_cast<" +
              memory_type(view) + "*>(staged + " + std::to_string(from) + ");\n";
      from += staged_row_bytes(view, bound(length_));
    }
    const std::string begin = "aicf::wait_for_inputs();\naicf::launch_dependents();\n";
    if (has_sums()) return text + begin + sums_text();
    text += row_text(stage) + loads_text(early_reads()) + begin;
    if (splits_ > 1) {
      for (int id : stages_[stage].complete) text += complete_text(id);
      return text + stage_text(static_cast<int>(stage));
    }
    return text + stages_text();
  }

  std::string stages_text() {
    std::string text;
    const bool ahead = loads_ahead();
    for (size_t s = 0; kept_ && ahead && s < stages_.size(); ++s) text += loads_text(late_reads(s));
    for (size_t s = 0; s < stages_.size(); ++s) {
      if (kept_ && !ahead) text += loads_text(late_reads(s));
      if (s == 0 && cluster_ > 1) text += "aicf::tile::cluster_wait();\n";
      text += stage_text(static_cast<int>(s));
    }
    return text;
  }

  // Row number, columns [begin, length) and the rows' offsets.
  std::string row_text(size_t stage) {
    const std::string length = offsets_.number(length_);
    std::string text;
    if (guarded()) {
      text += "const Size place = Size(block_index) * " + std::to_string(threads_ / group_) +
              " + threadIdx.x / kGroup;\nconst bool live = place < Size(" + offsets_.number(rows_) +
              ");\nSize row = live ? place : 0;\nconst Index length = live ? " + length + " : 0;\n";
    } else if (splits_ > 1 && stages_[stage].walks()) {
      const Dim chunk = ceildiv(length_, Dim(int64_t{splits_} * vector_)) * Dim(vector_);
      text += "constexpr Size kSplits = " + std::to_string(splits_) +
              ";\nSize row = block_index / kSplits;\nconst Size split = block_index % kSplits, row_number = "
              "row;\n";
      text += "const Index begin = Index(split) * " + offsets_.number(chunk) + ", chunk_end = begin + " +
              offsets_.number(chunk) + ";\nconst Index length = chunk_end < " + length +
              " ? chunk_end : " + length + ";\n";
    } else {
      text += group_ < threads_ ? "Size row = Size(block_index) * " + std::to_string(threads_ / group_) +
                                      " + threadIdx.x / kGroup;\n"
              : cluster_ > 1 ? "Size row = block_index / kCluster;\n"
                             : "Size row = block_index;\n";
      text += "const Index length = " + length + ";\n";
      if (splits_ > 1)
        text += "constexpr Size kSplits = " + std::to_string(splits_) +
                ";\nconst Size split = 0, row_number = row;\n";
    }
    return text + row_offsets_text();
  }

  std::string row_offsets_text() {
    const Shape outer(space_.sizes.begin(), space_.sizes.begin() + static_cast<std::ptrdiff_t>(space_.outer));
    std::string text = offsets_.split("row", outer, "a");
    std::vector<std::string> names;
    for (size_t i = 0; i < space_.outer; ++i) names.push_back("a" + std::to_string(i));
    for (size_t i = 0; i < patterns_.size(); ++i)
      text += "const Index o" + std::to_string(i) + " = " +
              offsets_.sum(TileView{DType::f32, Dim(0), patterns_[i]}, 0, space_.outer, names) + ";\n";
    return text;
  }

  // --- sums over the rows

  // A row of sums that a block leaves in the workspace, by number of the sum.
  int64_t sum_blocks() const {
    const int64_t rows = std::max<int64_t>(bound(rows_), 1), at_once = threads_ / group_;
    return std::min(kMostSumBlocks, (rows + at_once - 1) / at_once);
  }
  std::string sum_name(const TileStore& store) const { return "t" + std::to_string(store.operand); }
  std::string partial_sums(size_t number) {
    return "(static_cast<float*>(workspace) + " +
           params_.expr(length_ * Dim(static_cast<int64_t>(number) * sum_blocks())) + ")";
  }

  // All rows of a block, then its sums: those of the warps in order.
  std::string sums_text() {
    std::string text;
    for (const TileStore& store : sums()) text += "float " + sum_name(store) + "[kItems][kVector] = {};\n";
    text += "const Index length = " + offsets_.number(length_) +
            ";\nconst int group = threadIdx.x / kGroup;\nconstexpr int kGroups = " +
            std::to_string(threads_ / group_) +
            ";\nfor (Size place = Size(block_index) * kGroups + group; place < Size(" +
            offsets_.number(rows_) + "); place += Size(" + std::to_string(sum_blocks()) +
            ") * kGroups) {\nSize row = place;\n" + row_offsets_text() + stages_text() + "}\n";
    text += "__shared__ float parts[kGroups][kItems * kGroup * kVector];\n";
    size_t number = 0;
    for (const TileStore& store : sums()) {
      text +=
          "#pragma unroll\nfor (int k = 0; k < kItems; ++k)\n#pragma unroll\nfor (int v = 0; v < kVector; "
          "++v)\n"
          "parts[group][(k * kGroup + lane) * kVector + v] = " +
          sum_name(store) + "[k][v];\n__syncthreads();\n";
      text += "for (int c = threadIdx.x; c < int(length); c += " + std::to_string(threads_) +
              ") {\nfloat sum = parts[0][c];\n#pragma unroll\nfor (int g = 1; g < kGroups; ++g) sum = "
              "aicf::tile::add(sum, parts[g][c]);\n" +
              partial_sums(number++) + "[Size(block_index) * Size(length) + c] = sum;\n}\n__syncthreads();\n";
    }
    return text;
  }

  // The launch that adds the blocks' sums: 32 columns of one sum to a block.
  CudaLaunch adding_launch(const CudaLaunch& first) const {
    CudaLaunch launch;
    launch.function = first.function + "_sums";
    launch.block = kAddThreads;
    launch.grid[0] = adding_groups() * Dim(static_cast<int64_t>(sums().size()));
    return launch;
  }
  Dim adding_groups() const { return ceildiv(length_, Dim(kAddAcross)); }

  std::string adding_text() {
    const std::string length = "Size(" + offsets_.number(length_) + ")",
                      count = "Size(" + offsets_.number(adding_groups()) + ")";
    std::string text =
        tile_index_types(space_) +
        "aicf::wait_for_inputs();\naicf::launch_dependents();\nconstexpr int kAcross = " +
        std::to_string(kAddAcross) + ", kDeep = " + std::to_string(kAddThreads / kAddAcross) +
        ", kBlocks = " + std::to_string(sum_blocks()) +
        ";\n__shared__ float shared[kAcross * kDeep];\nconst Size number = Size(block_index) / " + count +
        ", c = Size(block_index) % " + count +
        " * kAcross + threadIdx.x % kAcross;\n"
        "const int depth = threadIdx.x / kAcross;\nfloat sum[1] = {0.0f};\nif (c < " +
        length +
        ")\n"
        "#pragma unroll 8\nfor (int i = depth; i < kBlocks; i += kDeep)\nsum[0] = aicf::tile::add(sum[0], "
        "static_cast<const float*>(workspace)[(number * kBlocks + i) * " +
        length +
        " + c]);\n"
        "aicf::tile::reduce_deep<aicf::tile::reduce_sum<float>, kAcross, kDeep>(sum, shared);\n"
        "if (depth > 0 || c >= " +
        length + ") return;\n";
    size_t number = 0;
    for (const TileStore& store : sums()) {
      const auto view = static_cast<size_t>(store.operand);
      text += "if (number == " + std::to_string(number++) + ") " + operand(view) + "[" + offset_text(view) +
              "] = aicf::tile::narrowed<" + memory_type(view) + ">(sum[0]);\n";
    }
    return text;
  }

  // Begins a walk over the thread's vectors: c is the first column, and what lies inside runs for c < length.
  std::string walk_text() const {
    if (!kept_)
      return "for (Index c = " + std::string(splits_ > 1 ? "begin + " : "") +
             "Index(lane) * kVector; c < length; c += kGroup * kVector) {\n";
    const std::string text =
        "#pragma unroll\nfor (int k = 0; k < kItems; ++k) {\nconst Index c = (Index(k) * kGroup + lane) * "
        "kVector;\n";
    return text + (whole_ && !guarded() ? "{\n" : "if (c < length) {\n");
  }
  std::string walk_end() const { return kept_ ? "}\n}\n" : "}\n"; }
  std::string left() const { return tail_ ? "length - c" : ""; }

  std::string array_text(size_t view) const {
    return "aicf::tile::Vec<" + memory_type(view) + ", " + std::to_string(lanes(view, axis(), vector_)) +
           "> x" + std::to_string(view);
  }

  // Operands that a stage is the first to read.
  std::vector<size_t> first_reads(size_t stage) const {
    std::vector<size_t> views, before;
    for (size_t s = 0; s <= stage; ++s)
      for (size_t view : loaded_views(stages_[s].elements))
        if (std::find(before.begin(), before.end(), view) == before.end()) {
          before.push_back(view);
          if (s == stage) views.push_back(view);
        }
    return views;
  }

  // Constant operands that all rows share, such as a norm's scale: read before the wait for the launch
  // before, so that only the rows themselves are waited for.
  std::vector<size_t> early_reads() {
    std::vector<size_t> views;
    if (!kept_ || splits_ > 1 || problem_.member || has_sums()) return views;
    int64_t bytes = 0;
    for (size_t s = 0; s < stages_.size(); ++s)
      for (size_t view : first_reads(s)) {
        const int64_t more = view_bytes(view);
        if (view >= problem_.inputs.size() || !problem_.inputs[view].constant || pattern_of(view) >= 0 ||
            bytes + more > kEarlyBytes)
          continue;
        views.push_back(view);
        bytes += more;
      }
    return views;
  }
  // In a thread's registers.
  int64_t view_bytes(size_t view) const {
    return int64_t{items_} * lanes(view, axis(), vector_) * dtype_bytes(space_.views[view].dtype);
  }
  // Of a stage, without the early ones.
  std::vector<size_t> late_reads(size_t stage) {
    const std::vector<size_t> early = early_reads();
    std::vector<size_t> views = first_reads(stage);
    std::erase_if(views, [&](size_t v) { return std::find(early.begin(), early.end(), v) != early.end(); });
    return views;
  }

  // Everything is loaded at once if that takes few registers, else when a stage reads it first.
  bool loads_ahead() {
    int64_t bytes = 0;
    for (size_t s = 0; s < stages_.size(); ++s)
      for (size_t view : late_reads(s)) bytes += view_bytes(view);
    return bytes <= 4 * 32;
  }

  std::string loads_text(const std::vector<size_t>& views) {
    if (views.empty()) return "";
    std::string text, loads;
    for (size_t view : views) {
      text += array_text(view) + "[kItems];\n";
      loads += load_text(view, axis(), "x" + std::to_string(view) + "[k]", offset_text(view), left());
    }
    return text + walk_text() + column_coordinates() + loads + walk_end();
  }

  std::string stage_text(int number) {
    const Stage& stage = stages_[static_cast<size_t>(number)];
    std::string text;
    for (int id : stage.row_values) {
      const TileValue& v = value(id);
      const auto view = static_cast<size_t>(v.operand);
      const std::string from =
          v.op == TileOp::load
              ? tile_loaded(space_.views[view].dtype, operand(view) + "[" + row_offset(view) + "]")
              : tile_expression(values_, id);
      text += tile_definition(values_, id, from);
    }
    if (stage.walks()) text += elements_text(number, stage);
    for (int id : stage.reductions) text += finish_reduction(id);
    for (const TileStore& store : stage.row_stores) {
      const auto view = static_cast<size_t>(store.operand);
      text += "if (lane == 0" + std::string(guarded() ? " && live" : "") +
              (splits_ > 1 ? " && split == 0" : "") + ") " + operand(view) + "[" + row_offset(view) +
              "] = aicf::tile::narrowed<" + memory_type(view) + ">(" + tile_reference(values_, store.value) +
              ");\n";
    }
    return text;
  }

  std::string elements_text(int number, const Stage& stage) {
    std::string before, inside = column_coordinates(), body, after;
    for (int id : stage.elements)
      if (keeps(id) && !revived(number, id))
        before += value_type(id) + " h" + std::to_string(id) + "[kItems][kVector];\n";
    for (int id : stage.reductions) {
      const std::string r = "r" + std::to_string(id);
      before += value_type(id) + " " + r + "[kVector];\n#pragma unroll\nfor (int v = 0; v < kVector; ++v) " +
                r + "[v] = " + operation(id) + "::neutral();\n";
    }
    if (!kept_)
      for (size_t view : loaded_views(stage.elements))
        inside += array_text(view) + ";\n" + loaded_text(number, view);
    for (int id : stage.elements) body += element_text(number, id);
    for (int id : stage.reductions) {
      const std::string r = "r" + std::to_string(id) + "[v]";
      body += (tail_ ? "if (c + v < length) " : "") + r + " = " + operation(id) + "::apply(" + r + ", " +
              tile_reference(values_, value(id).args[0]) + ");\n";
    }
    for (const TileStore& store : stage.sums)
      body += (tail_ ? "if (c + v < length) " : "") + sum_name(store) + "[k][v] = aicf::tile::add(" +
              sum_name(store) + "[k][v], " + tile_reference(values_, store.value) + ");\n";
    for (const TileStore& store : stage.stores) {
      const auto view = static_cast<size_t>(store.operand);
      const std::string y = "y" + std::to_string(view - input_count());
      inside += std::string(tile_cuda_type(store.type)) + " " + y + "[kVector];\n";
      body += y + "[v] = " + tile_reference(values_, store.value) + ";\n";
      after += store_text(view, axis(), y, offset_text(view), left());
    }
    const std::string unroll = !kept_ && stage.stores.empty() ? "#pragma unroll 4\n" : "";
    return before + unroll + walk_text() + inside + "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n" +
           body + "}\n" + after + walk_end();
  }

  // The vector of a stage from memory, or from where the first stage that read it put it: every thread reads
  // only what it put there itself.
  std::string loaded_text(int stage, size_t view) {
    const std::string x = "x" + std::to_string(view), row = "row" + std::to_string(view) + " + c";
    const std::string load = load_text(view, axis(), x, offset_text(view), left());
    if (std::find(staged_.begin(), staged_.end(), view) == staged_.end()) return load;
    const std::vector<size_t> first = first_reads(static_cast<size_t>(stage));
    if (std::find(first.begin(), first.end(), view) == first.end())
      return "aicf::tile::load<16>(" + x + ", " + row + ");\n";
    return load + "aicf::tile::store<16>(" + row + ", " + x + ");\n";
  }

  std::string element_text(int number, int id) {
    const TileValue& v = value(id);
    const std::string kept = "h" + std::to_string(id) + "[k][v]";
    if (revived(number, id)) return tile_definition(values_, id, kept);
    std::string from = tile_expression_of(id, v);
    const std::string text = tile_definition(values_, id, from);
    return keeps(id) ? text + kept + " = v" + std::to_string(id) + ";\n" : text;
  }

  std::string tile_expression_of(int id, const TileValue& v) const {
    if (v.op == TileOp::inner_index) return value_type(id) + "(c + v)";
    if (v.op != TileOp::load) return tile_expression(values_, id);
    const auto view = static_cast<size_t>(v.operand);
    return lane_text(view, axis(), "x" + std::to_string(view) + (kept_ ? "[k]" : ""));
  }

  std::string reduce_group(int id, const std::string& own) {
    const std::string number = std::to_string(id);
    if (group_ <= 32)
      return tile_definition(values_, id,
                             "aicf::tile::reduce_lanes<" + operation(id) + ", kGroup>(" + own + ")");
    const std::string block = "aicf::tile::reduce_block<" + operation(id) + ", " + std::to_string(threads_) +
                              ">(" + own + ", s" + number + ")";
    const std::string shared = "__shared__ " + value_type(id) + " s" + number + "[32]";
    if (cluster_ == 1) return shared + ";\n" + tile_definition(values_, id, block);
    return shared + ", t" + number + "[kCluster];\n" +
           tile_definition(
               values_, id,
               "aicf::tile::reduce_cluster<" + operation(id) + ", kCluster>(" + block + ", t" + number + ")");
  }

  std::string finish_reduction(int id) {
    const std::string number = std::to_string(id);
    const std::string text = reduce_group(id, "aicf::tile::combine<" + operation(id) + ">(r" + number + ")");
    if (splits_ == 1) return text;
    return text + "if (lane == 0) " + partial_text(id, rows_, splits_) +
           "[row_number * kSplits + split] = v" + number + ";\n";
  }

  // The result of a reduction of an earlier launch from its parts.
  std::string complete_text(int id) {
    const std::string number = std::to_string(id);
    return value_type(id) + " r" + number + " = " + operation(id) +
           "::neutral();\nfor (int i = lane; i < int(kSplits)" + "; i += kGroup) r" + number + " = " +
           operation(id) + "::apply(r" + number + ", " + partial_text(id, rows_, splits_) +
           "[row_number * kSplits + i]);\n" + reduce_group(id, "r" + number);
  }

  Dim rows_, length_;
  int vector_ = 1, items_ = 1, group_ = 1, threads_ = 128, splits_ = 1, cluster_ = 1;
  std::vector<size_t> staged_;  // operands whose rows are held in shared memory
  int64_t staged_bytes_ = 0;
  bool tail_ = false;   // the length is no multiple of the vector
  bool kept_ = true;    // elements stay in registers
  bool whole_ = false;  // every thread has all its vectors in every row
};

}  // namespace

CudaCode generate_tile_rows(const CudaProblem& problem, const TileSpace& space) {
  return RowsWriter(problem, space).write();
}

}  // namespace aicf
