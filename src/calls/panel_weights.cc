// Which weights are stored in panels of 64 rows of K (kPanelDepth): those that products of few rows read,
// whose time is that of their weights, if nothing reads them in another form. One step of init lays them out;
// the products' tiles, sums and bits stay.
#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "calls/call_code.h"
#include "calls/call_forms.h"
#include "calls/rules.h"
#include "select/layout.h"
#include "select/region_codegen.h"

namespace aicf {
namespace {

constexpr int64_t kMostRows = 256;  // 512 rows of 4,096 x 4,096 take 28.4 us on an H100 either way

bool is_known(const Window& w) {
  return w.offset.is_constant() && are_constant(w.sizes) && are_constant(w.strides);
}

// A matrix [K, N] as [K / 64, N, 64].
Window by_panels(const Window& y) {
  const Dim depth(kPanelDepth);
  Window split = y;
  split.sizes = {*divide_exactly(y.sizes[0], depth), y.sizes[1], depth};
  split.strides = {y.strides[0] * depth, y.strides[1], y.strides[0]};
  return split;
}

// The product of a call: of one with a prologue, the second member.
const KernelCall& panel_product(const KernelCall& call) {
  const auto* joined = std::get_if<PrologueFusion>(&call.what);
  return joined != nullptr ? *joined->consumer : call;
}

// Who reads the weights of all graphs, by the weights' names.
struct Readers {
  std::set<std::string> wanted;                            // by products of few rows
  std::map<std::string, std::string> otherwise;            // in another form than panels: by whom
  std::vector<std::pair<std::string, std::string>> pairs;  // in one form, by one call
  struct Matrices {
    std::vector<Window> windows;  // different ones, without their roots
    int64_t elements;             // of the weight
  };
  std::map<std::string, Matrices> matrices;

  void add_matrix(const std::string& name, Window w, int64_t elements) {
    w.root = kNoValue;
    Matrices& known = matrices.emplace(name, Matrices{{}, elements}).first->second;
    add_once({w}, known.windows);
  }

  // What all readers can read in panels, without taking more memory than the weights.
  std::set<std::string> names() const {
    std::set<std::string> left;
    for (const auto& [name, reader] : otherwise) left.insert(name);
    for (const auto& [name, all] : matrices)
      if (takes_more(all)) left.insert(name);
    left = with_others(std::move(left));
    const std::set<std::string> all = with_others(wanted);
    std::set<std::string> names;
    std::set_difference(all.begin(), all.end(), left.begin(), left.end(), std::inserter(names, names.end()));
    return names;
  }
  // Why a weight is none of these.
  std::string why_not(const std::string& name) const {
    const auto reader = otherwise.find(name), none = otherwise.end();
    if (reader != none) return "'" + name + "' is read in another form by " + reader->second;
    return "'" + name +
           (takes_more(matrices.at(name)) ? "' would take more memory" : "' has a part that is not");
  }

 private:
  static bool takes_more(const Matrices& all) {
    int64_t count = 0;
    for (const Window& w : all.windows) count += *element_count(w.sizes).constant();
    return count > all.elements;
  }
  // And those of which one is there in a pair.
  std::set<std::string> with_others(std::set<std::string> names) const {
    for (size_t known = 0; known != names.size();) {
      known = names.size();
      for (const auto& [one, other] : pairs) {
        if (names.contains(one)) names.insert(other);
        if (names.contains(other)) names.insert(one);
      }
    }
    return names;
  }
};

class GraphPanels {
 public:
  explicit GraphPanels(const RuleSite& site)
      : site_(site), all_(site.graph), target_(site.target), calls_(all_.calls) {
    for (size_t i = 0; i < all_.init_calls.size(); ++i)
      for (const Window& w : all_.init_calls[i].outputs) writers_[w.root].push_back(i);
  }

