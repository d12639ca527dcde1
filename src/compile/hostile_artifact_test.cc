// A stranger's .aicf whose checksums all fit: whatever its plan says, loading, binding and running it ends in
// success or in one of our errors, never in a crash, a foreign exception or memory without bound.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "base/testing/random_seeds.h"
#include "compile/compile.h"
#include "compile/testing/forger.h"
#include "compile/testing/random_arrays.h"
#include "kernels/common/kernel.h"
#include "plan/plan_json.h"

// A sanitizer maps terabytes of shadow memory, which a limit on address space would forbid.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AICF_SHADOW_MEMORY
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AICF_SHADOW_MEMORY
#endif
#endif
#if defined(AICF_SHADOW_MEMORY)
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "allocator_may_return_null=1"; }
extern "C" const char* __tsan_default_options();
extern "C" const char* __tsan_default_options() { return "allocator_may_return_null=1"; }
#endif

namespace aicf {
namespace {

using testing::Forger;
using testing::random_array;

using Json = nlohmann::json;

constexpr int64_t kLargestSize = 64;  // of a size at its high end, whatever range the plan declares

// All changes take minutes: `make soak` tries each, other runs one in so many, and fewer random ones.
template <typename Engine>
bool tries(Engine& engine, uint32_t one_in) {
  return testing::soaks() || engine() % one_in == 0;
}
int random_rounds() { return testing::soaks() ? 3000 : 800; }

// 12-24-8 MLP with a GELU, a layer norm and a softmax, over a symbolic batch; optimised, with a bucket for
// the lowest sizes.
Artifact good_artifact(int opt_level) {
  Program program;
  program.sizes["batch"] = {1, kLargestSize};
  if (opt_level > 0) program.buckets["batch"] = {4, kLargestSize};
  const auto add_param = [&](const std::string& name, std::vector<int64_t> sizes, uint32_t seed) {
    program.variables[name] = {name, Role::kParam, {DType::f32, to_shape(sizes)}, random_array(sizes, seed)};
  };
  add_param("0.W", {12, 24}, 1);
  add_param("0.b", {24}, 2);
  add_param("1.scale", {24}, 3);
  add_param("2.W", {8, 24}, 4);
  Graph graph("main");
  const auto param = [&](const std::string& name) {
    return graph.add_param(name, program.variables.at(name).type);
  };
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("batch"), Dim(12)}});
  const ValueId h = graph.add(Op::linear, {x, param("0.W"), param("0.b")});
  const ValueId n = graph.add(Op::layer_norm, {graph.add(Op::gelu, {h}), param("1.scale")});
  const ValueId y = graph.add(Op::linear, {n, param("2.W")}, {{"transpose_w", true}});
  graph.add_output(graph.add(Op::softmax, {y}), "y");
  program.entries.push_back(std::move(graph));
  CompileOptions options;
  options.opt_level = opt_level;
  return compile(program, options);
}

// Pointers to every value of a document.
void list_values(const Json& json, const Json::json_pointer& at, std::vector<Json::json_pointer>& values) {
  values.push_back(at);
  if (json.is_object())
    for (const auto& [key, value] : json.items()) list_values(value, at / key, values);
  if (json.is_array())
    for (size_t i = 0; i < json.size(); ++i) list_values(json[i], at / i, values);
}

std::vector<Json> replacements(const Json& value) {
  if (value.is_number()) {
    const int64_t number = value.is_number_integer() ? value.get<int64_t>() : 0;
    const int64_t more = std::min(number, INT64_MAX - 1) + 1,
                  many = number > 0 && number < int64_t{1} << 32 ? 4 * number : 5;
    return {-1,
            0,
            1,
            2,
            63,
            64,
            more,
            many,
            int64_t{1} << 40,
            INT64_MAX,
            INT64_MIN,
            UINT64_MAX,
            0.5,
            1e300,
            "batch",
            "64*batch",
            "floordiv(64, batch-1)",
            "batch*batch*batch*4611686018427387904",
            "nowhere",
            nullptr};
  }
  if (value.is_string())
    return {"",
            "junk",
            "\xff",
            "batch",
            "f64",
            "u8",
            "bool",
            "i64",
            "f16",
            "main",
            "init",
            "0.W",
            "input",
            "output",
            "variable",
            "constant",
            "packed",
            "arena",
            -1,
            nullptr,
            Json::array(),
            "-batch",
            "batch*1099511627776"};
  if (value.is_boolean()) return {!value.get<bool>(), 1};
  return {nullptr, 1, "junk", Json::array(), Json::object()};
}

