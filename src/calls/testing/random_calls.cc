#include "calls/testing/random_calls.h"

#include <algorithm>
#include <functional>
#include <random>
#include <string>
#include <utility>

#include "calls/call_windows.h"
#include "select/layout.h"

namespace aicf::testing {
namespace {

constexpr int64_t kElements = 24;  // of a value

bool is_known(const Window& w) {
  return std::all_of(w.sizes.begin(), w.sizes.end(), [](const Dim& d) { return d.is_constant(); });
}

class CallDrawer {
 public:
  explicit CallDrawer(uint64_t seed) : random_(seed) {}

  CallProgram run() {
    program_.target = Target::from_name("sm_90");
    calls_.graph = Graph("main");
    calls_.ranges = {{"n", {1, 6}}};
    add_values();
    const int count = 3 + below(8);
    for (int i = 0; i < count; ++i) add_call();
    while (!unread_.empty() || !parts_.empty()) add_call(true);
    add_outputs();
    add_bundles();
    program_.graphs.push_back(std::move(calls_));
    return std::move(program_);
  }

 private:
  int below(size_t count) { return static_cast<int>(random_() % count); }
  bool chance(int percent) { return below(100) < percent; }
  template <typename T>
  T taken(std::vector<T>& from) {
    const auto at = from.begin() + below(from.size());
    T value = std::move(*at);
    from.erase(at);
    return value;
  }

  void add_values() {
    Graph& graph = calls_.graph;
    const TensorType type{DType::f32, {Dim(kElements)}};
    const ValueId x = graph.add_input("x", type);
    leaves_ = {x, graph.add_input("y", {DType::f16, {Dim(kElements)}}), graph.add_param("w", type)};
    for (const char* name : {"s", "t"}) {
      const ValueId state = graph.add_state(name, type);
      leaves_.push_back(state);
      states_.push_back(state);
      graph.add_update(state, graph.add(Op::exp, {state}));
    }
    for (int i = below(4); i >= 0; --i) fresh_.push_back(graph.add(Op::exp, {x}));
    graph.add_output(graph.add(Op::exp, {x}), "y");
    calls_.placement.resize(static_cast<size_t>(graph.value_count()));
    calls_.constant.resize(static_cast<size_t>(graph.value_count()), false);
    calls_.constant[static_cast<size_t>(leaves_[2])] = true;
  }

  const TensorType& type_of(ValueId root) const {
    const int values = calls_.graph.value_count();
    return root < values ? calls_.graph.type(root) : calls_.extra[static_cast<size_t>(root - values)].type;
  }

  // A value that nobody has written.
  ValueId fresh() {
    if (!fresh_.empty() && chance(50)) return taken(fresh_);
    static const std::vector<DType> dtypes = {DType::f32, DType::f16, DType::i8};
    const Shape shape = chance(8) ? Shape{Dim::symbol("n"), Dim(4)} : Shape{Dim(kElements)};
    calls_.extra.push_back({ExtraValue::Kind::kTemp, {dtypes[static_cast<size_t>(below(3))], shape}, "t"});
    calls_.constant.push_back(false);
    return static_cast<ValueId>(calls_.graph.value_count() + static_cast<int>(calls_.extra.size()) - 1);
  }

  // All elements, in some order.
  Window whole(ValueId root) {
    Window w = row_major_window(root, type_of(root));
    if (!is_known(w)) return w;
    int64_t count = kElements;
    const DType own = w.dtype;
    if (own != DType::i8 && chance(10)) w.dtype = DType::i8;
    if (own == DType::f32 && chance(10)) w.dtype = DType::f16;
    count = count * dtype_bytes(own) / dtype_bytes(w.dtype);
    w.sizes = {Dim(count)}, w.strides = {Dim(1)};
    static const std::vector<int64_t> factors = {1, 2, 3, 4, 6};
    const int64_t rows = factors[static_cast<size_t>(below(factors.size()))], columns = count / rows;
    if (chance(50)) w.sizes = {Dim(rows), Dim(columns)}, w.strides = {Dim(columns), Dim(1)};
    if (w.sizes.size() == 2 && chance(30)) w = transpose_window(w, {1, 0});
    if (chance(10)) {
      const int axis = below(w.sizes.size());
      w = reversed(std::move(w), axis);
    }
    return w;
  }
  static Window reversed(Window w, int axis) {
    const auto at = static_cast<size_t>(axis);
    w.offset = w.offset + (w.sizes[at] - Dim(1)) * w.strides[at];
    w.strides[at] = Dim(0) - w.strides[at];
    return w;
  }
  static Window cut(Window w, size_t axis, int64_t first, int64_t count) {
    w.offset = w.offset + Dim(first) * w.strides[axis];
    w.sizes[axis] = Dim(count);
    return w;
  }

