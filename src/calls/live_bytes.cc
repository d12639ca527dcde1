#include "calls/live_bytes.h"

#include <algorithm>

#include "calls/call_windows.h"

namespace aicf {

LiveBytes::LiveBytes(const CallGraph& calls, const Legality& legality)
    : calls_(calls),
      legality_(legality),
      bytes_(calls.constant.size()),
      leaves_(calls.constant.size()),
      lives_(calls.constant.size()),
      all_(4 * calls.calls.size() + 4),
      most_(all_.size()) {
  for (const ValueId root : calls.output_roots) leaves_[static_cast<size_t>(root)] = true;
  for (size_t i = 0; i < lives_.size(); ++i) {
    const auto root = static_cast<ValueId>(i);
    if (calls.is_temp(root)) bytes_[i] = most_bytes(calls, root);
    set_life(root);
  }
}

void LiveBytes::update(const std::vector<ValueId>& roots) {
  for (const ValueId root : roots) set_life(root);
}

void LiveBytes::set_life(ValueId root) {
  const auto i = static_cast<size_t>(root);
  Life life = legality_.life(root);
  if (leaves_[i] && life.end > 0) life.end = calls_.calls.size();
  if (bytes_[i] == 0 || life == lives_[i]) return;
  add(1, 0, calls_.calls.size(), lives_[i], -bytes_[i]);
  add(1, 0, calls_.calls.size(), life, bytes_[i]);
  lives_[i] = life;
}

void LiveBytes::add(size_t node, size_t begin, size_t end, const Life& life, int64_t bytes) {
  if (life.end <= begin || end <= life.first) return;
  if (life.first <= begin && end <= life.end) {
    all_[node] += bytes;
    most_[node] += bytes;
    return;
  }
  const size_t middle = begin + (end - begin) / 2;
  add(2 * node, begin, middle, life, bytes);
  add(2 * node + 1, middle, end, life, bytes);
  most_[node] = all_[node] + std::max(most_[2 * node], most_[2 * node + 1]);
}

}  // namespace aicf
