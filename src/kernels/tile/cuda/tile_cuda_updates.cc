// Updates of a scatter that a pointwise program makes where they are added up (indexing/scatter.cuh).
#include <numeric>

#include "base/error.h"
#include "kernels/tile/cuda/tile_epilogue_writer.h"

namespace aicf {
namespace {

class UpdatesWriter : public EpilogueWriter {
 public:
  UpdatesWriter(const CudaProblem& problem, size_t own_inputs, size_t update_rank,
                const std::vector<GatheredOperand>& gathered, CudaParams& params)
      : EpilogueWriter(problem, own_inputs, 0, gathered, params), rows_(1), columns_(1) {
    AICF_CHECK(program_.stages.size() == 1 && program_.outputs.size() == 1 && values_.stores.size() == 1,
               "updates are the one result of a pointwise program");
    const Shape& domain = problem.outputs[0].sizes;
    AICF_CHECK(update_rank > 0 && update_rank <= domain.size(), "an update has axes of the domain");
    rows_ = element_count(Shape(domain.end() - static_cast<std::ptrdiff_t>(update_rank), domain.end() - 1));
    columns_ = domain.back();
  }

  CudaEpilogue write() {
    std::vector<size_t> views(outputs_from());
    std::iota(views.begin(), views.end(), size_t{0});
    return struct_text("  using Element = " + std::string(cuda_type(program_.outputs[0])) + ";\n" +
                       number_function("rows", rows_) + number_function("columns", columns_) +
                       row_function() + fetch_function("Shared", views, true) +
                       fetch_function("Own", views, false) + elements_function());
  }

 private:
  std::string number_function(const std::string& name, const Dim& number) {
    return "  __device__ __forceinline__ int64_t " + name + "() const { return " + members_.number(number) +
           "; }\n";
  }

  std::string elements_function() const {
    const TileStore& store = values_.stores[0];
    const std::string type(cuda_type(program_.outputs[0]));
    std::string text = "  template <int V>\n  __device__ __forceinline__ aicf::Pack<" + type +
                       ", V> elements(const Shared<V>& shared, const Own<V>& own) const {\n" +
                       result_array(store) + "#pragma unroll\n    for (int v = 0; v < V; ++v) {\n";
    for (const int id : needed_values(values_, {stored(store)}, [](int) { return false; }))
      text += element_text(id);
    return text + result_text(store) + "    }\n    aicf::tile::Vec<" + type +
           ", V> z;\n    aicf::tile::narrow(z, y0);\n    aicf::Pack<" + type +
           ", V> made;\n#pragma unroll\n    for (int v = 0; v < V; ++v) made.at[v] = z.at[v];\n    return "
           "made;\n  }\n";
  }

  Dim rows_, columns_;
};

}  // namespace

CudaEpilogue cuda_updates(const CudaProblem& problem, size_t own_inputs, size_t update_rank,
                          const std::vector<GatheredOperand>& gathered, CudaParams& params) {
  return UpdatesWriter(problem, own_inputs, update_rank, gathered, params).write();
}

}  // namespace aicf
