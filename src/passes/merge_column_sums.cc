#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "passes/region_body.h"

namespace aicf {
namespace {

// What a warp or a block per row and sums in registers are good for
// (kernels/tile/cuda/tile_cuda_row_sums.cc).
constexpr int64_t kLeastRows = 2048, kLeastColumns = 128, kMostColumns = 8192, kVector = 8;
constexpr int64_t kBlock = 128;        // threads of a row, or more, where a warp's do not do
constexpr int64_t kMostElements = 32;  // of a row in one thread
constexpr int64_t kMostSums = 80;      // in one thread

int64_t elements_of_thread(int64_t columns) {
  int64_t threads = 32;
  while (columns > threads * kMostElements) threads = std::max<int64_t>(kBlock, 2 * threads);
  return (columns + threads - 1) / threads;
}

// Sums over all rows of a domain [..., columns].
struct Sums {
  RegionBody region;
  std::vector<ValueId> operands;  // by input of the region, as values of the row region's domain
};

class ColumnSumMerger {
 public:
  ColumnSumMerger(const Graph& graph, const PassContext& context)
      : graph_(graph), target_(context.target), readers_(readers_by_value(graph)) {
    merged_.resize(graph.nodes().size(), false);
  }

  Graph run() {
    GraphRewriter rewriter(graph_);
    for (size_t i = 0; i < graph_.nodes().size(); ++i) {
      if (merged_[i]) continue;
      const std::optional<RegionBody> rows = row_region(i);
      std::map<size_t, Sums> sums;
      if (rows) sums = sums_for(i, *rows);
      if (sums.empty())
        rewriter.copy(graph_.nodes()[i]);
      else
        emit(i, *rows, sums, rewriter);
    }
    return rewriter.finish();
  }

 private:
  static bool reduces_over(const Graph& body, const Ints& axes) {
    bool found = false;
    for (const Node& node : body.nodes()) {
      if (!op_info(node.op).has(kReduction)) continue;
      if (node.attrs.get_ints("axes") != axes) return false;
      found = true;
    }
    return found;
  }

  // A region with values per row, of many rows that are short enough.
  std::optional<RegionBody> row_region(size_t index) const {
    const Node& node = graph_.nodes()[index];
    if (node.op != Op::fused) return std::nullopt;
    std::optional<RegionBody> region = region_body(graph_, node, target_);
    if (!region || region->contraction) return std::nullopt;
    const Shape& domain = region_domain(*region);
    if (domain.size() < 2 || !reduces_over(region->body, {static_cast<int64_t>(domain.size()) - 1}))
      return std::nullopt;
    const auto columns = domain.back().constant(), count = element_count(domain).constant();
    const bool fits = columns && count && *columns >= kLeastColumns && *columns <= kMostColumns &&
                      *columns % kVector == 0 && *count / *columns >= kLeastRows;
    return fits ? std::move(region) : std::nullopt;
  }

  // Those that read what the region reads or gives, and nothing that is not there yet.
  std::map<size_t, Sums> sums_for(size_t index, const RegionBody& rows) const {
    std::map<size_t, Sums> found;
    size_t operands = rows.operands.size() + graph_.nodes()[index].results.size();
    int64_t in_registers = 0;
    const Shape& domain = region_domain(rows);
    for (const NodeId reader : readers_of(index, rows)) {
      const auto j = static_cast<size_t>(reader);
      if (merged_[j]) continue;
      std::optional<Sums> sums = sums_of(j, domain);
      if (!sums || !readable(*sums, index, rows)) continue;
      const size_t more = sums->operands.size() + sums->region.body.outputs().size();
      const int64_t own = static_cast<int64_t>(sums->region.body.outputs().size()) *
                          elements_of_thread(*domain.back().constant());
      if (operands + more > kMaxRegionOperands || in_registers + own > kMostSums) continue;
      operands += more, in_registers += own;
      found.emplace(j, std::move(*sums));
    }
    return found;
  }

