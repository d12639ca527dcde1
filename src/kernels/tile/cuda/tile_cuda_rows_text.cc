// The text of the launches that go along rows.
#include <cmath>

#include "kernels/tile/cuda/tile_cuda_rows.h"

namespace aicf {
std::string RowsWriter::row_offset(size_t view) {
  if (gathered_ != nullptr && view == gathered_->view) return "gathered";
  const int number = pattern_of(view);
  return number < 0 ? "0" : "o" + std::to_string(number);
}

std::string RowsWriter::gathered_text() {
  if (gathered_ == nullptr) return "";
  const std::string index =
      "in" + std::to_string(input_count()) + "[" + row_offset(space_.views.size() - 1) + "]";
  return "const Index gathered = Index(aicf::gathered_row(" + index + ", " + params_.expr(gathered_->size) +
         ", error)) * Index(" + params_.expr(gathered_->stride) + ");\n";
}

std::string RowsWriter::offset_text(size_t view) {
  std::vector<std::string> names;
  for (size_t i = space_.outer; i < space_.rank(); ++i)
    names.push_back(one_inner_axis() ? "c" : "b" + std::to_string(i - space_.outer));
  const std::string inner = offsets_.sum(space_.views[view], space_.outer, space_.rank(), names);
  const std::string row = row_offset(view);
  return row == "0" ? inner : inner == "0" ? row : row + " + " + inner;
}

std::string RowsWriter::column_coordinates() {
  if (one_inner_axis()) return "";
  const Shape inner(space_.sizes.begin() + static_cast<std::ptrdiff_t>(space_.outer), space_.sizes.end());
  return "Size j = Size(c);\n" + offsets_.split("j", inner, "b");
}

std::string RowsWriter::body_text(size_t stage) {
  std::string text = tile_index_types(space_) + "constexpr int kVector = " + std::to_string(vector_) +
                     ", kItems = " + std::to_string(items_) + ", kGroup = " + std::to_string(group_) + ";\n";
  text += cluster_ > 1 ? "constexpr int kCluster = " + std::to_string(cluster_) +
                             ";\nconst int lane = block_index % kCluster * " + std::to_string(threads_) +
                             " + threadIdx.x;\naicf::tile::cluster_arrive();\n"
                       : "const int lane = threadIdx.x % kGroup;\n";
  if (walks_rows()) return text + walk_rows_text();
  if (rows_at_once_ > 1) return text + rows_at_once_text();
  text += row_text(stage) + loads_text(early_reads()) + cuda_wait_text(problem_) + gathered_text();
  if (splits_ > 1) {
    for (int id : stages_[stage].complete) text += complete_text(id);
    for (const TileMoments& moments : stages_[stage].complete_moments) text += complete_moments_text(moments);
    return text + stage_text(static_cast<int>(stage));
  }
  return text + stages_text();
}

std::string RowsWriter::stages_text() {
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

std::string RowsWriter::rows_at_once_text() {
  const std::string groups = std::to_string(threads_ / group_),
                    each_row = "#pragma unroll\nfor (int r = 0; r < kRows; ++r) {\n" +
                               place_text("first + r * " + groups) + row_offsets_text();
  std::vector<size_t> views;
  for (size_t s = 0; s < stages_.size(); ++s)
    for (size_t view : late_reads(s)) views.push_back(view);
  std::string arrays, names, row_loads;
  for (size_t view : views) {
    const std::string x = "x" + std::to_string(view);
    arrays += array_text(view) + "_of[kRows][kItems];\n";
    names += "auto& " + x + " = " + x + "_of[r];\n";
  }
  for (const Stage& stage : stages_)
    for (int id : stage.row_values) {
      if (value(id).op != TileOp::load) continue;
      arrays += value_type(id) + " l" + std::to_string(id) + "[kRows];\n";
      row_loads += "l" + std::to_string(id) + "[r] = " + row_element(id) + ";\n";
    }
  std::string text = "constexpr int kRows = " + std::to_string(rows_at_once_) +
                     ";\nconst Size first = Size(block_index) * (kRows * " + groups +
                     ") + threadIdx.x / kGroup;\n";
  const std::vector<size_t> early = early_reads();
  if (!early.empty()) text += "const Index length = " + offsets_.number(length_) + ";\n" + loads_text(early);
  text += cuda_wait_text(problem_) + arrays + each_row + names + row_loads + walk_loads_text(views) + "}\n" +
          each_row + names;
  for (size_t s = 0; s < stages_.size(); ++s) text += stage_text(static_cast<int>(s));
  return text + "}\n";
}

std::string RowsWriter::place_text(const std::string& place) {
  const std::string length = offsets_.number(length_);
  if (!guarded()) return "Size row = " + place + ";\nconst Index length = " + length + ";\n";
  return "const Size place = " + place + ";\nconst bool live = place < Size(" + offsets_.number(rows_) +
         ");\nSize row = live ? place : 0;\nconst Index length = live ? " + length + " : 0;\n";
}

std::string RowsWriter::row_text(size_t stage) {
  const std::string length = offsets_.number(length_);
  std::string text;
  if (group_ < threads_) {
    text +=
        place_text("Size(block_index) * " + std::to_string(threads_ / group_) + " + threadIdx.x / kGroup");
  } else if (splits_ > 1 && stages_[stage].walks()) {
    const Dim chunk = split_length();
    text += "constexpr Size kSplits = " + std::to_string(splits_) +
            ";\nSize row = block_index / kSplits;\nconst Size split = block_index % kSplits, row_number = "
            "row;\n";
    text += "const Index begin = Index(split) * " + offsets_.number(chunk) + ", chunk_end = begin + " +
            offsets_.number(chunk) + ";\nconst Index length = chunk_end < " + length +
            " ? chunk_end : " + length + ";\n";
  } else {
    text += cluster_ > 1 ? "Size row = block_index / kCluster;\n" : "Size row = block_index;\n";
    text += "const Index length = " + length + ";\n";
    if (splits_ > 1)
      text += "constexpr Size kSplits = " + std::to_string(splits_) +
              ";\nconst Size split = 0, row_number = row;\n";
  }
  return text + row_offsets_text();
}

std::string RowsWriter::row_offsets_text() {
  const Shape outer(space_.sizes.begin(), space_.sizes.begin() + static_cast<std::ptrdiff_t>(space_.outer));
  std::string text = offsets_.split("row", outer, "a");
  std::vector<std::string> names;
  for (size_t i = 0; i < space_.outer; ++i) names.push_back("a" + std::to_string(i));
  for (size_t i = 0; i < patterns_.size(); ++i)
    text += "const Index o" + std::to_string(i) + " = " +
            offsets_.sum(TileView{DType::f32, Dim(0), {}, patterns_[i]}, 0, space_.outer, names) + ";\n";
  return text;
}

std::string RowsWriter::walk_text() const {
  if (!kept_)
    return "#pragma unroll\nfor (int u = 0; u < kAtOnce; ++u) {\nconst Index c = start + u * kGroup * "
           "kVector;\nif (c < length) {\n";
  const std::string text =
      "#pragma unroll\nfor (int k = 0; k < kItems; ++k) {\nconst Index c = (Index(k) * kGroup + lane) * "
      "kVector;\n";
  return text + (whole_ && !guarded() ? "{\n" : "if (c < length) {\n");
}

std::string RowsWriter::loads_text(const std::vector<size_t>& views) {
  std::string text;
  for (size_t view : views) text += array_text(view) + "[kItems];\n";
  return text + walk_loads_text(views);
}

std::string RowsWriter::walk_loads_text(const std::vector<size_t>& views) {
  if (views.empty()) return "";
  std::string loads;
  for (size_t view : views) loads += vector_text(view, "x" + std::to_string(view) + "[k]");
  return walk_text() + column_coordinates() + loads + walk_end();
}

std::string RowsWriter::row_load_text(int id) {
  const std::string loaded = rows_at_once_ > 1 ? "l" + std::to_string(id) + "[r]" : row_element(id);
  return tile_definition(values_, id, loaded);
}

std::string RowsWriter::row_element(int id) {
  const auto view = static_cast<size_t>(value(id).operand);
  return tile_loaded(space_.views[view].dtype, operand(view) + "[" + row_offset(view) + "]");
}

std::string RowsWriter::stage_text(int number) {
  const Stage& stage = stages_[static_cast<size_t>(number)];
  std::string text;
  for (int id : stage.row_values)
    if (value(id).op != TileOp::load)
      text += tile_definition(values_, id, tile_expression(values_, id));
    else if (fetched_.empty())
      text += row_load_text(id);
  if (stage.walks()) text += elements_text(number, stage);
  for (int id : stage.reductions) text += finish_reduction(id);
  for (const TileMoments& moments : stage.moments) text += finish_moments(moments);
  for (const TileStore& store : stage.row_stores) {
    const auto view = static_cast<size_t>(store.operand);
    text += "if (lane == 0" + std::string(guarded() ? " && live" : "") +
            (splits_ > 1 ? " && split == 0" : "") + ") " + operand(view) + "[" + row_offset(view) +
            "] = aicf::tile::narrowed<" + memory_type(view) + ">(" + tile_reference(values_, store.value) +
            ");\n";
  }
  return text;
}

std::string RowsWriter::elements_text(int number, const Stage& stage) {
  std::string before, inside = column_coordinates() + shifted_text(stage), body, after;
  for (int id : stage.elements)
    if (keeps(id) && !revived(number, id))
      before += value_type(id) + " h" + std::to_string(id) + "[kItems][kVector];\n";
  for (int id : stage.reductions) {
    const std::string r = "r" + std::to_string(id), e = "e" + std::to_string(id);
    if (in_order(id)) {
      before += value_type(id) + " " + r + "[kItems];\n#pragma unroll\nfor (int k = 0; k < kItems; ++k) " +
                r + "[k] = " + operation(id) + "::neutral();\n";
      inside += value_type(id) + " " + e + "[kVector];\n";
      after += r + "[k] = aicf::tile::combine<" + operation(id) + ">(" + e + ");\n";
      continue;
    }
    before += value_type(id) + " " + r + "[kVector];\n#pragma unroll\nfor (int v = 0; v < kVector; ++v) " +
              r + "[v] = " + operation(id) + "::neutral();\n";
  }
  std::string arrays, loads, first, started, taken;
  for (size_t view : loaded_views(stage.elements))
    arrays += array_text(view) + "[kAtOnce];\n",
        loads += vector_text(view, "x" + std::to_string(view) + "[u]");
  for (int id : stage.elements) body += element_text(number, id);
  const std::string elements = body;
  for (int id : stage.reductions) {
    if (in_order(id)) {
      const std::string from = tile_reference(values_, value(id).args[0]);
      body += "e" + std::to_string(id) +
              "[v] = " + (tail_ ? "c + v < length ? " + from + " : " + operation(id) + "::neutral()" : from) +
              ";\n";
      continue;
    }
    const std::string r = "r" + std::to_string(id) + "[v]";
    body += (tail_ ? "if (c + v < length) " : "") + r + " = " + operation(id) + "::apply(" + r + ", " +
            tile_reference(values_, value(id).args[0]) + ");\n";
  }
  for (const TileMoments& moments : stage.moments) {
    const std::string number = std::to_string(moments.sum), n = "n" + number, m = "m" + number + "[0]",
                      s = "s" + number, q = "q" + number, type = value_type(moments.sum),
                      x = tile_reference(values_, value(moments.sum).args[0]);
    before += "aicf::tile::Moments<" + type + "> m" + number + "[1];\nint " + n + " = 0;\n";
    arrays += type + " " + s + "[kVector] = {}, " + q + "[kVector] = {};\n";
    const std::string exists = tail_ ? "if (c + v < length) " : "",
                      combine = "aicf::tile::combine<aicf::tile::reduce_sum<" + type + ">>(";
    first += "if (u == 0 && v == 0) " + m + ".mean = " + x + ";\n" + exists + s + "[v] = aicf::tile::add(" +
             s + "[v], aicf::tile::sub(" + x + ", " + m + ".mean));\n";
    started += m + ".start(" + combine + s +
               "), count);\n#pragma unroll\nfor (int v = 0; v < kVector; ++v) " + s + "[v] = 0;\n";
    body += exists + "aicf::tile::add_difference(" + m + ", " + x + ", " + s + "[v], " + q + "[v]);\n";
    after += n + " += " + vector_count() + ";\n";
    taken += m + ".take(" + combine + s + "), " + combine + q + "), " + n + ");\n";
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
  const std::string walk = walk_text() + inside + "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n" +
                           body + "}\n" + after + walk_end();
  if (kept_) return before + walk;
  if (!first.empty())
    first = "if (n" + std::to_string(stage.moments[0].sum) + " == 0) {\nint count = 0;\n" + walk_text() +
            column_coordinates() + shifted_text(stage) +
            "#pragma unroll\nfor (int v = 0; v < kVector; ++v) {\n" + elements + first +
            "}\ncount += " + vector_count() + ";\n" + walk_end() + started + "}\n";
  return before + "{\nconstexpr int kAtOnce = " + std::to_string(at_once(stage, axis(), vector_, INFINITY)) +
         ";\nfor (Index start = " + (splits_ > 1 ? "begin + " : "") +
         "Index(lane) * kVector; start < length; start += kAtOnce * kGroup * kVector) {\n" + arrays +
         (loads.empty() ? "" : walk_text() + column_coordinates() + loads + walk_end()) + first + walk +
         taken + "}\n}\n";
}

std::string RowsWriter::shifted_text(const Stage& stage) const {
  std::string text;
  for (size_t view : loaded_views(stage.elements)) {
    if (!shifted(view)) continue;
    const std::string number = std::to_string(view);
    text += "const auto z" + number + " = x" + number + (kept_ ? "[k]" : "[u]") + ".vector();\n";
  }
  return text;
}

std::string RowsWriter::vector_text(size_t view, const std::string& x) {
  if (fetched(view)) return "aicf::tile::load<16>(" + x + ", row" + std::to_string(view) + " + c);\n";
  return load_text(view, axis(), x, offset_text(view), left());
}

std::string RowsWriter::element_text(int number, int id) {
  const TileValue& v = value(id);
  const std::string kept = "h" + std::to_string(id) + "[k][v]";
  if (revived(number, id)) return tile_definition(values_, id, kept);
  const std::string from = tile_expression_of(number, id, v);
  const std::string text = tile_definition(values_, id, from);
  return keeps(id) ? text + kept + " = v" + std::to_string(id) + ";\n" : text;
}

bool RowsWriter::powers_for_halves(int number, const TileValue& v) const {
  if (kept_ || v.op != TileOp::exp || !v.stored_in_halves) return false;
  const TileValue& difference = value(v.args[0]);
  return stages_[static_cast<size_t>(number)].reductions.empty() && difference.op == TileOp::sub &&
         value(difference.args[1]).op == TileOp::reduce_max;
}

std::string RowsWriter::tile_expression_of(int number, int id, const TileValue& v) const {
  if (v.op == TileOp::inner_index) return value_type(id) + "(c + v)";
  if (powers_for_halves(number, v)) return "aicf::tile::exp_half(" + tile_reference(values_, v.args[0]) + ")";
  if (v.op != TileOp::load) return tile_expression(values_, id);
  const auto view = static_cast<size_t>(v.operand);
  const std::string name = std::to_string(view);
  return lane_text(view, axis(), shifted(view) ? "z" + name : "x" + name + (kept_ ? "[k]" : "[u]"));
}

std::string RowsWriter::reduce_group(int id, const std::string& own) {
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

std::string RowsWriter::finish_reduction(int id) {
  const std::string number = std::to_string(id);
  if (in_order(id)) {
    const std::string items = "<" + operation(id) + ", " + std::to_string(group_) + ">(r" + number;
    if (group_ <= 32) return tile_definition(values_, id, "aicf::tile::reduce_items" + items + ")");
    return "__shared__ " + value_type(id) + " s" + number + "[kItems * " + std::to_string(group_ / 32) +
           "];\n" +
           tile_definition(values_, id, "aicf::tile::reduce_block_items" + items + ", s" + number + ")");
  }
  const std::string text = reduce_group(id, "aicf::tile::combine<" + operation(id) + ">(r" + number + ")");
  if (splits_ == 1) return text;
  return text + "if (lane == 0) " + partial_text(id, rows_, splits_) + "[row_number * kSplits + split] = v" +
         number + ";\n";
}

std::string RowsWriter::reduce_moments(const TileMoments& moments) {
  const std::string number = std::to_string(moments.sum), type = value_type(moments.sum);
  return "__shared__ " + type + " t" + number + "[" + std::to_string(moments_room()) +
         "];\naicf::tile::reduce_moments<1, kGroup>(m" + number + ", " + type + "(n" + number + "), t" +
         number + ");\n";
}

std::string RowsWriter::moments_part(const TileMoments& moments, const std::string& number,
                                     const std::string& split) {
  const std::string place = partial_text(number == "squares" ? moments.squares : moments.sum, rows_, splits_);
  return place + "[" + (number == "low" ? "Size(" + offsets_.number(rows_) + ") * kSplits + " : "") +
         "row_number * kSplits + " + split + "]";
}

std::string RowsWriter::finish_moments(const TileMoments& moments) {
  const std::string m = "m" + std::to_string(moments.sum) + "[0]", type = value_type(moments.sum);
  std::string text = reduce_moments(moments);
  if (splits_ == 1)
    return text + tile_definition(values_, moments.sum, m + ".sum(" + type + "(length))") +
           tile_definition(values_, moments.squares, m + ".squares");
  text += "if (lane == 0) {\n";
  for (const std::string number : {"mean", "low", "squares"})
    text += moments_part(moments, number, "split") + " = " + m + "." + number + ";\n";
  return text + "}\n";
}

std::string RowsWriter::complete_moments_text(const TileMoments& moments) {
  const std::string number = std::to_string(moments.sum), type = value_type(moments.sum), n = "n" + number,
                    m = "m" + number, length = offsets_.number(length_),
                    chunk = offsets_.number(split_length());
  std::string text = "aicf::tile::Moments<" + type + "> " + m + "[1];\n" + type + " " + n +
                     " = 0;\nfor (int i = lane; i < int(kSplits); i += kGroup) {\naicf::tile::Moments<" +
                     type + "> part[1];\n";
  for (const std::string field : {"mean", "low", "squares"})
    text += "part[0]." + field + " = " + moments_part(moments, field, "i") + ";\n";
  text += "const Index left = " + length + " - Index(i) * " + chunk + ";\nconst " + type +
          " count = " + type + "(left < 0 ? 0 : left < " + chunk + " ? left : " + chunk +
          ");\naicf::tile::merge(" + m + ", " + n + ", part, count);\n" + n + " = aicf::tile::add(" + n +
          ", count);\n}\n" + reduce_moments(moments);
  return text + tile_definition(values_, moments.sum, m + "[0].sum(" + type + "(" + length + "))") +
         tile_definition(values_, moments.squares, m + "[0].squares");
}

std::string RowsWriter::complete_text(int id) {
  const std::string number = std::to_string(id);
  return value_type(id) + " r" + number + " = " + operation(id) +
         "::neutral();\nfor (int i = lane; i < int(kSplits)" + "; i += kGroup) r" + number + " = " +
         operation(id) + "::apply(r" + number + ", " + partial_text(id, rows_, splits_) +
         "[row_number * kSplits + i]);\n" + reduce_group(id, "r" + number);
}

}  // namespace aicf
