// A stranger's .aicf: whatever it says under fitting checksums, loading and running it ends in success or in
// a coded error. Checksums are made to fit before every use, so mutations reach what stands behind them. What
// is compiled for GPUs runs on the null driver, which judges launches and machine code as the cuda driver
// does and computes nothing.
#include <xxhash.h>

#include <filesystem>

#include "compile/compile.h"
#include "harness.h"
#include "import/onnx.h"
#include "ir/text.h"
#include "kernels/cuda_kernel.h"
#include "runtime/null/null_device.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf::fuzz {
namespace {

std::string checksum(std::string_view bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text;
}

// Bytes of one tensor; empty if its entry is not sound.
std::string_view section(const Json& header, const std::string& data, const std::string& name) {
  if (!header.contains(name) || !header[name].is_object()) return {};
  const Json& entry = header[name];
  if (!entry.contains("data_offsets") || !entry["data_offsets"].is_array() ||
      entry["data_offsets"].size() != 2)
    return {};
  const Json &first = entry["data_offsets"][0], &last = entry["data_offsets"][1];
  if (!first.is_number_unsigned() || !last.is_number_unsigned()) return {};
  const uint64_t begin = first, end = last;
  if (begin > end || end > data.size()) return {};
  return std::string_view(data).substr(begin, end - begin);
}

// The section with other bytes, appended to the data so that no other tensor moves; the old bytes stay as a
// hole, which readers accept.
void replace_section(Json& header, std::string& data, const std::string& name, const std::string& bytes) {
  data.resize((data.size() + 63) / 64 * 64);
  header[name] = {{"dtype", "U8"},
                  {"shape", {bytes.size()}},
                  {"data_offsets", {data.size(), data.size() + bytes.size()}}};
  data += bytes;
}

// Drops the holes again, so that files do not grow from mutation to mutation.
void compact(Json& header, std::string& data) {
  std::string packed;
  for (auto& [name, entry] : header.items()) {
    if (name == "__metadata__") continue;
    const std::string bytes(section(header, data, name));
    if (bytes.empty()) continue;
    packed.resize((packed.size() + 63) / 64 * 64);
    entry["data_offsets"] = {packed.size(), packed.size() + bytes.size()};
    packed += bytes;
  }
  data = packed;
}

constexpr const char *kPlans = "aicf.plan.", *kCode = "aicf.code.";
constexpr const char* kGpu = "sm_90";
constexpr uintmax_t kMaxSeedBytes = 12000;

// All checksums made to fit; the bytes as they are where the file cannot be taken apart.
std::string resealed(std::string_view bytes) {
  Json header;
  std::string data;
  if (!split_safetensors(bytes, header, data)) return std::string(bytes);
  Json inner = Json::parse(section(header, data, "aicf.header"), nullptr, false);
  if (!inner.is_object() || !inner.contains("checksums") || !inner["checksums"].is_object())
    return std::string(bytes);
  for (auto& [name, sum] : inner["checksums"].items()) sum = checksum(section(header, data, name));
  const std::string text = dump(inner);
  replace_section(header, data, "aicf.header", text);
  if (header.contains("__metadata__") && header["__metadata__"].is_object())
    header["__metadata__"]["aicf.header_checksum"] = checksum(text);
  return join_safetensors(header, data);
}

constexpr const char* kLibraryCall =
    "130101 workspace 256 algorithm "
    "00000000000000010000000000000002000000000000000300000000000000040000000000000005000000000000000600000000"
    "000000070000000000000008";

const std::vector<std::string>& words() {
  static const std::vector<std::string> list = [] {
    std::vector<std::string> all = {"",
                                    "junk",
                                    "batch",
                                    "f64",
                                    "f32",
                                    "f16",
                                    "bf16",
                                    "i64",
                                    "i32",
                                    "i16",
                                    "i8",
                                    "u8",
                                    "bool",
                                    "main",
                                    "init",
                                    "input",
                                    "output",
                                    "variable",
                                    "constant",
                                    "packed",
                                    "arena",
                                    "F32",
                                    "U8",
                                    "I64",
                                    "BOOL",
                                    "batch+1",
                                    "-batch",
                                    "64*batch",
                                    "floordiv(64, batch-1)",
                                    "batch*1099511627776",
                                    "batch*batch*batch*4611686018427387904",
                                    "max(batch, 3)",
                                    "mod(batch, 2)",
                                    kLibraryCall,
                                    "91901 conv bias 2 relu workspace 0 engine 17 knobs 2:5,14:3",
                                    "91901 attention workspace 0 engine 3"};
    for (const char* name : {"if_else", "while_loop", "scan"}) all.emplace_back(name);
    for (const Kernel& kernel : kernel_table()) all.emplace_back(kernel.name);
    for (const CudaKernel& kernel : cuda_kernel_table()) all.emplace_back(kernel.name);
#define AICF_TILE_OP(name, arity, types) all.emplace_back(#name);
#include "kernels/tile_ops.def"
#undef AICF_TILE_OP
    return all;
  }();
  return list;
}

Array numbers(std::vector<int64_t> sizes, double from) {
  Array array(DType::f32, std::move(sizes));
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, from + 0.01 * static_cast<double>(i % 31));
  return array;
}

using Build = void (*)(Program& program, Graph& graph, ValueId x);

ValueId add_param(Program& program, Graph& graph, const std::string& name, std::vector<int64_t> sizes) {
  const TensorType type = {DType::f32, to_shape(sizes)};
  program.variables[name] = {name, Role::kParam, type, numbers(std::move(sizes), -0.1)};
  return graph.add_param(name, type);
}