  // The later nodes that read, perhaps as other rows, a value of the domain that the region reads or gives.
  std::set<NodeId> readers_of(size_t index, const RegionBody& rows) const {
    std::vector<ValueId> values = rows.operands;
    const std::vector<ValueId>& results = graph_.nodes()[index].results;
    values.insert(values.end(), results.begin(), results.end());
    std::set<NodeId> found;
    const auto add = [&](ValueId id) {
      const std::vector<NodeId>& readers = readers_[static_cast<size_t>(id)];
      found.insert(std::upper_bound(readers.begin(), readers.end(), static_cast<NodeId>(index)),
                   readers.end());
    };
    for (const ValueId id : values) {
      if (!(graph_.shape(id) == region_domain(rows))) continue;
      add(id);
      for (const NodeId reader : readers_[static_cast<size_t>(id)]) {
        const Node& node = graph_.node(reader);
        if (node.op == Op::reshape) add(node.results[0]);
      }
    }
    return found;
  }

  std::optional<Sums> sums_of(size_t index, const Shape& domain) const {
    const Node& node = graph_.nodes()[index];
    const bool sums = node.op == Op::fused || node.op == Op::reduce_sum;
    if (!sums) return std::nullopt;
    std::optional<RegionBody> region = region_body(graph_, node, target_);
    if (!region || region->contraction) return std::nullopt;
    const Shape& own = region_domain(*region);
    Ints outer;
    for (size_t axis = 0; axis + 1 < own.size(); ++axis) outer.push_back(static_cast<int64_t>(axis));
    if (own.size() < 2 || !(own.back() == domain.back()) || !reduces_over(region->body, outer) ||
        !gives_sums(region->body))
      return std::nullopt;
    std::vector<ValueId> operands;
    for (ValueId id : region->operands) {
      const ValueId seen = over_domain(id, own, domain);
      if (seen == kNoValue) return std::nullopt;
      operands.push_back(seen);
    }
    return Sums{std::move(*region), std::move(operands)};
  }

  // Results are sums in f32, rounded at most once.
  static bool gives_sums(const Graph& body) {
    const auto is_sum = [&](ValueId id) {
      const Node* node = body.producer(id);
      const bool cast = node != nullptr && node->op == Op::cast;
      if (cast) node = body.producer(node->operands[0]);
      if (node == nullptr || node->op != Op::reduce_sum) return false;
      if (cast && is_half(body.dtype(node->results[0]))) return false;
      const DType dtype = body.dtype(id), summed = body.dtype(node->operands[0]);
      return is_float(dtype) && dtype != DType::f64 && is_float(summed) && summed != DType::f64;
    };
    size_t sums = 0;
    for (const Node& node : body.nodes()) sums += op_info(node.op).has(kReduction) ? 1 : 0;
    return sums == body.outputs().size() && std::all_of(body.outputs().begin(), body.outputs().end(), is_sum);
  }

  // The value itself if the domains are one; of rows that are counted in another way what they are a view of.
  ValueId over_domain(ValueId id, const Shape& own, const Shape& domain) const {
    if (own == domain) return id;
    const Node* view = graph_.producer(id);
    const bool same = view != nullptr && view->op == Op::reshape && graph_.shape(id) == own &&
                      graph_.shape(view->operands[0]) == domain;
    return same ? view->operands[0] : kNoValue;
  }

  bool readable(const Sums& sums, size_t index, const RegionBody& rows) const {
    bool shares = false;
    for (ValueId id : sums.operands) {
      const Value& value = graph_.value(id);
      const bool result = value.role == Role::kTemp && value.producer == static_cast<NodeId>(index);
      if (!result && value.role == Role::kTemp && value.producer > static_cast<NodeId>(index)) return false;
      const bool known =
          result || std::find(rows.operands.begin(), rows.operands.end(), id) != rows.operands.end();
      shares = shares || (known && graph_.shape(id) == region_domain(rows));
    }
    return shares;
  }

  // Whether anything but these sums wants the value stored. Views that they alone read go with them.
  bool is_read_besides(ValueId id, const std::map<size_t, Sums>& sums) {
    const std::vector<ValueId>& outputs = graph_.outputs();
    if (std::find(outputs.begin(), outputs.end(), id) != outputs.end() ||
        std::any_of(graph_.updates().begin(), graph_.updates().end(),
                    [&](const Update& update) { return update.value == id; }))
      return true;
    std::vector<size_t> views;
    for (const NodeId reader : readers_[static_cast<size_t>(id)]) {
      const auto at = static_cast<size_t>(reader);
      if (sums.contains(at)) continue;
      const Node& node = graph_.nodes()[at];
      if (node.op != Op::reshape || is_read_besides(node.results[0], sums)) return true;
      views.push_back(at);
    }
    for (const size_t view : views) merged_[view] = true;
    return false;
  }