class HostileArtifact : public ::testing::TestWithParam<int> {
 protected:
  void SetUp() override {
#if !defined(AICF_SHADOW_MEMORY)
    getrlimit(RLIMIT_AS, &before_);
    rlim_t pages = 0;  // mapped by now: a GPU's driver, where another test called it, has its terabytes
    std::ifstream("/proc/self/statm") >> pages;
    rlimit limit = before_;
    limit.rlim_cur =
        std::min(before_.rlim_max, pages * static_cast<rlim_t>(getpagesize()) + (rlim_t{4} << 30));
    setrlimit(RLIMIT_AS, &limit);
#endif
  }
  void TearDown() override {
#if !defined(AICF_SHADOW_MEMORY)
    setrlimit(RLIMIT_AS, &before_);
#endif
  }
  rlimit before_{};
};

TEST_P(HostileArtifact, UnchangedRuns) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  forger.expect_sound_plan(forger.plan(), "unchanged");
  EXPECT_EQ(forger.accepted(), 1);
}

TEST_P(HostileArtifact, EveryValueReplaced) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  std::vector<Json::json_pointer> values;
  list_values(forger.plan(), Json::json_pointer(), values);
  std::mt19937 engine(GetParam());
  for (const Json::json_pointer& at : values)
    for (const Json& replacement : replacements(forger.plan()[at])) {
      if (!tries(engine, 18)) continue;
      Json plan = forger.plan();
      plan[at] = replacement;
      forger.expect_sound_plan(
          plan, at.to_string() + " = " + replacement.dump(-1, ' ', false, Json::error_handler_t::replace));
    }
}

TEST_P(HostileArtifact, EveryMemberDroppedOrDoubled) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  std::vector<Json::json_pointer> values;
  list_values(forger.plan(), Json::json_pointer(), values);
  std::mt19937 engine(GetParam());
  for (const Json::json_pointer& at : values) {
    if (at.empty() || !tries(engine, 4)) continue;
    Json plan = forger.plan();
    Json& parent = plan[at.parent_pointer()];
    if (parent.is_array()) {
      const size_t index = std::stoul(at.back());
      parent.push_back(parent[index]);
      forger.expect_sound_plan(plan, at.to_string() + " doubled");
      parent.erase(parent.size() - 1);
      parent.erase(index);
    } else {
      parent.erase(at.back());
    }
    forger.expect_sound_plan(plan, at.to_string() + " dropped");
  }
}

// Every kernel is given the windows of every step, with params of any number.
TEST_P(HostileArtifact, EveryKernelInEveryStep) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  std::mt19937_64 engine(GetParam());
  for (size_t entry = 0; entry < forger.plan()["entries"].size(); ++entry)
    for (size_t step = 0; step < forger.plan()["entries"][entry]["steps"].size(); ++step)
      for (const Kernel& kernel : kernel_table())
        for (int round = 0; round < 12; ++round) {
          if (!tries(engine, 4)) continue;
          Json plan = forger.plan();
          Json& s = plan["entries"][entry]["steps"][step];
          s["kernel"] = std::string(kernel.name);
          if (round % 2) s["program"] = -1;
          Json params = Json::array();
          const size_t count = round < 2 ? s["params"].size() : engine() % 12;
          for (size_t i = 0; i < count; ++i)
            params.push_back(round < 6 ? 1 : static_cast<int64_t>(engine() % 5) - 1);
          s["params"] = params;
          if (round >= 4) s["inputs"].push_back(s["inputs"].empty() ? Json(nullptr) : s["inputs"][0]);
          if (round >= 8 && s["outputs"].size() == 1) s["outputs"].push_back(s["outputs"][0]);
          if (round >= 9) s["fparams"] = {INT64_MIN, 9221120237041090560};
          forger.expect_sound_plan(plan, std::string(kernel.name) + " in step " + std::to_string(step) +
                                             " round " + std::to_string(round));
        }
}

// Several numbers at once, near each other: what single changes cannot reach because another check stands
// before.
TEST_P(HostileArtifact, AStepThatWritesNothingIsRefused) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  for (size_t entry = 0; entry < forger.plan()["entries"].size(); ++entry)
    for (size_t step = 0; step < forger.plan()["entries"][entry]["steps"].size(); ++step) {
      Json plan = forger.plan();
      Json& at = plan["entries"][entry]["steps"][step];
      at["outputs"] = Json::array();
      EXPECT_EQ(forger.code_of(plan), ErrorCode::kU_bad_artifact) << at.dump();
      at["inputs"] = Json::array();
      EXPECT_EQ(forger.code_of(plan), ErrorCode::kU_bad_artifact) << at.dump();
    }
}

TEST_P(HostileArtifact, RandomChanges) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  std::mt19937_64 engine(100 + GetParam());
  std::vector<Json::json_pointer> values;
  list_values(forger.plan(), Json::json_pointer(), values);
  for (int round = 0; round < random_rounds(); ++round) {
    Json plan = forger.plan();
    const size_t first = engine() % values.size();
    for (uint64_t i = 0, changes = 1 + engine() % 4; i < changes; ++i) {
      const Json::json_pointer& at = values[(first + engine() % 24) % values.size()];
      if (!plan.contains(at) || plan[at].is_structured()) continue;
      const std::vector<Json> choices = replacements(plan[at]);
      plan[at] = choices[engine() % choices.size()];
    }
    forger.expect_sound_plan(plan, "random round " + std::to_string(round));
  }
}