  // Windows that make up a value: rows or columns of it, side by side.
  std::vector<Window> parts(ValueId root) {
    const Window w = whole(root);
    if (!is_known(w)) {
      Window first = cut(w, 0, 0, 1), rest = cut(w, 0, 1, 0);
      rest.sizes[0] = w.sizes[0] - Dim(1);
      return {first, rest};
    }
    const auto axis = static_cast<size_t>(below(w.sizes.size()));
    const int64_t size = *w.sizes[axis].constant();
    if (size < 2) return {w};
    const int64_t first = 1 + below(static_cast<size_t>(size - 1));
    std::vector<Window> parts = {cut(w, axis, 0, first), cut(w, axis, first, size - first)};
    if (chance(50)) std::swap(parts[0], parts[1]);
    return parts;
  }

  // ---- what a call reads

  void mark_read(const std::function<bool(const Window&)>& is_read) {
    const auto behind =
        std::stable_partition(unread_.begin(), unread_.end(), [&](const Window& w) { return !is_read(w); });
    for (auto w = behind; w != unread_.end(); ++w) read_.push_back(w->root);
    unread_.erase(behind, unread_.end());
  }

  Window input() {
    if (!unread_.empty() && chance(65)) {
      const Window w = unread_[static_cast<size_t>(below(unread_.size()))];
      const auto is_of_it = [&](const Window& other) { return other.root == w.root; };
      // Once all parts are written, all may be read as one.
      if (chance(30) && std::none_of(parts_.begin(), parts_.end(), is_of_it)) {
        mark_read(is_of_it);
        return whole(w.root);
      }
      mark_read([&](const Window& other) { return other == w; });
      return w;
    }
    const bool old = !read_.empty() && chance(25);
    const ValueId root = old ? read_[static_cast<size_t>(below(read_.size()))]
                             : leaves_[static_cast<size_t>(below(leaves_.size()))];
    Window w = chance(60) ? whole(root) : parts(root)[0];
    if (chance(10)) w.sizes.insert(w.sizes.begin(), Dim(2)), w.strides.insert(w.strides.begin(), Dim(0));
    return w;
  }

  // ---- what it writes

  Window output(const KernelCall& call) {
    const auto of_temp_read = [&](ValueId root) {
      return std::find(read_.begin(), read_.end(), root) != read_.end() &&
             std::none_of(unread_.begin(), unread_.end(), [&](const Window& w) { return w.root == root; }) &&
             std::none_of(parts_.begin(), parts_.end(), [&](const Window& w) { return w.root == root; }) &&
             std::none_of(call.outputs.begin(), call.outputs.end(),
                          [&](const Window& w) { return w.root == root; });
    };
    if (!parts_.empty() && chance(60)) return taken(parts_);
    const int kind = below(100);
    if (kind < 10)
      for (const Window& w : call.inputs)
        if (of_temp_read(w.root) && !(w.strides[0] == Dim(0))) return w;
    if (kind < 16 && !read_.empty()) {
      const ValueId root = read_[static_cast<size_t>(below(read_.size()))];
      if (of_temp_read(root)) return whole(root);
    }
    if (kind < 26 && !states_.empty()) {
      const ValueId state = taken(states_);
      std::erase(leaves_, state);
      return whole(state);
    }
    if (kind < 46) {
      const ValueId root = fresh();
      std::vector<Window> all = parts(root);
      const Window first = chance(30) ? whole(root) : all[0];  // the others then overwrite some of it
      parts_.insert(parts_.end(), all.begin() + 1, all.end());
      return first;
    }
    return whole(fresh());
  }