  void collect(Readers& readers) const {
    for (const KernelCall& call : calls_) {
      const bool able = takes_panels(panel_product(call));
      std::vector<std::string> matrices;
      for (size_t i = 0; i < call.inputs.size(); ++i) {
        const Window& w = call.inputs[i];
        const std::string name = all_.name_of(w.root);
        if (!able || !is_matrix(call, i)) {
          readers.otherwise.emplace(name, quoted(call));
          continue;
        }
        readers.add_matrix(name, w, elements_of(w.root));
        matrices.push_back(name);
        if (has_few_rows(call)) readers.wanted.insert(name);
      }
      if (matrices.size() > 1) readers.pairs.emplace_back(matrices[0], matrices[1]);
    }
    for (const KernelCall& call : all_.init_calls)
      for (const Window& w : call.inputs) readers.otherwise.emplace(all_.name_of(w.root), quoted(call));
    for (const ValueId root : all_.output_roots) readers.otherwise.emplace(all_.name_of(root), "the caller");
  }

  void store(const std::set<std::string>& names, const Readers& readers) {
    for (KernelCall& call : calls_)
      for (size_t i = 1; is_matrix(call, i); ++i) {
        const std::string name = all_.name_of(call.inputs[i].root);
        if (!names.contains(name)) {
          if (readers.wanted.contains(name))
            site_.report({&call}, false, "not in panels: " + readers.why_not(name));
          continue;
        }
        call.inputs[i] = stored(call.inputs[i], call.origins);
        if (auto* joined = std::get_if<PrologueFusion>(&call.what))
          joined->consumer->inputs[i] = call.inputs[i];
        site_.report({&call}, true, "reads '" + name + "' in panels");
      }
  }

 private:
  static bool is_matrix(const KernelCall& call, size_t input) {
    const RowCall* row = own_row(panel_product(call));
    const int matrices = row == nullptr ? 0 : facts_of(row->row).panel_matrices;
    return input > 0 && input < call.inputs.size() && input <= static_cast<size_t>(matrices);
  }

  // A product that can read panels as it is: in the same tiles, which only the copy engine loads.
  bool takes_panels(const KernelCall& call) const {
    const RowCall* row = row_call(call);
    if (row == nullptr || facts_of(row->row).panel_matrices == 0 || !multiplies_by_wgmma(row->way) ||
        call.outputs[0].sizes.size() != 2)
      return false;
    KernelCall turned = call;
    for (size_t i = 1; is_matrix(call, i); ++i) {
      if (!can_store(call.inputs[i])) return false;
      turned.inputs[i] = panels_of(call.inputs[i], call.inputs[i].root);
    }
    const CudaProblem problem = call_problem(turned, context_of(all_, target_));
    return has_way(cuda_variants(*find_cuda_kernel(row->row), problem), row->way);
  }

  int64_t elements_of(ValueId root) const { return *element_count(all_.type_of(root).shape).constant(); }

  bool has_few_rows(const KernelCall& call) const {
    return bounds(call.outputs[0].sizes[0], all_.ranges).hi <= kMostRows;
  }

  // Whether init can lay out this matrix of a weight in panels.
  bool can_store(const Window& y) const {
    if (y.sizes.size() != 2 || !is_known(y) || !divide_exactly(y.sizes[0], Dim(kPanelDepth)) ||
        !all_.constant[static_cast<size_t>(y.root)] || all_.name_of(y.root).empty())
      return false;
    return !all_.is_extra(y.root) || parts_of(y).has_value();
  }

