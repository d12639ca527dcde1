// Decompose cases of attention, its gradient and rotary embeddings.
#include "ir/testing/decompose_operands.h"

namespace aicf::testing {
namespace {

using enum OperandKind;

const std::map<int64_t, std::string> kSizes = {{2, "b"}, {5, "t"}, {7, "s"}};

Attrs attend(double scale, bool causal = false, double softcap = 0, int64_t window = 0) {
  return {{"scale", scale}, {"causal", causal}, {"softcap", softcap}, {"window", window}};
}

}  // namespace

void add_attention(std::vector<DecomposeCase>& cases) {
  const auto q = [](int64_t heads, int64_t t) { return tensor({2, heads, t, 8}); };
  const auto k = [](int64_t heads, int64_t t) { return tensor({2, heads, t, 8}); };
  const auto v = [](int64_t heads, int64_t t) { return tame({2, heads, t, 6}); };
  cases.push_back({"attention", Op::attention, {q(3, 5), k(3, 5), v(3, 5)}, attend(0.35), kSizes});
  cases.push_back(
      {"attention_causal", Op::attention, {q(3, 5), k(3, 5), v(3, 5)}, attend(0.35, true), kSizes});
  cases.push_back(
      {"attention_causal_cache", Op::attention, {q(3, 5), k(3, 7), v(3, 7)}, attend(0.35, true), kSizes});
  // More queries than keys: the first rows keep nothing and give 0.
  cases.push_back(
      {"attention_causal_short", Op::attention, {q(3, 7), k(3, 5), v(3, 5)}, attend(0.35, true), kSizes});
  cases.push_back(
      {"attention_softcap", Op::attention, {q(3, 5), k(3, 7), v(3, 7)}, attend(1, false, 2.5), kSizes});
  cases.push_back(
      {"attention_grouped", Op::attention, {q(6, 5), k(3, 7), v(3, 7)}, attend(0.35, true), kSizes});
  cases.push_back(
      {"attention_one_key_head", Op::attention, {q(6, 5), k(1, 7), v(1, 7)}, attend(0.35), kSizes});
  cases.push_back(
      {"attention_symbolic_heads", Op::attention, {q(6, 5), k(3, 7), v(3, 7)}, attend(0.35), {{6, "h"}}});
  cases.push_back({"attention_bool_mask",
                   Op::attention,
                   {q(4, 5), k(4, 7), v(4, 7), of(kBool, {2, 1, 5, 7}, 0, 1)},
                   attend(0.35),
                   kSizes});
  cases.push_back({"attention_low_rank_mask",
                   Op::attention,
                   {q(4, 5), k(4, 7), v(4, 7), of(kBool, {5, 7}, 0, 1)},
                   attend(0.35, true),
                   kSizes});
  cases.push_back({"attention_all_masked",
                   Op::attention,
                   {q(4, 5), k(4, 7), v(4, 7), of(kBool, {1, 7}, 0, 0)},
                   attend(0.35),
                   kSizes});
  cases.push_back({"attention_added_mask",
                   Op::attention,
                   {q(4, 5), k(2, 7), v(2, 7), tensor({2, 4, 5, 7})},
                   attend(0.35, false, 5),
                   {{5, "t"}, {7, "s"}}});
  cases.push_back({"attention_added_row",
                   Op::attention,
                   {q(4, 5), k(4, 7), v(4, 7), tensor({7})},
                   attend(0.35, true),
                   kSizes});
  cases.push_back(
      {"attention_no_keys", Op::attention, {q(4, 5), k(4, 0), v(4, 0)}, attend(0.35), {{0, "s"}}});
  cases.push_back(
      {"attention_no_queries", Op::attention, {q(4, 0), k(2, 7), v(2, 7)}, attend(0.35, true), {{0, "t"}}});
  cases.push_back(
      {"attention_window", Op::attention, {q(3, 5), k(3, 7), v(3, 7)}, attend(0.35, true, 0, 3), kSizes});
  cases.push_back({"attention_window_ahead",
                   Op::attention,
                   {q(3, 7), k(3, 5), v(3, 5)},
                   attend(0.35, false, 0, 2),
                   kSizes});
  cases.push_back({"attention_window_mask",
                   Op::attention,
                   {q(4, 5), k(2, 5), v(2, 5), of(kBool, {5, 5}, 0, 1)},
                   attend(0.35, true, 3, 1),
                   kSizes});
  cases.push_back({"attention_lse", Op::attention_lse, {q(3, 5), k(3, 7), v(3, 7)}, attend(0.35), kSizes});
  cases.push_back({"attention_lse_window",
                   Op::attention_lse,
                   {q(6, 7), k(3, 5), v(3, 5)},
                   attend(0.35, true, 3, 2),
                   kSizes});
  cases.push_back({"attention_lse_all_masked",
                   Op::attention_lse,
                   {q(4, 5), k(4, 7), v(4, 7), of(kBool, {1, 7}, 0, 0)},
                   attend(0.35),
                   kSizes});
}

void add_attention_backward(std::vector<DecomposeCase>& cases) {
  const auto back = [&](int64_t heads, int64_t kv_heads, int64_t t, int64_t s) {
    const auto of_queries = tame({2, heads, t, 6});
    return std::vector<CaseOperand>{tame({2, heads, t, 8}), tame({2, kv_heads, s, 8}),
                                    tame({2, kv_heads, s, 6}), of_queries, of_queries};
  };
  const auto masked = [](std::vector<CaseOperand> operands, CaseOperand mask) {
    operands.push_back(std::move(mask));
    return operands;
  };
  cases.push_back({"attention_backward", Op::attention_backward, back(3, 3, 5, 7), attend(0.35), kSizes});
  cases.push_back(
      {"attention_backward_causal", Op::attention_backward, back(3, 3, 7, 5), attend(0.35, true), kSizes});
  cases.push_back({"attention_backward_softcap", Op::attention_backward, back(3, 3, 5, 7),
                   attend(1, false, 2.5), kSizes});
  cases.push_back({"attention_backward_grouped", Op::attention_backward, back(6, 3, 5, 7),
                   attend(0.35, true, 3), kSizes});
  cases.push_back({"attention_backward_mask", Op::attention_backward,
                   masked(back(4, 2, 5, 7), of(kBool, {2, 1, 5, 7}, 0, 1)), attend(0.35), kSizes});
  cases.push_back({"attention_backward_added_mask", Op::attention_backward,
                   masked(back(4, 4, 5, 7), tame({5, 7})), attend(0.35, true), kSizes});
  cases.push_back(
      {"attention_backward_no_keys", Op::attention_backward, back(4, 4, 5, 0), attend(0.35), {{0, "s"}}});
  cases.push_back({"attention_backward_window", Op::attention_backward, back(4, 2, 5, 7),
                   attend(0.35, true, 0, 3), kSizes});
}

void add_ropes(std::vector<DecomposeCase>& cases) {
  const Attrs pairs = {{"interleaved", true}};
  cases.push_back(
      {"rope", Op::rope, {tensor({2, 3, 5, 8}), tame({5, 4}), tame({5, 4})}, {}, {{2, "b"}, {5, "t"}}});
  cases.push_back({"rope_partial",
                   Op::rope,
                   {tensor({2, 3, 5, 8}), tame({2, 1, 5, 3}), tame({2, 1, 5, 3})},
                   {},
                   {{2, "b"}, {5, "t"}}});
  cases.push_back(
      {"rope_interleaved", Op::rope, {tensor({2, 3, 5, 8}), tame({5, 4}), tame({5, 4})}, pairs, {{5, "t"}}});
  cases.push_back({"rope_interleaved_partial",
                   Op::rope,
                   {tensor({2, 5, 9}), tame({5, 3}), tame({5, 3})},
                   pairs,
                   {{9, "d"}, {3, "p"}}});
  const auto append = [&](const std::string& name, int64_t groups, CaseOperand angles, int64_t positions,
                          Attrs attrs) {
    cases.push_back({name,
                     Op::rope_append,
                     {tensor({2, 2 * groups, 3, 8}), tensor({2, 2, 3, 8}), tensor({2, 2, 3, 5}), angles,
                      angles, tensor({2, 2, 11, 8}), tensor({2, 2, 11, 5}), of(kInt64, {positions}, -5, -3)},
                     std::move(attrs),
                     {{11, "l"}, {3, "t"}}});
  };
  append("rope_append", 2, tame({3, 4}), 2, {});
  append("rope_append_shared", 1, tame({2, 1, 3, 2}), 1, pairs);
  cases.push_back({"rope_none", Op::rope, {tensor({2, 5, 4}), tame({5, 0}), tame({5, 0})}, pairs, {}});
}

}  // namespace aicf::testing
