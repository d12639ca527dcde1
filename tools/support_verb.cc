#include "base/printable.h"
#include "model_source.h"
#include "verbs.h"

namespace aicf::cli {

VerbRun setup_support(VerbOptions& verb) {
  auto source = std::make_shared<ModelSource>();
  verb.add_positional("model", source->path, "an .onnx model");
  verb.add_option("--dim", source->dims, "a dynamic size, as for compile");
  verb.add_option("--value", source->values, "an input whose value decides a shape, as for compile");
  verb.add_option("--result", source->results, "a result to give instead of the outputs, as for compile");
  return [source](const Console& console) {
    source->refuse_artifact();
    const std::vector<UnsupportedOp> ops = support_onnx(source->path, source->import_options());
    std::string text;
    Json list = Json::array();
    for (const UnsupportedOp& op : ops) {
      text +=
          printable_name(op.op + " ×" + std::to_string(op.count) + "  first at '" + op.first_node + "'  " + op.reason) +
          "\n";
      list.push_back(
          {{"op", op.op}, {"count", op.count}, {"first_node", op.first_node}, {"reason", op.reason}});
    }
    console.result(
        text + (ops.empty() ? "support: every op is supported\n"
                            : "support: " + std::to_string(ops.size()) + " ops are not supported\n"),
        {{"supported", ops.empty()}, {"unsupported", list}});
    return static_cast<int>(ops.empty() ? kOk : kCheckFailed);
  };
}

}  // namespace aicf::cli
