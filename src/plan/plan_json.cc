#include "plan/plan_json.h"

#include <utility>

#include "base/out_of_memory.h"
#include "plan/plan_json_values.h"
#include "plan/step_json.h"
#include "plan/tile_program_json.h"

namespace aicf {
namespace {

Json buffer_json(const Buffer& b) {
  return {{"kind", std::string(buffer_kind_name(b.kind))},
          {"name", b.name},
          {"bytes", dim_json(b.bytes)},
          {"max_bytes", b.max_bytes},
          {"offset", b.offset},
          {"first_step", b.first_step},
          {"last_step", b.last_step},
          {"note", b.note}};
}

Buffer buffer_from(const ParsedJson& json) {
  Buffer b;
  const std::string& kind = json.at("kind").get_ref<const std::string&>();
  bool known = false;
  for (int k = 0; k <= static_cast<int>(BufferKind::kArena); ++k)
    if (buffer_kind_name(static_cast<BufferKind>(k)) == kind)
      b.kind = static_cast<BufferKind>(k), known = true;
  if (!known) throw malformed_plan("unknown buffer kind " + kind);
  b.name = json.at("name").get<std::string>();
  b.bytes = dim_from(json.at("bytes"));
  b.max_bytes = integer_from(json.at("max_bytes"));
  b.offset = integer_from(json.at("offset"));
  b.first_step = number_from<int32_t>(json.at("first_step"));
  b.last_step = number_from<int32_t>(json.at("last_step"));
  b.note = json.at("note").get<std::string>();
  return b;
}

Json elements_json(const Array& array) {
  Json json = Json::array();
  for (int64_t i = 0; i < array.count(); ++i)
    json.push_back(is_float(array.dtype()) ? float_json(array.get_f64(i)) : Json(array.get_i64(i)));
  return json;
}

Array elements_from(const ParsedJson& json, DType dtype, const Shape& shape) {
  const std::vector<int64_t> sizes = evaluate(shape, {});
  if (!json.is_array() || static_cast<int64_t>(json.size()) != element_count(sizes))
    throw malformed_plan("an input's value does not have its size");
  Array array(dtype, sizes);
  for (int64_t i = 0; i < array.count(); ++i) {
    const ParsedJson& item = json[static_cast<size_t>(i)];
    if (is_float(dtype)) {
      array.set_f64(i, float_from(item));
    } else {
      array.set_i64(i, integer_from(item));
    }
  }
  return array;
}

Json io_json(const std::vector<IoTensor>& list) {
  Json json = Json::array();
  for (const IoTensor& io : list) {
    json.push_back({{"name", io.name},
                    {"dtype", dtype_json(io.dtype)},
                    {"sizes", dims_json(io.sizes)},
                    {"buffer", io.buffer}});
    if (io.only_value.data() != nullptr) json.back()["only_value"] = elements_json(io.only_value);
  }
  return json;
}

std::vector<IoTensor> io_from(const ParsedJson& json) {
  std::vector<IoTensor> list;
  for (const ParsedJson& item : json) {
    IoTensor io{item.at("name").get<std::string>(), dtype_from(item.at("dtype")), dims_from(item.at("sizes")),
                number_from<int32_t>(item.at("buffer"))};
    if (item.contains("only_value")) io.only_value = elements_from(item["only_value"], io.dtype, io.sizes);
    list.push_back(std::move(io));
  }
  return list;
}

Json ranges_json(const SymbolRanges& ranges) {
  Json json = Json::object();
  for (const auto& [name, range] : ranges) json[name] = {range.lo, range.hi};
  return json;
}

SymbolRanges ranges_from(const ParsedJson& json) {
  SymbolRanges ranges;
  for (const auto& [name, range] : json.items())
    ranges[name] = {integer_from(range.at(0)), integer_from(range.at(1))};
  return ranges;
}

Json entry_json(const EntryPlan& entry) {
  Json buffers = Json::array(), steps = Json::array();
  for (const Buffer& buffer : entry.buffers) buffers.push_back(buffer_json(buffer));
  for (const Step& step : entry.steps) steps.push_back(step_json(step));
  Json json = {{"name", entry.name},
               {"inputs", io_json(entry.inputs)},
               {"outputs", io_json(entry.outputs)},
               {"buffers", std::move(buffers)},
               {"steps", std::move(steps)},
               {"arena_bytes", entry.arena_bytes}};
  if (!entry.bucket.empty()) json["bucket"] = ranges_json(entry.bucket);
  return json;
}

EntryPlan entry_from(const ParsedJson& json) {
  EntryPlan entry;
  entry.name = json.at("name").get<std::string>();
  entry.inputs = io_from(json.at("inputs"));
  entry.outputs = io_from(json.at("outputs"));
  for (const ParsedJson& item : json.at("buffers")) entry.buffers.push_back(buffer_from(item));
  for (const ParsedJson& item : json.at("steps")) entry.steps.push_back(step_from(item));
  entry.arena_bytes = integer_from(json.at("arena_bytes"));
  if (json.contains("bucket")) entry.bucket = ranges_from(json.at("bucket"));
  return entry;
}

Plan plan_from(const ParsedJson& json) {
  Plan plan;
  plan.sizes = ranges_from(json.at("sizes"));
  for (const ParsedJson& item : json.at("variables"))
    plan.variables.push_back({item.at("name").get<std::string>(), dtype_from(item.at("dtype")),
                              dims_from(item.at("sizes")), item.at("is_state").get<bool>()});
  for (const ParsedJson& item : json.at("programs")) plan.programs.push_back(program_from(item));
  for (const ParsedJson& item : json.at("entries")) plan.entries.push_back(entry_from(item));
  for (const auto& [member, list] : {std::pair("buckets", &plan.buckets), std::pair("bodies", &plan.bodies)})
    if (json.contains(member))
      for (const ParsedJson& item : json.at(member)) list->push_back(entry_from(item));
  plan.packed_bytes = integer_from(json.at("packed_bytes"));
  if (json.contains("modules")) plan.modules = number_from<int32_t>(json.at("modules"));
  return plan;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  constexpr uint64_t kLeast = 1 << 20, kOfAStep = 16 << 10;
  uint64_t steps = plan.programs.size();
  for (const auto* list : {&plan.entries, &plan.buckets, &plan.bodies})
    for (const EntryPlan& entry : *list) steps += entry.steps.size() + entry.buffers.size();
  require_room(kLeast + kOfAStep * steps, "a plan");
  Json variables = Json::array(), programs = Json::array(), entries = Json::array();
  for (const PlanVariable& v : plan.variables)
    variables.push_back({{"name", v.name},
                         {"dtype", dtype_json(v.dtype)},
                         {"sizes", dims_json(v.sizes)},
                         {"is_state", v.is_state}});
  for (const TileProgram& program : plan.programs) programs.push_back(program_json(program));
  for (const EntryPlan& entry : plan.entries) entries.push_back(entry_json(entry));
  Json json = {{"sizes", ranges_json(plan.sizes)},
               {"variables", std::move(variables)},
               {"programs", std::move(programs)},
               {"entries", std::move(entries)},
               {"packed_bytes", plan.packed_bytes}};
  for (const auto& [member, list] : {std::pair("buckets", &plan.buckets), std::pair("bodies", &plan.bodies)})
    for (const EntryPlan& entry : *list) json[member].push_back(entry_json(entry));
  if (plan.modules > 0) json["modules"] = plan.modules;
  return json.dump();
}

Plan plan_from_json(std::string_view text) {
  require_room_for_json(text.size(), "a plan");
  try {
    return plan_from(ParsedJson::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw malformed_plan(error.what());
  }
}

}  // namespace aicf
