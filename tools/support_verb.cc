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
    const OnnxSupport support = support_onnx(source->path, source->import_options());
    std::string text;
    const auto rows = [&](const std::vector<UnsupportedOp>& ops) {
      Json list = Json::array();
      for (const UnsupportedOp& op : ops) {
        text += printable_name(op.op + " ×" + std::to_string(op.count) + "  first at '" + op.first_node +
                               "'  " + op.reason) +
                "\n";
        list.push_back(
            {{"op", op.op}, {"count", op.count}, {"first_node", op.first_node}, {"reason", op.reason}});
      }
      return list;
    };
    const Json unsupported = rows(support.unsupported), of_fixed = rows(support.of_fixed_sizes);
    if (!support.of_fixed_sizes.empty()) {
      text += "these need sizes of one value each:";
      for (const auto& [name, size] : support.fixed_sizes)
        text += " --dim " + printable_name(name) + "=" + std::to_string(size);
      text += "\n";
    }
    const size_t count = support.unsupported.size();
    console.result(text + (count == 0 ? "support: every op is supported\n"
                                      : "support: " + std::to_string(count) + " ops are not supported\n"),
                   {{"supported", count == 0},
                    {"unsupported", unsupported},
                    {"of_fixed_sizes", of_fixed},
                    {"fixed_sizes", support.fixed_sizes}});
    return static_cast<int>(count == 0 ? kOk : kCheckFailed);
  };
}

}  // namespace aicf::cli