TEST_P(HostileArtifact, BytesFlippedUnderFittingChecksums) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  std::mt19937_64 engine(GetParam());
  const std::string text = forger.plan().dump();
  for (int round = 0; round < random_rounds(); ++round) {
    std::string changed = text;
    for (uint64_t i = 0, changes = 1 + engine() % 3; i < changes; ++i) {
      char& c = changed[engine() % changed.size()];
      c = std::isdigit(static_cast<unsigned char>(c)) ? static_cast<char>('0' + engine() % 10)
          : round % 4                                 ? c
                                                      : static_cast<char>(engine());
    }
    forger.expect_sound_plan(changed, "flips of round " + std::to_string(round));
  }
}

TEST_P(HostileArtifact, TruncatedAndDamagedFiles) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  std::mt19937_64 engine(GetParam());
  const std::string& file = forger.file();
  for (size_t size = 0; size < file.size(); size += size < 64 ? 1 : 1 + file.size() / 200)
    forger.expect_sound_file(file.substr(0, size), "truncated to " + std::to_string(size));
  for (int round = 0; round < random_rounds(); ++round) {
    std::string damaged = file;
    damaged[engine() % (round % 2 ? 2048 : damaged.size())] = static_cast<char>(engine());
    forger.expect_sound_file(damaged, "damaged in round " + std::to_string(round));
  }
}

TEST_P(HostileArtifact, CostlyTextIsBounded) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  const auto with_size = [&](const std::string& expression) {
    Json plan = forger.plan();
    plan["entries"][0]["buffers"][0]["bytes"] = expression;
    return plan;
  };
  const auto repeated = [](const std::string& piece, size_t times) {
    std::string text;
    for (size_t i = 0; i < times; ++i) text += piece;
    return text;
  };
  forger.expect_sound_plan(repeated("[", 1 << 20), "deep arrays");
  forger.expect_sound_plan(repeated("{\"a\":", 1 << 18), "deep objects");
  forger.expect_sound_plan(with_size(repeated("(", 1 << 20)), "deep expression");
  forger.expect_sound_plan(with_size(repeated("-(", 8000)), "deep negation");
  forger.expect_sound_plan(with_size("1" + repeated("*batch", 2500)), "a high power");
  forger.expect_sound_plan(with_size("1" + repeated("*(batch+a+b+c+1)", 1000)), "a power of a sum");
  std::string sum = "0";
  for (int i = 0; i < 2500; ++i) sum += "+a" + std::to_string(i);
  forger.expect_sound_plan(with_size(sum), "a long sum");
  Json members = forger.plan();
  for (int i = 0; i < 100000; ++i) members[std::to_string(i)] = 0;
  forger.expect_sound_plan(members, "many members");
  Json buffers = forger.plan();
  Json arena = {{"kind", "arena"}, {"name", ""},      {"bytes", 0},     {"max_bytes", 64},
                {"offset", 0},     {"first_step", 0}, {"last_step", 0}, {"note", ""}};
  buffers["entries"][0]["arena_bytes"] = int64_t{1} << 36;
  for (int i = 0; i < 20000; ++i) {
    arena["offset"] = 64 * (1000 + i);
    buffers["entries"][0]["buffers"].push_back(arena);
  }
  forger.expect_sound_plan(buffers, "many buffers");
}

TEST_P(HostileArtifact, MoreMemoryThanTheLimitIsRefused) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  Json plan = forger.plan();
  plan["packed_bytes"] = int64_t{1} << 46;
  EXPECT_EQ(forger.code_of(plan), ErrorCode::kU_over_limit) << forger.last_text();

  setenv("AICF_MAX_MEMORY", "1K", 1);
  const ErrorCode code = forger.code_of(forger.plan());
  unsetenv("AICF_MAX_MEMORY");
  EXPECT_EQ(code, ErrorCode::kU_over_limit);
}

TEST_P(HostileArtifact, MoreWorkThanTheLimitIsRefused) {
  Forger forger(good_artifact(GetParam()), kLargestSize);
  setenv("AICF_MAX_SECONDS", "1e-12", 1);
  const ErrorCode code = forger.code_of(forger.plan());
  unsetenv("AICF_MAX_SECONDS");
  EXPECT_EQ(code, ErrorCode::kU_over_limit) << forger.last_text();
}

INSTANTIATE_TEST_SUITE_P(OptLevels, HostileArtifact, ::testing::Values(0, 2));

}  // namespace
}  // namespace aicf