  void add_call(bool last = false) {
    KernelCall call;
    call.what = RowCall{.row = "k"};
    call.origins = {std::to_string(calls_.calls.size())};
    for (int i = last ? 2 : below(3); i >= 0; --i) call.inputs.push_back(input());
    for (int i = !last && chance(20) ? 1 : 0; i >= 0; --i) {
      const Window w = last && !parts_.empty() ? taken(parts_) : last ? Window() : output(call);
      if (w.root != kNoValue) call.outputs.push_back(w);
    }
    for (const Window& w : call.outputs)
      if (w.root >= calls_.graph.value_count() || calls_.graph.value(w.root).role == Role::kTemp)
        unread_.push_back(w);
    if (!call.outputs.empty() && chance(10)) add_body(call);
    calls_.calls.push_back(std::move(call));
  }

  // The outputs are the last values that were read, or one that nothing else reads.
  void add_outputs() {
    KernelCall call;
    call.what = RowCall{.row = "k"};
    call.origins = {"last"};
    call.inputs = {input()};
    const ValueId root = fresh();
    call.outputs = {whole(root)};
    calls_.calls.push_back(call);
    calls_.output_roots = {read_.empty() || chance(60) ? root : read_.back()};
    if (calls_.output_roots[0] == root) return;
    call.inputs = {call.outputs[0]};
    call.outputs.clear();
    calls_.calls.push_back(call);
  }

  // ---- calls of several

  void add_bundles() {
    for (size_t i = 0; i + 1 < calls_.calls.size(); ++i) {
      if (!chance(8)) continue;
      KernelCall bundle;
      bundle.what = Bundle{{BundleMember{calls_.calls[i], 0}, BundleMember{calls_.calls[i + 1], 1}}};
      for (const auto& [member, stage] : members_of(bundle)) add_member(*member, bundle);
      calls_.calls[i] = std::move(bundle);
      calls_.calls.erase(calls_.calls.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }

  // Of each result: a value made of some operands, and the result made of that and all.
  void add_body(KernelCall& call) {
    for (const auto* list : {&call.inputs, &call.outputs})
      if (!std::all_of(list->begin(), list->end(), is_known)) return;
    CallGraph body;
    body.is_body = true;
    body.graph = Graph("body");
    std::vector<Window> operands, own;
    for (const Window& w : call.inputs) {
      const TensorType type{w.dtype, w.sizes};
      operands.push_back(
          row_major_window(body.graph.add_input("i" + std::to_string(operands.size()), type), type));
    }
    for (const Window& w : call.outputs) {
      const TensorType type{w.dtype, w.sizes};
      for (int i = 0; i < 2; ++i) {
        body.extra.push_back({ExtraValue::Kind::kTemp, type, ""});
        own.push_back(
            row_major_window(static_cast<ValueId>(static_cast<int>(call.inputs.size() + own.size())), type));
        KernelCall step;
        step.what = RowCall{.row = "k"};
        step.inputs = {operands[static_cast<size_t>(below(operands.size()))]};
        if (i == 1) step.inputs.push_back(own[own.size() - 2]);
        step.outputs = {own.back()};
        body.calls.push_back(std::move(step));
      }
      body.output_roots.push_back(own.back().root);
      body.graph.add_output(0, "o" + std::to_string(body.output_roots.size()));
    }
    body.placement.resize(operands.size());
    body.constant.resize(operands.size() + own.size(), false);
    call.what = ControlRun{.bodies = {static_cast<int>(calls_.bodies.size())}};
    calls_.bodies.push_back(static_cast<int32_t>(program_.graphs.size()));
    program_.graphs.push_back(std::move(body));
  }

  std::mt19937_64 random_;
  CallProgram program_{Target::from_name("sm_90"), {}};
  CallGraph calls_;
  std::vector<ValueId> leaves_;  // that may be read
  std::vector<ValueId> states_;  // that are not yet written
  std::vector<ValueId> fresh_;   // of the graph
  std::vector<ValueId> read_;    // temps that are written and read
  std::vector<Window> unread_;   // temps' that are written
  std::vector<Window> parts_;    // that are still to be written
};

}  // namespace

CallProgram random_calls(uint64_t seed) { return CallDrawer(seed).run(); }

}  // namespace aicf::testing