// A graph over x [batch, 3, 4, 4], above level 0 with buckets.
Program program_of(Build body, int opt_level) {
  Program program;
  program.sizes["batch"] = {1, 8};
  if (opt_level > 0) program.buckets["batch"] = {1, 4, 8};
  Graph graph("main");
  const ValueId x = graph.add_input("x", {DType::f32, {Dim::symbol("batch"), Dim(3), Dim(4), Dim(4)}});
  body(program, graph, x);
  program.entries.push_back(std::move(graph));
  return program;
}

Artifact compiled(const Program& program, int opt_level, Precision precision) {
  CompileOptions options;
  options.opt_level = opt_level;
  options.precision = precision;
  return compile(program, options);
}

void mlp(Program& program, Graph& graph, ValueId x) {
  const ValueId w = add_param(program, graph, "0.W", {4, 5}), b = add_param(program, graph, "0.b", {5});
  const ValueId h = graph.add(Op::linear, {x, w, b});
  const ValueId n =
      graph.add(Op::layer_norm, {graph.add(Op::gelu, {h}), add_param(program, graph, "s", {5})});
  graph.add_output(graph.add(Op::softmax, {n}), "y");
}

void state(Program& program, Graph& graph, ValueId x) {
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
void control(Program&, Graph& graph, ValueId x) {
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
void loss(Program& program, Graph& graph, ValueId x) {
  const ValueId w = add_param(program, graph, "w", {4, 2});
  const ValueId target = graph.add_input("t", {DType::f32, {Dim::symbol("batch"), Dim(3), Dim(4), Dim(2)}});
  graph.add_output(add_loss(graph, LossKind::kMse, graph.add(Op::matmul, {x, w}), target), "loss");
}

// Plain descent, and a step with everything that guards one: clipped, accumulated, its loss scaled.
TrainOptions train_options(bool guarded) {
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

void add_train_steps(Seeds& list) {
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
void blocks(Program& program, Graph& graph, ValueId x) {
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
Array smallest_cubin() {
  Array image(DType::u8, {128});
  const std::pair<int64_t, int64_t> bytes[] = {{0, 0x7f}, {1, 'E'},  {2, 'L'}, {3, 'F'}, {4, 2},
                                               {5, 1},    {18, 190}, {40, 64}, {58, 64}, {60, 1}};
  for (const auto& [at, value] : bytes) image.set_i64(at, value);
  return image;
}

Artifact for_gpu(const Program& program, int level) {
  CompileOptions options;
  options.opt_level = level;
  options.target = kGpu;
  Artifact artifact = compile(program, options);
  for (Array& image : artifact.variants[0].code) image = smallest_cubin();
  return artifact;
}

// The first step is handed to a library.
Artifact with_library(Artifact artifact) {
  for (EntryPlan& entry : artifact.variants[0].plan.entries) entry.steps[0].library.call = kLibraryCall;
  return artifact;
}

void add_gpu(Seeds& list) {
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
void add_models(Seeds& list) {
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

Seeds seeds() {
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

// One of the sections whose names begin like this; "" if there is none.
std::string section_like(const Json& header, const std::string& prefix, Random& random) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : header.items())
    if (name.starts_with(prefix)) names.push_back(name);
  return names.empty() ? "" : pick(random, names);
}

void mutate_section(Json& header, std::string& data, const std::string& name, bool as_text, Random& random) {
  const std::string text(section(header, data, name));
  Json plan = as_text ? Json() : Json::parse(text, nullptr, false);
  if (as_text || plan.is_discarded()) {
    replace_section(header, data, name, mutate_text(text, 64));
  } else {
    mutate_json(plan, words(), random);
    replace_section(header, data, name, dump(plan));
  }
  compact(header, data);
}

std::string mutated(std::string_view bytes, Random& random) {
  Json header;
  std::string data;
  if (!split_safetensors(bytes, header, data)) return {};
  const uint64_t way = random() % 16;
  const std::string code = section_like(header, kCode, random), plan = section_like(header, kPlans, random);
  if (way < 2 || plan.empty()) {
    mutate_json(header, words(), random);
  } else if (way == 2 && !code.empty()) {
    mutate_section(header, data, code, true, random);
  } else {
    mutate_section(header, data, plan, way < 5, random);
  }
  return resealed(join_safetensors(header, data));
}

// Each variant on the device that it is for.
void run_variants(const Artifact& artifact) {
  static const std::shared_ptr<Device> no_gpu = make_null_device(true);
  for (const Variant& variant : artifact.variants) {
    Artifact one = artifact;
    one.variants = {variant};
    const bool runs_here = device()->fitness(variant.target) > 0;
    allow_coded_errors([&] { run_everything(std::move(one), runs_here ? device() : no_gpu); });
  }
}

}  // namespace
}  // namespace aicf::fuzz

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  aicf::fuzz::set_limits();
  aicf::fuzz::write_seeds_if_asked(aicf::fuzz::seeds);
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned seed) {
  return aicf::fuzz::mutate(data, size, max_size, seed, aicf::fuzz::mutated);
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace aicf;
  static fuzz::MemoryFile file;
  file.write(fuzz::resealed({reinterpret_cast<const char*>(data), size}));
  fuzz::allow_coded_errors([&] { fuzz::run_variants(read_artifact(file.path())); });
  return 0;
}
