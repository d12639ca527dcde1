// Compiled files that fuzz_aicf begins with: small models and train steps for the CPU and, with machine code
// that is empty, for a GPU; and what compiles of the ONNX files in AICF_FUZZ_MODELS.
#pragma once

#include <filesystem>

#include "compile/compile.h"
#include "harness.h"
#include "import/onnx.h"
#include "ir/text.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf::fuzz {

inline constexpr const char* kGpu = "sm_90";
inline constexpr uintmax_t kMaxSeedBytes = 12000;

inline constexpr const char* kLibraryCall =
    "130101 workspace 256 algorithm "
    "00000000000000010000000000000002000000000000000300000000000000040000000000000005000000000000000600000000"
    "000000070000000000000008";

inline Array numbers(std::vector<int64_t> sizes, double from) {
  Array array(DType::f32, std::move(sizes));
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, from + 0.01 * static_cast<double>(i % 31));
  return array;
}

using Build = void (*)(Program& program, Graph& graph, ValueId x);

inline ValueId add_param(Program& program, Graph& graph, const std::string& name,
                         std::vector<int64_t> sizes) {
  const TensorType type = {DType::f32, to_shape(sizes)};
  program.variables[name] = {name, Role::kParam, type, numbers(std::move(sizes), -0.1)};
  return graph.add_param(name, type);
}

// A graph over x [batch, 3, 4, 4], above level 0 with buckets.
inline Program program_of(Build body, int opt_level) {
  Program program;
  program.sizes["batch"] = {1, 8};
  if (opt_level > 0) program.buckets["batch"] = {1, 4, 8};
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("batch"), Dim(3), Dim(4), Dim(4)}});
  body(program, graph, x);
  program.entries.push_back(std::move(graph));
  return program;
}

inline Artifact compiled(const Program& program, int opt_level, Precision precision) {
  CompileOptions options;
  options.opt_level = opt_level;
  options.precision = precision;
  return compile(program, options);
}

inline void mlp(Program& program, Graph& graph, ValueId x) {
  const ValueId w = add_param(program, graph, "0.W", {4, 5}), b = add_param(program, graph, "0.b", {5});
  const ValueId h = graph.add(Op::linear, {x, w, b});
  const ValueId n =
      graph.add(Op::layer_norm, {graph.add(Op::gelu, {h}), add_param(program, graph, "s", {5})});
  graph.add_output(graph.add(Op::softmax, {n}), "y");
}

inline void state(Program& program, Graph& graph, ValueId x) {
  const TensorType type = {DType::f32, to_shape({3, 4, 4})};
  program.variables["sum"] = {"sum", Role::kState, type, Array()};
  const ValueId old = graph.add_state("sum", type);
  const ValueId next = graph.add(
      Op::add,
      {old, graph.add(Op::reduce_sum, {x}, {{"axes", std::vector<int64_t>{0}}, {"keepdims", false}})});
  graph.add_update(old, next);
  graph.add_output(graph.add(Op::mul, {x, next}), "y");
}

// A branch that must not be dissolved, a loop whose end its data decides, and a scan inside it.
inline void control(Program&, Graph& graph, ValueId x) {
  const std::string image = "f32[batch, 3, 4, 4]";
  const std::string text = "program { size batch in 1..8 entry main(%x: " + image + R"() {
    %c = constant bool[] = [true]
    %n = constant i64[] = [3]
    %y, %i = if_else(%c, %x, %n)
      body(%a: IMAGE as "a", %k: i64[] as "k") {
        %last, %left = while_loop(%a, %k)
          body(%p: IMAGE as "p", %q: i64[] as "q") {
            %zero = constant i64[] = [0]
            %go = gt(%q, %zero) : bool[]
            return %go
          }
          body(%p: IMAGE as "p", %q: i64[] as "q") {
            %one = constant i64[] = [1]
            %r = sub(%q, %one) : i64[]
            %end, %rows = scan(%r, %p) {carried = 1, reverse = true}
              body(%s: i64[] as "s", %row: f32[3, 4, 4] as "row") {
                %t = tanh(%row) : f32[3, 4, 4]
                return %s, %t
              } : i64[], IMAGE
            return %rows, %end
          } : IMAGE, i64[]
        return %last, %left
      }
      body(%a: IMAGE as "a", %k: i64[] as "k") {
        %e = exp(%a) : IMAGE
        return %e, %k
      } : IMAGE, i64[]
    return "y" = %y
  } })";
  std::string whole;
  for (size_t at = 0; at < text.size();) {
    const bool found = text.compare(at, 5, "IMAGE") == 0;
    whole += found ? image : text.substr(at, 1);
    at += found ? 5 : 1;
  }
  const Program program = parse(whole);
  graph.add_output(inline_body(graph, program.entries[0], {x})[0], "y");
}

// The loss of one linear layer, for train steps.
inline void loss(Program& program, Graph& graph, ValueId x) {
  const ValueId w = add_param(program, graph, "w", {4, 2});
  const ValueId target = graph.add_input("t", {DType::f32, {Dim::symbol("batch"), Dim(3), Dim(4), Dim(2)}});
  graph.add_output(add_loss(graph, LossKind::kMse, graph.add(Op::matmul, {x, w}), target), "loss");
}