  // What init copies together, if it is the whole of this matrix and its parts are columns.
  struct ColumnCopy {
    size_t call;  // of init
    Window from, to;
  };
  std::optional<std::vector<ColumnCopy>> parts_of(const Window& y) const {
    std::vector<ColumnCopy> parts;
    if (!(y.offset == Dim(0)) || !(element_count(y.sizes) == element_count(all_.type_of(y.root).shape)))
      return std::nullopt;
    const auto writers = writers_.find(y.root);
    if (writers == writers_.end()) return parts;
    for (const size_t i : writers->second) {
      const std::optional<ColumnCopy> part = is_copy(all_.init_calls[i]) ? columns_of(i, y) : std::nullopt;
      if (!part) return std::nullopt;
      parts.push_back(*part);
    }
    return parts;
  }
  bool is_copy(const KernelCall& call) const {
    if (!is_region(call) || call.inputs.size() != 1 || call.outputs.size() != 1) return false;
    const auto region = static_cast<size_t>(row_call(call)->programs[0].index);
    return region < all_.regions.size() && all_.regions[region].body.nodes().empty();
  }
  // A step of init that copies some columns of y, as a copy to panels.
  std::optional<ColumnCopy> columns_of(size_t at, const Window& y) const {
    const Window &from = all_.init_calls[at].inputs[0], &to = all_.init_calls[at].outputs[0];
    if (to.sizes.size() != 2 || from.sizes != to.sizes || !is_known(from) || !is_known(to))
      return std::nullopt;
    const size_t k = to.strides[0] == y.strides[0] ? 0 : 1;
    const std::optional<Dim> first = divide_exactly(to.offset, y.strides[1]);
    if (!(to.strides[k] == y.strides[0]) || !(to.strides[1 - k] == y.strides[1]) ||
        !(to.sizes[k] == y.sizes[0]) || !first)
      return std::nullopt;
    ColumnCopy part{at, by_panels(k == 0 ? from : swap_last_axes(from)), panels_of(y, y.root)};
    part.to.offset = *first * Dim(kPanelDepth);
    part.to.sizes = part.from.sizes;
    return part;
  }

  static Window panels_of(const Window& y, ValueId root) {
    return row_major_window(root, {y.dtype, by_panels(y).sizes});
  }

  // The window of this matrix in panels, which steps of init fill.
  Window stored(const Window& y, const std::vector<std::string>& origins) {
    auto& known = panels_[y.root];
    for (const auto& [matrix, stored] : known)
      if (matrix == y) return stored;
    Window panels = panels_of(y, y.root);
    if (all_.is_extra(y.root)) {
      const std::vector<ColumnCopy> parts = *parts_of(y);
      for (const ColumnCopy& part : parts) {
        KernelCall& call = all_.init_calls[part.call];
        call = copy_call(part.from, part.to, call.origins);
      }
      all_.extra[static_cast<size_t>(y.root - all_.graph.value_count())].type = {y.dtype, panels.sizes};
    } else {
      panels.root = all_.add_extra(
          {ExtraValue::Kind::kPacked, {y.dtype, panels.sizes}, "panels of " + all_.name_of(y.root)});
      all_.init_calls.push_back(copy_call(by_panels(y), panels, origins));
    }
    known.emplace_back(y, panels);
    return panels;
  }

  KernelCall copy_call(const Window& from, const Window& to, const std::vector<std::string>& origins) const {
    Region region;
    region.full_shape = to.sizes;
    region.body.add_output(region.body.add_input("x", {from.dtype, to.sizes}), "y");
    KernelCall call;
    const Schedule schedule{static_cast<int>(to.sizes.size()), {0, 1, 2}};
    call.inputs = {from};
    call.outputs = {to};
    call.what = region_row(schedule, static_cast<int>(all_.programs.size()));
    call.origins = origins;
    call.reason = "weights in panels at load";
    all_.programs.push_back(generate_tile_program(region, schedule));
    check_tile_program(all_.programs.back());
    return call;
  }

  const RuleSite site_;
  CallGraph& all_;
  const Target& target_;
  std::vector<KernelCall>& calls_;
  std::map<ValueId, std::vector<size_t>> writers_;  // by root: steps of init
  // By root: matrices as the products read them before, and in panels.
  std::map<ValueId, std::vector<std::pair<Window, Window>>> panels_;
};

}  // namespace

void panel_weights(const ProgramSite& site) {
  std::vector<GraphPanels> panels;
  for (CallGraph& graph : site.program.graphs) panels.emplace_back(site.site_of(graph));
  Readers readers;
  for (const GraphPanels& graph : panels) graph.collect(readers);
  const std::set<std::string> names = readers.names();
  for (GraphPanels& graph : panels) graph.store(names, readers);
}

}  // namespace aicf
