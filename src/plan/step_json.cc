#include "plan/step_json.h"

namespace aicf {
namespace {

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

CudaLaunch launch_from(const ParsedJson& json) {
  CudaLaunch launch;
  launch.function = json.at("function").get<std::string>();
  const std::vector<Dim> grid = dims_from(json.at("grid"));
  if (grid.size() != launch.grid.size()) throw malformed_plan("a grid does not have three sizes");
  std::copy(grid.begin(), grid.end(), launch.grid.begin());
  launch.block = number_from<int32_t>(json.at("block"));
  launch.cluster = number_from<int32_t>(json.at("cluster"));
  launch.shared_bytes = integer_from(json.at("shared_bytes"));
  launch.params = dims_from(json.at("params"));
  launch.fparams = floats_from(json.at("fparams"));
  for (const ParsedJson& item : json.at("tensor_maps"))
    launch.tensor_maps.push_back({number_from<int32_t>(item.at("operand")), numbers_from(item.at("axes")),
                                  numbers_from(item.at("box")),
                                  number_from<int32_t>(item.at("swizzle_bytes")),
                                  numbers_from(item.at("steps"))});
  if (json.contains("early_inputs")) launch.early_inputs = numbers_from(json.at("early_inputs"));
  launch.reports_errors = json.at("reports_errors").get<bool>();
  return launch;
}

}  // namespace

Json step_json(const Step& s) {
  Json json = {{"kernel", s.kernel},
               {"inputs", refs_json(s.inputs)},
               {"outputs", refs_json(s.outputs)},
               {"params", dims_json(s.params)},
               {"fparams", floats_json(s.fparams)},
               {"program", s.program},
               {"origin", s.origin},
               {"reason", ""}};  // version 1 asks for one
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
  if (s.lane.number != 0) json["lane"] = s.lane.number;
  if (!s.lane.joins.empty()) json["joins"] = s.lane.joins;
  if (s.module < 0) return json;
  json["module"] = s.module;
  json["launches"] = Json::array();
  for (const CudaLaunch& launch : s.launches) json["launches"].push_back(launch_json(launch));
  return json;
}

Step step_from(const ParsedJson& json) {
  Step s;
  s.kernel = json.at("kernel").get<std::string>();
  s.inputs = refs_from(json.at("inputs"));
  s.outputs = refs_from(json.at("outputs"));
  s.params = dims_from(json.at("params"));
  s.fparams = floats_from(json.at("fparams"));
  s.program = number_from<int32_t>(json.at("program"));
  s.origin = json.at("origin").get<std::string>();
  if (json.contains("library")) {
    s.library.call = json.at("library").at("call").get<std::string>();
    s.library.workspace = number_from<int32_t>(json.at("library").at("workspace"));
  }
  if (json.contains("variant")) s.variant = json.at("variant").get<std::string>();
  if (json.contains("bodies")) s.bodies = numbers_from(json.at("bodies"));
  if (json.contains("members"))
    for (const ParsedJson& item : json.at("members"))
      s.members.push_back({item.at("kernel").get<std::string>(), item.at("variant").get<std::string>(),
                           item.at("origin").get<std::string>(), number_from<int32_t>(item.at("stage")),
                           numbers_from(item.at("inputs")), numbers_from(item.at("outputs"))});
  if (json.contains("lane")) s.lane.number = number_from<int32_t>(json.at("lane"));
  if (json.contains("joins")) s.lane.joins = numbers_from(json.at("joins"));
  if (!json.contains("module")) return s;
  s.module = number_from<int32_t>(json.at("module"));
  for (const ParsedJson& item : json.at("launches")) s.launches.push_back(launch_from(item));
  return s;
}

}  // namespace aicf