// Plain descent, and a step with everything that guards one: clipped, accumulated, its loss scaled.
inline TrainOptions train_options(bool guarded) {
  TrainOptions options;
  options.schedule = constant_rate(0.01);
  options.optimizer.kind = guarded ? OptimizerKind::kAdamW : OptimizerKind::kSgd;
  options.skip_bad_steps = guarded;
  if (!guarded) return options;
  options.clip_norm = 1;
  options.accumulate = 2;
  options.loss_scale.initial = 1024;
  return options;
}

inline void add_train_steps(Seeds& list) {
  for (const int level : {0, 2})
    for (const bool guarded : {false, true})
      list.emplace_back((guarded ? "adamw" : "sgd") + std::to_string(level) + ".aicf",
                        [level, guarded](const std::string& path) {
                          const Program program =
                              make_train_program(program_of(loss, level), train_options(guarded));
                          write_artifact(path, compiled(program, level, Precision::kF32));
                        });
}

// A product, a norm and attention in the types that the matrix units and the copy engine take.
inline void blocks(Program& program, Graph& graph, ValueId x) {
  const auto cast = [&](ValueId v) { return graph.add(Op::cast, {v}, {{"dtype", DType::f16}}); };
  const ValueId flat =
      graph.add(Op::reshape, {x}, {{"shape", Shape{Dim::symbol("batch") * Dim(3), Dim(16)}}});
  const ValueId w = cast(add_param(program, graph, "0.W", {16, 64}));
  const ValueId h = graph.add(Op::matmul, {cast(flat), w});
  const ValueId y = graph.add(Op::matmul, {h, cast(add_param(program, graph, "1.W", {64, 64}))});
  const Shape heads{Dim::symbol("batch"), Dim(3), Dim(1), Dim(64)};
  const ValueId q = graph.add(Op::transpose, {graph.add(Op::reshape, {y}, {{"shape", heads}})},
                              {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
  graph.add_output(graph.add(Op::attention, {q, q, q}, {{"scale", 0.125}}), "y");
}

// The smallest file that counts as a cubin, in place of kilobytes that nothing here reads: an ELF header and
// one section of no type.
inline Array smallest_cubin() {
  Array image(DType::u8, {128});
  const std::pair<int64_t, int64_t> bytes[] = {{0, 0x7f}, {1, 'E'},  {2, 'L'}, {3, 'F'}, {4, 2},
                                               {5, 1},    {18, 190}, {40, 64}, {58, 64}, {60, 1}};
  for (const auto& [at, value] : bytes) image.set_i64(at, value);
  return image;
}

inline Artifact for_gpu(const Program& program, int level) {
  CompileOptions options;
  options.opt_level = level;
  options.target = kGpu;
  Artifact artifact = compile(program, options);
  for (Array& image : artifact.variants[0].code) image = smallest_cubin();
  return artifact;
}

// The first step is handed to a library.
inline Artifact with_library(Artifact artifact) {
  for (EntryPlan& entry : artifact.variants[0].plan.entries) entry.steps[0].library.call = kLibraryCall;
  return artifact;
}

inline void add_gpu(Seeds& list) {
  const std::pair<const char*, Build> models[] = {{"mlp", mlp}, {"state", state}, {"blocks", blocks}};
  for (const auto& [name, body] : models)
    for (const int level : {0, 2})
      list.emplace_back(std::string(name) + std::to_string(level) + kGpu + ".aicf",
                        [body = body, level](const std::string& path) {
                          write_artifact(path, for_gpu(program_of(body, level), level));
                        });
  list.emplace_back("library.aicf", [](const std::string& path) {
    write_artifact(path, with_library(for_gpu(program_of(mlp, 0), 0)));
  });
  list.emplace_back(std::string("adamw") + kGpu + ".aicf", [](const std::string& path) {
    write_artifact(path, for_gpu(make_train_program(program_of(loss, 2), train_options(true)), 2));
  });
}

// Every ONNX file in the folder AICF_FUZZ_MODELS becomes a seed too, if it compiles: so all kernels take
// part.
inline void add_models(Seeds& list) {
  const char* folder = std::getenv("AICF_FUZZ_MODELS");
  if (folder == nullptr) return;
  for (const auto& file : std::filesystem::directory_iterator(folder))
    list.emplace_back(file.path().stem().string() + ".aicf", [file](const std::string& path) {
      allow_coded_errors([&] {
        ImportOptions options;
        for (const OnnxDim& dim : dynamic_dims_onnx(file.path())) options.dims[dim.name].values = {1, 4};
        write_artifact(
            path, compile(import_onnx(file.path(), options), drawn_options(file.path().stem().string())));
        if (std::filesystem::file_size(path) > kMaxSeedBytes) std::filesystem::remove(path);
      });
    });
}

inline Seeds seeds() {
  Seeds list;
  const std::pair<const char*, Build> models[] = {{"mlp", mlp}, {"state", state}, {"control", control}};
  for (const auto& [name, body] : models)
    for (const int level : {0, 2})
      for (const Precision precision : {Precision::kF32, Precision::kF16Mixed})
        list.emplace_back(std::string(name) + std::to_string(level) + precision_name(precision) + ".aicf",
                          [body = body, level, precision](const std::string& path) {
                            write_artifact(path, compiled(program_of(body, level), level, precision));
                          });
  add_train_steps(list);
  add_gpu(list);
  add_models(list);
  return list;
}

}  // namespace aicf::fuzz