  void emit(size_t index, const RegionBody& rows, const std::map<size_t, Sums>& sums,
            GraphRewriter& rewriter) {
    const Node& node = graph_.nodes()[index];
    Graph body("body");
    std::vector<ValueId> operands;
    std::map<ValueId, ValueId> inner;  // by value of the graph
    const auto add = [&](const RegionBody& region, const std::vector<ValueId>& outer,
                         const std::vector<char>& stored) {
      std::vector<ValueId> inputs;
      for (size_t i = 0; i < outer.size(); ++i) {
        if (!inner.contains(outer[i])) {
          inner[outer[i]] = add_body_input(body, graph_.type(outer[i]));
          operands.push_back(outer[i]);
        }
        inputs.push_back(inner.at(outer[i]));
      }
      const std::vector<ValueId> results = inline_body(body, region.body, inputs);
      for (size_t i = 0; i < results.size(); ++i)
        if (stored[i] != 0) add_body_output(body, results[i]);
      return results;
    };
    std::vector<char> stored;
    for (ValueId id : node.results) stored.push_back(is_read_besides(id, sums) ? 1 : 0);
    const std::vector<ValueId> given = add(rows, rows.operands, stored);
    for (size_t i = 0; i < given.size(); ++i) inner[node.results[i]] = given[i];
    for (const auto& [j, each] : sums) {
      add(over(each, region_domain(rows)), each.operands,
          std::vector<char>(graph_.nodes()[j].results.size(), 1));
      merged_[j] = true;
    }
    const std::vector<ValueId> results =
        add_region(rewriter.graph(), std::move(body), rewriter.values(operands), kTileRegion, node.origin);
    size_t next = 0;
    for (size_t i = 0; i < stored.size(); ++i)
      if (stored[i] != 0) rewriter.map(node.results[i], results[next++]);
    for (const auto& [j, each] : sums)
      for (ValueId id : graph_.nodes()[j].results) {
        ValueId result = results[next++];
        if (!(rewriter.graph().shape(result) == graph_.shape(id)))
          result = rewriter.graph().add(Op::reshape, {result}, {{"shape", graph_.shape(id)}});
        rewriter.map(id, result);
      }
  }

  // The sums as they are written over the domain.
  static RegionBody over(const Sums& sums, const Shape& domain) {
    if (region_domain(sums.region) == domain) return sums.region;
    RegionBody region;
    const Graph& from = sums.region.body;
    Ints outer;
    for (size_t axis = 0; axis + 1 < domain.size(); ++axis) outer.push_back(static_cast<int64_t>(axis));
    std::map<ValueId, ValueId> map;
    for (ValueId id : from.leaves()) {
      const Value& value = from.value(id);
      map[id] = value.role == Role::kConstant ? region.body.add_constant(value.constant)
                                              : add_body_input(region.body, {value.type.dtype, domain});
    }
    for (const Node& node : from.nodes()) {
      std::vector<ValueId> operands;
      for (ValueId id : node.operands) operands.push_back(map.at(id));
      const bool reduces = op_info(node.op).has(kReduction);
      map[node.results[0]] =
          reduces ? region.body.add(node.op, operands, {{"axes", outer}, {"keepdims", true}}, node.origin)
                  : region.body.add(node.op, operands, node.attrs, node.origin);
    }
    for (ValueId id : from.outputs()) add_body_output(region.body, map.at(id));
    return region;
  }

  const Graph& graph_;
  const Target& target_;
  const std::vector<std::vector<NodeId>> readers_;  // by value
  std::vector<char> merged_;
};

}  // namespace

// Sums over all rows of what a region with values per row reads or gives: the gradients of a norm's scale and
// bias, and of the bias of the layer before, beside the gradient of the norm's operand. One walk over the
// rows serves all. Only where gradients are computed, as recompute_values.
Graph merge_column_sums(const Graph& graph, const PassContext& context) {
  return context.target.is_cuda() && context.gradients ? ColumnSumMerger(graph, context).run() : graph;
}

}  // namespace aicf
