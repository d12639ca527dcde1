#include "plan/plan_json.h"

#include <nlohmann/json.hpp>

#include "base/error.h"

namespace aicf {
namespace {

// ordered_json keeps the members as written, so equal plans give equal bytes.
using Json = nlohmann::ordered_json;
// Reading needs no order, and looking members up by a tree bounds what an object of a million members can
// cost.
using Parsed = nlohmann::json;

UserError malformed(const std::string& why) {
  return UserError(ErrorCode::kU_bad_artifact, "the plan section is malformed")
      .with_actual(why)
      .with_remedy("compile the model again");
}

Json dim_json(const Dim& dim) {
  return dim.is_constant() ? Json(dim.constant_part()) : Json(dim.to_string());
}

// Whole numbers only: a fraction or a number beyond 63 bits would be converted to something else without a
// word.
int64_t integer_from(const Parsed& json) {
  if (!json.is_number_integer() || (json.is_number_unsigned() && json.get<uint64_t>() > INT64_MAX))
    throw malformed("a number is not a whole number of 63 bits");
  return json.get<int64_t>();
}

// A model's longest expressions have a few hundred characters; the work of reading one grows faster than its
// length.
constexpr size_t kMaxExpression = 16384;

Dim dim_from(const Parsed& json) {
  if (!json.is_string()) return Dim(integer_from(json));
  const std::string& text = json.get_ref<const std::string&>();
  if (text.size() > kMaxExpression) throw malformed("a size expression is too long");
  return Dim::parse(text);
}

Json dims_json(const std::vector<Dim>& dims) {
  Json list = Json::array();
  for (const Dim& dim : dims) list.push_back(dim_json(dim));
  return list;
}

std::vector<Dim> dims_from(const Parsed& json) {
  std::vector<Dim> dims;
  for (const Parsed& item : json) dims.push_back(dim_from(item));
  return dims;
}

DType dtype_from(const Parsed& json) {
  const auto dtype = dtype_from_name(json.get_ref<const std::string&>());
  if (!dtype) throw malformed("unknown dtype");
  return *dtype;
}

template <typename T>
T number_from(const Parsed& json) {
  const auto value = integer_from(json);
  if (value < std::numeric_limits<T>::min() || value > std::numeric_limits<T>::max())
    throw malformed("a number is out of range");
  return static_cast<T>(value);
}

// Instructions and types are written by name, so a later version may add some without renumbering.
TileOp tile_op_from(const Parsed& json) {
  const std::string& name = json.get_ref<const std::string&>();
  const auto op = find_tile_op(name);
  if (!op) throw malformed("unknown instruction " + name);
  return *op;
}

TileType tile_type_from(const Parsed& json) {
  const std::string& name = json.get_ref<const std::string&>();
  const auto type = tile_type_from_name(name);
  if (!type) throw malformed("unknown register type " + name);
  return *type;
}

Json ref_json(const TensorRef& ref) {
  return {{"buffer", ref.buffer},
          {"dtype", std::string(dtype_name(ref.dtype))},
          {"offset", dim_json(ref.offset)},
          {"sizes", dims_json(ref.sizes)},
          {"strides", dims_json(ref.strides)}};
}

TensorRef ref_from(const Parsed& json) {
  return {number_from<int32_t>(json.at("buffer")), dtype_from(json.at("dtype")), dim_from(json.at("offset")),
          dims_from(json.at("sizes")), dims_from(json.at("strides"))};
}

Json refs_json(const std::vector<TensorRef>& refs) {
  Json list = Json::array();
  for (const TensorRef& ref : refs) list.push_back(ref_json(ref));
  return list;
}

std::vector<TensorRef> refs_from(const Parsed& json) {
  std::vector<TensorRef> refs;
  for (const Parsed& item : json) refs.push_back(ref_from(item));
  return refs;
}

// Floats travel as their bit patterns: JSON has no NaN or infinity.
Json float_json(double value) {
  int64_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

double float_from(const Parsed& json) {
  const auto bits = integer_from(json);
  double value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

Json instr_json(const TileInstr& i) {
  return {std::string(tile_op_info(i.op).name),
          std::string(tile_type_name(i.type)),
          i.dst,
          i.a,
          i.b,
          i.c,
          i.operand,
          float_json(i.imm_f),
          i.imm_i};
}

TileInstr instr_from(const Parsed& json) {
  TileInstr i{};
  i.op = tile_op_from(json.at(0));
  i.type = tile_type_from(json.at(1));
  i.dst = number_from<int16_t>(json.at(2));
  i.a = number_from<int16_t>(json.at(3));
  i.b = number_from<int16_t>(json.at(4));
  i.c = number_from<int16_t>(json.at(5));
  i.operand = number_from<int16_t>(json.at(6));
  i.imm_f = float_from(json.at(7));
  i.imm_i = integer_from(json.at(8));
  return i;
}

Json program_json(const TileProgram& program) {
  Json inputs = Json::array(), outputs = Json::array(), registers = Json::array(), scalars = Json::array(),
       stages = Json::array();
  for (DType dtype : program.inputs) inputs.push_back(std::string(dtype_name(dtype)));
  for (DType dtype : program.outputs) outputs.push_back(std::string(dtype_name(dtype)));
  for (const TileRegister& r : program.registers)
    registers.push_back({std::string(tile_type_name(r.type)), r.row});
  for (TileType type : program.scalars) scalars.push_back(std::string(tile_type_name(type)));
  for (const auto& stage : program.stages) {
    Json list = Json::array();
    for (const TileInstr& instr : stage) list.push_back(instr_json(instr));
    stages.push_back(std::move(list));
  }
  return {{"inputs", inputs},
          {"outputs", outputs},
          {"registers", registers},
          {"scalars", scalars},
          {"stages", stages}};
}

TileProgram program_from(const Parsed& json) {
  TileProgram program;
  for (const Parsed& item : json.at("inputs")) program.inputs.push_back(dtype_from(item));
  for (const Parsed& item : json.at("outputs")) program.outputs.push_back(dtype_from(item));
  for (const Parsed& item : json.at("registers"))
    program.registers.push_back({tile_type_from(item.at(0)), item.at(1).get<bool>()});
  for (const Parsed& item : json.at("scalars")) program.scalars.push_back(tile_type_from(item));
  for (const Parsed& stage : json.at("stages")) {
    program.stages.emplace_back();
    for (const Parsed& item : stage) program.stages.back().push_back(instr_from(item));
  }
  return program;
}

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

Buffer buffer_from(const Parsed& json) {
  Buffer b;
  const std::string& kind = json.at("kind").get_ref<const std::string&>();
  bool known = false;
  for (int k = 0; k <= static_cast<int>(BufferKind::kArena); ++k)
    if (buffer_kind_name(static_cast<BufferKind>(k)) == kind)
      b.kind = static_cast<BufferKind>(k), known = true;
  if (!known) throw malformed("unknown buffer kind " + kind);
  b.name = json.at("name").get<std::string>();
  b.bytes = dim_from(json.at("bytes"));
  b.max_bytes = integer_from(json.at("max_bytes"));
  b.offset = integer_from(json.at("offset"));
  b.first_step = number_from<int32_t>(json.at("first_step"));
  b.last_step = number_from<int32_t>(json.at("last_step"));
  b.note = json.at("note").get<std::string>();
  return b;
}

Json floats_json(const std::vector<double>& values) {
  Json json = Json::array();
  for (double v : values) json.push_back(float_json(v));
  return json;
}

std::vector<double> floats_from(const Parsed& json) {
  std::vector<double> values;
  for (const Parsed& item : json) values.push_back(float_from(item));
  return values;
}

Json launch_json(const CudaLaunch& launch) {
  Json maps = Json::array();
  for (const TensorMapSpec& map : launch.tensor_maps)
    maps.push_back({{"operand", map.operand},
                    {"axes", map.axes},
                    {"box", map.box},
                    {"swizzle_bytes", map.swizzle_bytes},
                    {"steps", map.steps}});
  return {{"function", launch.function},
          {"grid", dims_json({launch.grid.begin(), launch.grid.end()})},
          {"block", launch.block},
          {"cluster", launch.cluster},
          {"shared_bytes", launch.shared_bytes},
          {"params", dims_json(launch.params)},
          {"fparams", floats_json(launch.fparams)},
          {"tensor_maps", maps},
          {"early_inputs", launch.early_inputs},
          {"reports_errors", launch.reports_errors}};
}

std::vector<int32_t> numbers_from(const Parsed& json) {
  std::vector<int32_t> values;
  for (const Parsed& item : json) values.push_back(number_from<int32_t>(item));
  return values;
}

CudaLaunch launch_from(const Parsed& json) {
  CudaLaunch launch;
  launch.function = json.at("function").get<std::string>();
  const std::vector<Dim> grid = dims_from(json.at("grid"));
  if (grid.size() != launch.grid.size()) throw malformed("a grid does not have three sizes");
  std::copy(grid.begin(), grid.end(), launch.grid.begin());
  launch.block = number_from<int32_t>(json.at("block"));
  launch.cluster = number_from<int32_t>(json.at("cluster"));
  launch.shared_bytes = integer_from(json.at("shared_bytes"));
  launch.params = dims_from(json.at("params"));
  launch.fparams = floats_from(json.at("fparams"));
  for (const Parsed& item : json.at("tensor_maps"))
    launch.tensor_maps.push_back({number_from<int32_t>(item.at("operand")), numbers_from(item.at("axes")),
                                  numbers_from(item.at("box")),
                                  number_from<int32_t>(item.at("swizzle_bytes")),
                                  numbers_from(item.at("steps"))});
  if (json.contains("early_inputs")) launch.early_inputs = numbers_from(json.at("early_inputs"));
  launch.reports_errors = json.at("reports_errors").get<bool>();
  return launch;
}

Json step_json(const Step& s) {
  Json json = {{"kernel", s.kernel},
               {"inputs", refs_json(s.inputs)},
               {"outputs", refs_json(s.outputs)},
               {"params", dims_json(s.params)},
               {"fparams", floats_json(s.fparams)},
               {"program", s.program},
               {"origin", s.origin},
               {"reason", s.reason}};
  if (!s.variant.empty()) json["variant"] = s.variant;
  if (!s.library.call.empty())
    json["library"] = {{"call", s.library.call}, {"workspace", s.library.workspace}};
  if (!s.bodies.empty()) json["bodies"] = s.bodies;
  for (const StepMember& member : s.members)
    json["members"].push_back({{"kernel", member.kernel},
                               {"variant", member.variant},
                               {"origin", member.origin},
                               {"stage", member.stage},
                               {"inputs", member.inputs},
                               {"outputs", member.outputs}});
  if (s.module < 0) return json;
  json["module"] = s.module;
  json["launches"] = Json::array();
  for (const CudaLaunch& launch : s.launches) json["launches"].push_back(launch_json(launch));
  return json;
}

Step step_from(const Parsed& json) {
  Step s;
  s.kernel = json.at("kernel").get<std::string>();
  s.inputs = refs_from(json.at("inputs"));
  s.outputs = refs_from(json.at("outputs"));
  s.params = dims_from(json.at("params"));
  s.fparams = floats_from(json.at("fparams"));
  s.program = number_from<int32_t>(json.at("program"));
  s.origin = json.at("origin").get<std::string>();
  s.reason = json.at("reason").get<std::string>();
  if (json.contains("library")) {
    s.library.call = json.at("library").at("call").get<std::string>();
    s.library.workspace = number_from<int32_t>(json.at("library").at("workspace"));
  }
  if (json.contains("variant")) s.variant = json.at("variant").get<std::string>();
  if (json.contains("bodies")) s.bodies = numbers_from(json.at("bodies"));
  if (json.contains("members"))
    for (const Parsed& item : json.at("members"))
      s.members.push_back({item.at("kernel").get<std::string>(), item.at("variant").get<std::string>(),
                           item.at("origin").get<std::string>(), number_from<int32_t>(item.at("stage")),
                           numbers_from(item.at("inputs")), numbers_from(item.at("outputs"))});
  if (!json.contains("module")) return s;
  s.module = number_from<int32_t>(json.at("module"));
  for (const Parsed& item : json.at("launches")) s.launches.push_back(launch_from(item));
  return s;
}

Json elements_json(const Array& array) {
  Json json = Json::array();
  for (int64_t i = 0; i < array.count(); ++i)
    json.push_back(is_float(array.dtype()) ? float_json(array.get_f64(i)) : Json(array.get_i64(i)));
  return json;
}

Array elements_from(const Parsed& json, DType dtype, const Shape& shape) {
  const std::vector<int64_t> sizes = evaluate(shape, {});
  if (!json.is_array() || static_cast<int64_t>(json.size()) != element_count(sizes))
    throw malformed("an input's value does not have its size");
  Array array(dtype, sizes);
  for (int64_t i = 0; i < array.count(); ++i) {
    const Parsed& item = json[static_cast<size_t>(i)];
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
                    {"dtype", std::string(dtype_name(io.dtype))},
                    {"sizes", dims_json(io.sizes)},
                    {"buffer", io.buffer}});
    if (io.only_value.data() != nullptr) json.back()["only_value"] = elements_json(io.only_value);
  }
  return json;
}

std::vector<IoTensor> io_from(const Parsed& json) {
  std::vector<IoTensor> list;
  for (const Parsed& item : json) {
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

SymbolRanges ranges_from(const Parsed& json) {
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
               {"buffers", buffers},
               {"steps", steps},
               {"arena_bytes", entry.arena_bytes}};
  if (!entry.bucket.empty()) json["bucket"] = ranges_json(entry.bucket);
  return json;
}

EntryPlan entry_from(const Parsed& json) {
  EntryPlan entry;
  entry.name = json.at("name").get<std::string>();
  entry.inputs = io_from(json.at("inputs"));
  entry.outputs = io_from(json.at("outputs"));
  for (const Parsed& item : json.at("buffers")) entry.buffers.push_back(buffer_from(item));
  for (const Parsed& item : json.at("steps")) entry.steps.push_back(step_from(item));
  entry.arena_bytes = integer_from(json.at("arena_bytes"));
  if (json.contains("bucket")) entry.bucket = ranges_from(json.at("bucket"));
  return entry;
}

Plan plan_from(const Parsed& json) {
  Plan plan;
  plan.sizes = ranges_from(json.at("sizes"));
  for (const Parsed& item : json.at("variables"))
    plan.variables.push_back({item.at("name").get<std::string>(), dtype_from(item.at("dtype")),
                              dims_from(item.at("sizes")), item.at("is_state").get<bool>()});
  for (const Parsed& item : json.at("programs")) plan.programs.push_back(program_from(item));
  for (const Parsed& item : json.at("entries")) plan.entries.push_back(entry_from(item));
  for (const auto& [member, list] : {std::pair("buckets", &plan.buckets), std::pair("bodies", &plan.bodies)})
    if (json.contains(member))
      for (const Parsed& item : json.at(member)) list->push_back(entry_from(item));
  plan.packed_bytes = integer_from(json.at("packed_bytes"));
  if (json.contains("modules")) plan.modules = number_from<int32_t>(json.at("modules"));
  return plan;
}

}  // namespace

std::string plan_to_json(const Plan& plan) {
  Json variables = Json::array(), programs = Json::array(), entries = Json::array();
  for (const PlanVariable& v : plan.variables)
    variables.push_back({{"name", v.name},
                         {"dtype", std::string(dtype_name(v.dtype))},
                         {"sizes", dims_json(v.sizes)},
                         {"is_state", v.is_state}});
  for (const TileProgram& program : plan.programs) programs.push_back(program_json(program));
  for (const EntryPlan& entry : plan.entries) entries.push_back(entry_json(entry));
  Json json = {{"sizes", ranges_json(plan.sizes)},
               {"variables", variables},
               {"programs", programs},
               {"entries", entries},
               {"packed_bytes", plan.packed_bytes}};
  for (const auto& [member, list] : {std::pair("buckets", &plan.buckets), std::pair("bodies", &plan.bodies)})
    for (const EntryPlan& entry : *list) json[member].push_back(entry_json(entry));
  if (plan.modules > 0) json["modules"] = plan.modules;
  return json.dump();
}

Plan plan_from_json(std::string_view text) {
  try {
    return plan_from(Parsed::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw malformed(error.what());
  }
}

}  // namespace aicf
