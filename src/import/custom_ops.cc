#include "import/custom_ops.h"

#include <list>
#include <map>
#include <mutex>

namespace aicf {
namespace {

struct Registry {
  std::mutex mutex;
  std::list<OnnxCustomOp> kept;  // never erased: addresses are handed out
  std::map<std::string, const OnnxCustomOp*> by_name;
};

Registry& registry() {
  static auto* const instance = new Registry;
  return *instance;
}

}  // namespace

void register_onnx_op(const std::string& name, OnnxCustomOp op) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  all.kept.push_back(std::move(op));
  all.by_name[name] = &all.kept.back();
}

const OnnxCustomOp* find_onnx_op(std::string_view domain, std::string_view op_type) {
  Registry& all = registry();
  const std::lock_guard lock(all.mutex);
  const auto at = all.by_name.find(std::string(domain) + "::" + std::string(op_type));
  return at != all.by_name.end() ? at->second : nullptr;
}

}  // namespace aicf
