#include "ir/hash.h"

#include <gtest/gtest.h>

#include <functional>
#include <set>

#include "ir/text.h"

namespace aicf {
namespace {

// The parts of a small program that a test changes one at a time.
struct Parts {
  std::string input = "x", output = "y", hint = "h", origin = "o", body_input = "a", body_name = "b",
              kind = "norm";
  std::string entry = "main", meta = "m", param = "w";
  double constant = 1, big = 2, alpha = 0.5;
  bool data = false, swapped = false, second_output = false, update = true;
  DType dtype = DType::f32;
  int64_t size = 3, hi = 8;
};

Program build(const Parts& parts) {
  Program program;
  program.metadata["key"] = parts.meta;
  program.sizes["n"] = {0, parts.hi};
  const TensorType type{parts.dtype, {Dim::symbol("n"), parts.size}};
  Variable w{parts.param, Role::kParam, {parts.dtype, {2}}, {}};
  if (parts.data) w.data = Array(parts.dtype, {2});
  program.variables.emplace(parts.param, w);
  Graph g(parts.entry);
  const ValueId x = g.add_input(parts.input, type);
  const ValueId p = g.add_param(parts.param, {parts.dtype, {2}});
  const ValueId c = g.add_constant(Array::scalar_f64(parts.dtype, parts.constant), parts.hint);
  g.add_constant(Array::from<double>(DType::f64, {100}, std::vector<double>(100, parts.big)));
  const ValueId scaled = g.add(Op::leaky_relu, {x}, {{"alpha", parts.alpha}}, parts.origin);
  const ValueId y = parts.swapped ? g.add(Op::sub, {c, scaled}) : g.add(Op::sub, {scaled, c});
  g.set_name(y, parts.hint);
  Graph body(parts.body_name);
  body.add_output(body.add(Op::neg, {body.add_input(parts.body_input, type)}), parts.hint);
  const NodeId region = g.add_node(Op::fused, {y}, {{"kind", parts.kind}}, {body}, parts.origin);
  g.add_output(g.node(region).results[0], parts.output);
  if (parts.second_output) g.add_output(y, "second");
  if (parts.update) g.add_update(p, p);
  program.entries.push_back(std::move(g));
  return program;
}

using Change = std::function<void(Parts&)>;
constexpr PrintOptions kMeaningOnly{.hints = false, .origins = false};

TEST(Hash, IgnoresHintsOriginsAndContentsOfVariables) {
  const Change changes[] = {
      [](Parts& p) { p.hint = "other"; },       [](Parts& p) { p.origin = "other"; },
      [](Parts& p) { p.body_input = "other"; }, [](Parts& p) { p.body_name = "other"; },
      [](Parts& p) { p.data = true; },
  };
  const Program plain = build({});
  for (const Change& change : changes) {
    Parts parts;
    change(parts);
    const Program other = build(parts);
    EXPECT_EQ(hash(other), hash(plain));
    EXPECT_EQ(hash(other.entries[0]), hash(plain.entries[0]));
    EXPECT_EQ(print(other, kMeaningOnly), print(plain, kMeaningOnly));
  }
}

TEST(Hash, SeesEveryChangeOfMeaning) {
  const Change changes[] = {
      [](Parts& p) { p.input = "z"; },
      [](Parts& p) { p.output = "z"; },
      [](Parts& p) { p.kind = "z"; },
      [](Parts& p) { p.entry = "z"; },
      [](Parts& p) { p.param = "z"; },
      [](Parts& p) { p.constant = 1.0000001; },
      [](Parts& p) { p.big = 3; },
      [](Parts& p) { p.alpha = 0.25; },
      [](Parts& p) { p.alpha = 0.01; },
      [](Parts& p) { p.alpha = -0.0; },
      [](Parts& p) { p.alpha = 0.0; },
      [](Parts& p) { p.swapped = true; },
      [](Parts& p) { p.second_output = true; },
      [](Parts& p) { p.update = false; },
      [](Parts& p) { p.dtype = DType::f64; },
      [](Parts& p) { p.size = 4; },
  };
  std::set<Hash128> programs = {hash(build({}))}, graphs = {hash(build({}).entries[0])};
  std::set<std::string> texts = {print(build({}), kMeaningOnly)};
  for (const Change& change : changes) {
    Parts parts;
    change(parts);
    const Program other = build(parts);
    programs.insert(hash(other));
    graphs.insert(hash(other.entries[0]));
    texts.insert(print(other, kMeaningOnly));
  }
  EXPECT_EQ(programs.size(), std::size(changes) + 1);
  EXPECT_EQ(graphs.size(), std::size(changes) + 1);
  EXPECT_EQ(texts.size(), std::size(changes) + 1);
}

TEST(Hash, OfAProgramCoversRangesAndMetadata) {
  Parts range, meta;
  range.hi = 9;
  meta.meta = "other";
  EXPECT_NE(hash(build(range)), hash(build({})));
  EXPECT_NE(hash(build(meta)), hash(build({})));
}

TEST(Hash, SurvivesTheText) {
  const Program program = build({});
  EXPECT_EQ(hash(parse(print(program), resolver_of(collect_blobs(program)))), hash(program));
}

TEST(Hash, TextForm) {
  const Hash128 value{0x0123456789abcdef, 0xfedcba9876543210};
  EXPECT_EQ(to_string(value), "0123456789abcdeffedcba9876543210");
  EXPECT_EQ(hash_from_text(to_string(value)), value);
  EXPECT_FALSE(hash_from_text("0123"));
  EXPECT_FALSE(hash_from_text("0123456789abcdeffedcba987654321g"));
  // xxh3-128 of nothing, from the xxHash specification's reference implementation: stored files depend on it.
  EXPECT_EQ(to_string(hash_bytes("", 0)), "99aa06d3014798d86001c324468d497f");
}

}  // namespace
}  // namespace aicf
