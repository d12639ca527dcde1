#include "calls/legality.h"

#include <algorithm>
#include <utility>

#include "base/byte_range.h"
#include "calls/call_windows.h"

namespace aicf {
namespace {

// Inserts a place once.
void insert_place(std::vector<size_t>& places, size_t at) {
  const auto where = std::lower_bound(places.begin(), places.end(), at);
  if (where == places.end() || *where != at) places.insert(where, at);
}
void erase_place(std::vector<size_t>& places, size_t at) {
  const auto where = std::lower_bound(places.begin(), places.end(), at);
  if (where != places.end() && *where == at) places.erase(where);
}
size_t first_within(const std::vector<size_t>& places, size_t begin, size_t end,
                    const std::vector<size_t>& beside) {
  for (auto at = std::lower_bound(places.begin(), places.end(), begin); at != places.end() && *at < end; ++at)
    if (std::find(beside.begin(), beside.end(), *at) == beside.end()) return *at;
  return end;
}

bool share_bytes(const Window& a, const Window& b) { return a.root == b.root && may_share_bytes(a, b); }
bool share_bytes(const std::vector<Window>& a, const std::vector<Window>& b) {
  return std::any_of(a.begin(), a.end(), [&](const Window& x) {
    return std::any_of(b.begin(), b.end(), [&](const Window& y) { return share_bytes(x, y); });
  });
}

}  // namespace

Legality::Legality(CallGraph& calls)
    : calls_(calls), kept_(static_cast<size_t>(calls.graph.value_count()) + calls.extra.size()) {
  for (ValueId root = 0; root < calls.graph.value_count(); ++root)
    kept_[static_cast<size_t>(root)] = !calls.is_temp(root);
  for (const ValueId root : calls.output_roots) kept_[static_cast<size_t>(root)] = true;
  rebuild();
}

void Legality::rebuild() {
  uses_.assign(kept_.size(), {});
  for (size_t i = 0; i < calls_.calls.size(); ++i) change_uses(i, insert_place);
}

void Legality::change_uses(size_t at, void (*change)(std::vector<size_t>& places, size_t at)) {
  for (const Window& w : calls_.calls[at].inputs) change(uses_[static_cast<size_t>(w.root)].readers, at);
  for (const Window& w : calls_.calls[at].outputs) change(uses_[static_cast<size_t>(w.root)].writers, at);
}

KernelCall Legality::replace(size_t at, KernelCall call) {
  change_uses(at, erase_place);
  std::swap(calls_.calls[at], call);
  change_uses(at, insert_place);
  return call;
}

std::vector<size_t> Legality::spread(size_t room) {
  std::vector<KernelCall> wide;
  std::vector<size_t> places;
  wide.resize(room);
  for (KernelCall& call : calls_.calls) {
    places.push_back(wide.size());
    if (is_removed(call)) continue;
    wide.push_back(std::move(call));
    wide.resize(wide.size() + room);
  }
  places.push_back(wide.size());
  calls_.calls = std::move(wide);
  rebuild();
  return places;
}

void Legality::finish() {
  std::erase_if(calls_.calls, is_removed);
  rebuild();
}

Legality::Life Legality::life(ValueId root) const {
  Life life{calls_.calls.size(), 0};
  for (const auto* list : {&readers(root), &writers(root)}) {
    if (list->empty()) continue;
    life.first = std::min(life.first, list->front());
    life.end = std::max(life.end, list->back() + 1);
  }
  return life.end == 0 ? Life() : life;
}

std::optional<size_t> Legality::last_writer(ValueId root, size_t end) const {
  const std::vector<size_t>& all = writers(root);
  const auto behind = std::lower_bound(all.begin(), all.end(), end);
  return behind == all.begin() ? std::nullopt : std::optional(*(behind - 1));
}

std::optional<size_t> Legality::sole_writer(ValueId root, size_t end) const {
  const std::optional<size_t> last = last_writer(root, end);
  return last && writers(root)[0] == *last ? last : std::nullopt;
}

bool Legality::others_need(ValueId root, std::initializer_list<size_t> calls) const {
  return is_kept(root) || std::any_of(readers(root).begin(), readers(root).end(), [&](size_t reader) {
           return std::find(calls.begin(), calls.end(), reader) == calls.end();
         });
}

size_t Legality::first_obstacle(const KernelCall& call, size_t begin, size_t end,
                                const std::vector<size_t>& beside) const {
  for (const Window& w : call.inputs) end = first_within(writers(w.root), begin, end, beside);
  for (const Window& w : call.outputs)
    end = first_within(readers(w.root), begin, first_within(writers(w.root), begin, end, beside), beside);
  return end;
}

std::optional<size_t> Legality::obstacle(size_t from, size_t to, const std::vector<size_t>& beside) const {
  const size_t begin = from < to ? from + 1 : to, end = from < to ? to + 1 : from;
  const size_t first = first_obstacle(calls_.calls[from], begin, end, beside);
  return first == end ? std::nullopt : std::optional(first);
}

size_t Legality::last_place(size_t from) const {
  return first_obstacle(calls_.calls[from], from + 1, calls_.calls.size()) - 1;
}

std::vector<std::vector<size_t>> Legality::needed_by_byte() const {
  std::vector<std::vector<size_t>> needed(calls_.calls.size());
  for (size_t at = 0; at < needed.size(); ++at) {
    const KernelCall& call = calls_.calls[at];
    const auto look_at = [&](const std::vector<size_t>& places) {
      for (auto other = places.begin(); other != places.end() && *other < at; ++other)
        if (must_keep_order_by_byte(calls_.calls[*other], call)) insert_place(needed[at], *other);
    };
    for (const Window& w : call.inputs) look_at(writers(w.root));
    for (const Window& w : call.outputs) look_at(writers(w.root)), look_at(readers(w.root));
  }
  return needed;
}

bool must_keep_order(const KernelCall& a, const KernelCall& b) {
  return share_root(a.outputs, b.inputs) || share_root(a.outputs, b.outputs) ||
         share_root(a.inputs, b.outputs);
}

bool must_keep_order_by_byte(const KernelCall& a, const KernelCall& b) {
  return share_bytes(a.outputs, b.inputs) || share_bytes(a.outputs, b.outputs) ||
         share_bytes(a.inputs, b.outputs);
}

}  // namespace aicf
