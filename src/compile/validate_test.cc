// Validation (validate.h): right models pass in every precision, also those that no fixed tolerance fits, and
// kernels with seeded faults fail, by name. AICF_VALIDATE_FAULTS sets the count of faults (1,000 with
// AICF_SOAK=1), AICF_SEED runs one of them.
#include "compile/validate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <random>
#include <regex>

#include "base/testing/random_seeds.h"
#include "compile/testing/kernel_faults.h"
#include "compile/testing/random_arrays.h"
#include "compile/testing/random_graph.h"
#include "compile/testing/test_device.h"
#include "ir/reference/evaluator.h"
#include "ir/text.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "train/losses.h"
#include "train/schedules.h"
#include "train/train_step.h"

namespace aicf::testing::validate_test {
namespace {

using Arrays = std::map<std::string, Array>;

struct Model {
  std::string name;
  Program program;
  Arrays inputs;
};

// Of "entry main" alone: params are declared and filled with normal numbers over the root of their length.
Program program_of(const std::string& entry) {
  std::map<std::string, std::string> params;
  const std::regex pattern("= param \"([^\"]+)\" : ([a-z0-9]+\\[[^\\]]*\\])");
  for (std::sregex_iterator at(entry.begin(), entry.end(), pattern), end; at != end; ++at)
    params[(*at)[1]] = (*at)[2];
  std::string text = "program {\n";
  for (const auto& [name, type] : params) text += "param \"" + name + "\" : " + type + "\n";
  Program program = parse(text + entry + "}\n");
  uint32_t seed = 1;
  for (auto& [name, variable] : program.variables) {
    const std::vector<int64_t> sizes = evaluate(variable.type.shape, {});
    Array array = random_array(sizes, seed++);
    int64_t length = 1;
    for (size_t a = sizes.size() == 2 ? 0 : 1; a < sizes.size(); ++a)
      length *= a == 1 && sizes.size() == 2 ? 1 : sizes[a];
    variable.data = Array(variable.type.dtype, sizes);
    for (int64_t i = 0; i < array.count(); ++i)
      variable.data.set_f64(i, sizes.size() == 1 ? 1 + 0.5 * array.get_f64(i)
                                                 : array.get_f64(i) / std::sqrt(static_cast<double>(length)));
  }
  return program;
}

std::string replaced(std::string text, const std::string& from, const std::string& to) {
  for (size_t at = 0; (at = text.find(from, at)) != std::string::npos; at += to.size())
    text.replace(at, from.size(), to);
  return text;
}

const char* const kMlp = R"(entry main(%x: f32[24, 96]) {
  %w1 = param "w1" : f32[96, 160]
  %b1 = param "b1" : f32[160]
  %w2 = param "w2" : f32[160, 64]
  %b2 = param "b2" : f32[64]
  %1 = linear(%x, %w1, %b1) : f32[24, 160]
  %2 = gelu(%1) : f32[24, 160]
  %3 = linear(%2, %w2, %b2) : f32[24, 64]
  %4 = softmax(%3) {axis = 1} : f32[24, 64]
  return "y" = %4, "logits" = %3
})";

// A layer of the encoder, from %INx to %OUTx.
const char* const kLayer = R"(
  %LAYs1 = param "LAY.s1" : f32[32]
  %LAYt1 = param "LAY.t1" : f32[32]
  %LAYwq = param "LAY.wq" : f32[32, 32]
  %LAYbq = param "LAY.bq" : f32[32]
  %LAYwk = param "LAY.wk" : f32[32, 32]
  %LAYbk = param "LAY.bk" : f32[32]
  %LAYwv = param "LAY.wv" : f32[32, 32]
  %LAYbv = param "LAY.bv" : f32[32]
  %LAYwo = param "LAY.wo" : f32[32, 32]
  %LAYbo = param "LAY.bo" : f32[32]
  %LAYn = layer_norm(%IN, %LAYs1, %LAYt1) {axis = -1, epsilon = 1e-3} : f32[2, 17, 32]
  %LAYq = linear(%LAYn, %LAYwq, %LAYbq) : f32[2, 17, 32]
  %LAYk = linear(%LAYn, %LAYwk, %LAYbk) : f32[2, 17, 32]
  %LAYv = linear(%LAYn, %LAYwv, %LAYbv) : f32[2, 17, 32]
  %LAYqh = reshape(%LAYq) {shape = [2, 17, 4, 8]} : f32[2, 17, 4, 8]
  %LAYkh = reshape(%LAYk) {shape = [2, 17, 4, 8]} : f32[2, 17, 4, 8]
  %LAYvh = reshape(%LAYv) {shape = [2, 17, 4, 8]} : f32[2, 17, 4, 8]
  %LAYqt = transpose(%LAYqh) {perm = [0, 2, 1, 3]} : f32[2, 4, 17, 8]
  %LAYkt = transpose(%LAYkh) {perm = [0, 2, 1, 3]} : f32[2, 4, 17, 8]
  %LAYvt = transpose(%LAYvh) {perm = [0, 2, 1, 3]} : f32[2, 4, 17, 8]
  %LAYa = attention(%LAYqt, %LAYkt, %LAYvt, %mask) {scale = 0.35355339} : f32[2, 4, 17, 8]
  %LAYat = transpose(%LAYa) {perm = [0, 2, 1, 3]} : f32[2, 17, 4, 8]
  %LAYam = reshape(%LAYat) {shape = [2, 17, 32]} : f32[2, 17, 32]
  %LAYo = linear(%LAYam, %LAYwo, %LAYbo) : f32[2, 17, 32]
  %LAYr = add(%LAYo, %IN) : f32[2, 17, 32]
  %LAYs2 = param "LAY.s2" : f32[32]
  %LAYt2 = param "LAY.t2" : f32[32]
  %LAYw1 = param "LAY.w1" : f32[32, 64]
  %LAYb1 = param "LAY.b1" : f32[64]
  %LAYw2 = param "LAY.w2" : f32[64, 32]
  %LAYb2 = param "LAY.b2" : f32[32]
  %LAYm = layer_norm(%LAYr, %LAYs2, %LAYt2) {axis = -1, epsilon = 1e-3} : f32[2, 17, 32]
  %LAYh = linear(%LAYm, %LAYw1, %LAYb1) : f32[2, 17, 64]
  %LAYg = gelu(%LAYh) : f32[2, 17, 64]
  %LAYf = linear(%LAYg, %LAYw2, %LAYb2) : f32[2, 17, 32]
  %OUT = add(%LAYf, %LAYr) : f32[2, 17, 32])";

std::string encoder() {
  std::string text = "entry main(%x: f32[2, 17, 32], %mask: bool[2, 1, 1, 17]) {", in = "x";
  for (const std::string layer : {"l0", "l1"}) {
    text += replaced(replaced(replaced(kLayer, "LAY", layer), "%IN", "%" + in), "%OUT", "%" + layer);
    in = layer;
  }
  return text + R"(
    %p = reduce_mean(%l1) {axes = [1]} : f32[2, 32]
    %c = argmax(%p) {axis = 1} : i64[2]
    return "y" = %l1, "pooled" = %p, "class" = %c
  })";
}

const char* const kConvNet = R"(entry main(%x: f32[2, 3, 16, 16]) {
  %w1 = param "w1" : f32[16, 3, 3, 3]
  %b1 = param "b1" : f32[16]
  %s = param "s" : f32[16]
  %t = param "t" : f32[16]
  %m = param "m" : f32[16]
  %w2 = param "w2" : f32[16, 1, 3, 3]
  %w3 = param "w3" : f32[24, 16, 3, 3]
  %b3 = param "b3" : f32[24]
  %w4 = param "w4" : f32[24, 10]
  %b4 = param "b4" : f32[10]
  %mm = mul(%m, %m) : f32[16]
  %1 = conv(%x, %w1, %b1) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1]} : f32[2, 16, 16, 16]
  %2 = batch_norm(%1, %s, %t, %m, %mm) {epsilon = 1e-3} : f32[2, 16, 16, 16]
  %3 = relu(%2) : f32[2, 16, 16, 16]
  %4 = max_pool(%3) {kernel = [2, 2], strides = [2, 2], pads = [0, 0, 0, 0], dilations = [1, 1]} : f32[2, 16, 8, 8]
  %5 = conv(%4, %w2) {strides = [1, 1], pads = [1, 1, 1, 1], dilations = [1, 1], groups = 16} : f32[2, 16, 8, 8]
  %6 = add(%5, %4) : f32[2, 16, 8, 8]
  %7 = conv(%6, %w3, %b3) {strides = [2, 2], pads = [1, 1, 1, 1], dilations = [1, 1]} : f32[2, 24, 4, 4]
  %8 = silu(%7) : f32[2, 24, 4, 4]
  %9 = reduce_mean(%8) {axes = [2, 3]} : f32[2, 24]
  %10 = linear(%9, %w4, %b4) : f32[2, 10]
  %11 = log_softmax(%10) {axis = 1} : f32[2, 10]
  return "y" = %11
})";

const char* const kRecurrent = R"(entry main(%x: f32[9, 3, 12], %h0: f32[3, 24]) {
  %w = param "w" : f32[12, 24]
  %u = param "u" : f32[24, 24]
  %v = param "v" : f32[24, 24]
  %wz = param "wz" : f32[12, 24]
  %b = param "b" : f32[24]
  %a0 = matmul(%x, %w) : f32[9, 3, 24]
  %a = add(%a0, %b) : f32[9, 3, 24]
  %z = matmul(%x, %wz) : f32[9, 3, 24]
  %h, %all = scan(%h0, %a, %z, %us, %vs) {carried = 1, reverse = false}
    body(%s: f32[3, 24] as "s", %e: f32[3, 24] as "e", %g: f32[3, 24] as "g", %U: f32[24, 24] as "U", %V: f32[24, 24] as "V") {
      %1 = matmul(%s, %U) : f32[3, 24]
      %2 = add(%1, %e) : f32[3, 24]
      %3 = tanh(%2) : f32[3, 24]
      %4 = matmul(%s, %V) : f32[3, 24]
      %5 = add(%4, %g) : f32[3, 24]
      %6 = sigmoid(%5) : f32[3, 24]
      %7 = sub(%3, %s) : f32[3, 24]
      %8 = mul(%7, %6) : f32[3, 24]
      %9 = add(%8, %s) : f32[3, 24]
      return %9, %9
    } : f32[3, 24], f32[9, 3, 24]
  %m = reduce_mean(%all) {axes = [0]} : f32[3, 24]
  %y = add(%m, %h) : f32[3, 24]
  return "y" = %y, "all" = %all
})";

// A scan walks what it does not carry: weights are walked as copies, one a step.
std::string recurrent() {
  return replaced(kRecurrent, "  %h, %all", R"(  %us = broadcast_to(%u) {shape = [9, 24, 24]} : f32[9, 24, 24]
  %vs = broadcast_to(%v) {shape = [9, 24, 24]} : f32[9, 24, 24]
  %h, %all)");
}

const char* const kLoss = R"(entry loss(%x: f32[24, 20], %labels: i64[24]) {
  %w1 = param "w1" : f32[20, 40]
  %b1 = param "b1" : f32[40]
  %s = param "s" : f32[40]
  %t = param "t" : f32[40]
  %w2 = param "w2" : f32[40, 10]
  %b2 = param "b2" : f32[10]
  %1 = linear(%x, %w1, %b1) : f32[24, 40]
  %2 = layer_norm(%1, %s, %t) {axis = -1, epsilon = 1e-3} : f32[24, 40]
  %3 = relu(%2) : f32[24, 40]
  %4 = linear(%3, %w2, %b2) : f32[24, 10]
  %5 = cross_entropy(%4, %labels) : f32[]
  return "loss" = %5
})";

Program training_step() {
  TrainOptions options;
  options.optimizer.kind = OptimizerKind::kAdamW;
  options.schedule = cosine_rate(0.1, 100);
  return make_train_program(program_of(kLoss), options);
}

Model model_of(const std::string& name, Program program) {
  Model model{name, std::move(program), {}};
  const Graph& graph = model.program.entries[0];
  uint32_t seed = 40;
  for (const ValueId id : graph.inputs()) {
    const Value& value = graph.value(id);
    const std::vector<int64_t> sizes = evaluate(value.type.shape, {});
    Array array = random_array(value.type.dtype, sizes, seed++);
    for (int64_t i = 0; i < array.count(); ++i)
      if (!is_float(value.type.dtype))
        array.set_i64(i, value.type.dtype == DType::boolean ? i % 17 < 13 + i / 17 : i * 7 % 10);
    model.inputs.emplace(value.name, std::move(array));
  }
  return model;
}

// As torch.autocast computes: products, attention and activations of `dtype` over weights of f32, norms,
// residuals and results of f32.
std::string autocast(const std::string& dtype) {
  std::string text = R"(entry main(%x: f32[2, 17, 32]) {)";
  const auto half = [&](const std::string& to, const std::string& from, const std::string& sizes) {
    text += "  %" + to + " = cast(%" + from + ") {dtype = half} : half" + sizes + "\n";
  };
  const auto linear = [&](const std::string& y, const std::string& x, const std::string& rows, int k, int n) {
    const std::string weight = "[" + std::to_string(k) + ", " + std::to_string(n) + "]",
                      bias = "[" + std::to_string(n) + "]";
    text += "  %w" + y + " = param \"w" + y + "\" : f32" + weight + "\n  %b" + y + " = param \"b" + y +
            "\" : f32" + bias + "\n";
    half("hw" + y, "w" + y, weight);
    half("hb" + y, "b" + y, bias);
    text += "  %" + y + " = linear(%" + x + ", %hw" + y + ", %hb" + y + ") : half[" + rows + ", " +
            std::to_string(n) + "]\n";
  };
  text += R"(
  %s = param "s" : f32[32]
  %t = param "t" : f32[32]
  %n = layer_norm(%x, %s, %t) {axis = -1, epsilon = 1e-3} : f32[2, 17, 32]
)";
  half("h", "n", "[2, 17, 32]");
  for (const std::string name : {"q", "k", "v"}) {
    linear(name, "h", "2, 17", 32, 32);
    text += "  %" + name + "r = reshape(%" + name + ") {shape = [2, 17, 4, 8]} : half[2, 17, 4, 8]\n  %" +
            name + "t = transpose(%" + name + "r) {perm = [0, 2, 1, 3]} : half[2, 4, 17, 8]\n";
  }
  text += R"(  %a = attention(%qt, %kt, %vt) {scale = 0.35355339} : half[2, 4, 17, 8]
  %at = transpose(%a) {perm = [0, 2, 1, 3]} : half[2, 17, 4, 8]
  %am = reshape(%at) {shape = [2, 17, 32]} : half[2, 17, 32]
)";
  linear("o", "am", "2, 17", 32, 32);
  text += R"(  %of = cast(%o) {dtype = f32} : f32[2, 17, 32]
  %r = add(%of, %x) : f32[2, 17, 32]
  %m = layer_norm(%r, %s, %t) {axis = -1, epsilon = 1e-3} : f32[2, 17, 32]
)";
  half("hm", "m", "[2, 17, 32]");
  linear("u", "hm", "2, 17", 32, 64);
  text += "  %g = gelu(%u) : half[2, 17, 64]\n";
  linear("d", "g", "2, 17", 64, 32);
  text += R"(  %df = cast(%d) {dtype = f32} : f32[2, 17, 32]
  %y = add(%df, %r) : f32[2, 17, 32]
  %p = reduce_mean(%y) {axes = [1]} : f32[2, 32]
  %c = softmax(%p) {axis = 1} : f32[2, 32]
  return "y" = %y, "c" = %c
})";
  return replaced(text, "half", dtype);
}

std::vector<Model> five_models() {
  std::vector<Model> models;
  models.push_back(model_of("mlp", program_of(kMlp)));
  models.push_back(model_of("encoder", program_of(encoder())));
  models.push_back(model_of("convnet", program_of(kConvNet)));
  models.push_back(model_of("recurrent", program_of(recurrent())));
  models.push_back(model_of("training step", training_step()));
  return models;
}

Validation judged(const Program& program, const Arrays& inputs, const std::shared_ptr<Device>& device,
                  Precision precision = Precision::kF32) {
  ValidateOptions options;
  options.compile.precision = precision;
  if (device->name() != "cpu") options.compile.target = TestDevice::get().target;
  options.load = [&](Artifact artifact) {
    return std::make_unique<Executable>(aicf::Model::load(std::move(artifact), device));
  };
  const std::unique_ptr<Executable> exe = options.load(compile(program, options.compile));
  return validate(program, *exe, inputs, options);
}

// That of test_device.h; the CPU where it only compiles.
std::shared_ptr<Device> right_device() {
  const TestDevice& where = TestDevice::get();
  return where.cuda && where.runs ? open_device({"cuda"}) : make_cpu_device({2, detect_isa()});
}

TEST(Validate, RightModelsPassInEveryPrecision) {
  for (const Model& model : five_models())
    for (const Precision precision :
         {Precision::kF32, Precision::kTf32, Precision::kBf16Mixed, Precision::kF16Mixed}) {
      const Validation validation = judged(model.program, model.inputs, right_device(), precision);
      EXPECT_TRUE(validation.passed()) << model.name << " in " << precision_name(precision) << "\n"
                                       << to_string(validation);
      EXPECT_GT(validation.calls, 1u) << model.name;
      for (const OutputCheck& output : validation.outputs)
        EXPECT_EQ(output.report.undecided, 0) << model.name << ": " << output.name;
    }
}

TEST(Validate, RightModelsOfHalvesPass) {
  for (const std::string dtype : {"bf16", "f16"})
    for (const std::string& text : {std::string(kMlp), encoder(), std::string(kConvNet), recurrent()}) {
      const Model model = model_of(dtype, program_of(replaced(text, "f32", dtype)));
      const Validation validation = judged(model.program, model.inputs, right_device());
      EXPECT_TRUE(validation.passed()) << print(model.program) << to_string(validation);
    }
}

TEST(Validate, RightAutocastModelsPass) {
  for (const std::string dtype : {"bf16", "f16"}) {
    const Model model = model_of(dtype, program_of(autocast(dtype)));
    const Validation validation = judged(model.program, model.inputs, right_device());
    EXPECT_TRUE(validation.passed()) << print(model.program) << to_string(validation);
  }
}

uint64_t fault_count() { return soaks() ? 1000 : 30; }

// Faults of these seeds, each in one of the models, which a right device passes in this precision.
void expect_faults_found(const std::vector<Model>& models, Precision precision, const RandomSeeds& seeds) {
  CompileOptions options;
  options.precision = precision;
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const Model& model = models[seed % models.size()];
    const Artifact artifact = compile(model.program, options);
    // A fault that changes no bit of this run is none: another is drawn.
    for (uint64_t draw = 0;; ++draw) {
      const KernelFault fault = draw_fault(artifact.variants[0].plan, seed + 100003 * draw);
      bool changed = false;
      const Validation validation =
          judged(model.program, model.inputs, make_faulty_cpu(fault, &changed), precision);
      if (!changed) {
        EXPECT_TRUE(validation.passed()) << to_string(validation);
        continue;
      }
      EXPECT_FALSE(validation.passed())
          << rerun_text(seed, seeds, model.name + ": " + fault.text() + "\n" + to_string(validation),
                        [&] { return print(model.program); });
      const std::string kernel = fault.step.substr(0, fault.step.find(' '));
      ASSERT_FALSE(validation.failed_calls.empty()) << "seed " << seed << ", " << model.name << " in "
                                                    << precision_name(precision) << ": " << fault.text();
      // A copy has no call of its own: the one that reads it is named.
      if (!fault.copies) {
        EXPECT_EQ(validation.failed_calls[0].kernel, kernel)
            << "seed " << seed << ", " << fault.text() << to_string(validation);
      }
      break;
    }
  }
}

TEST(Validate, KernelsWithSeededFaultsFailByName) {
  expect_faults_found(five_models(), Precision::kF32,
                      seeds_from_environment("AICF_VALIDATE_FAULTS", fault_count()));
}

TEST(Validate, KernelsWithSeededFaultsFailInMixedPrecision) {
  const RandomSeeds seeds = seeds_from_environment("AICF_VALIDATE_FAULTS", fault_count());
  for (const Precision precision : {Precision::kBf16Mixed, Precision::kF16Mixed})
    expect_faults_found(five_models(), precision, seeds);
  std::vector<Model> models;
  for (const std::string dtype : {"bf16", "f16"})
    models.push_back(model_of("autocast to " + dtype, program_of(autocast(dtype))));
  expect_faults_found(models, Precision::kF32, seeds);
}

struct HardCase {
  const char* name;
  const char* entry;
  double scale;  // of the inputs
};

// Models in which a right program is further from f64 than 1e-4 of the result, or where a constant would have
// to be so large that it finds nothing.
const HardCase kHardCases[] = {
    {"a long sum that cancels", R"(entry main(%x: f32[4, 50000]) {
  %1 = reverse(%x) {axes = [1]} : f32[4, 50000]
  %2 = sub(%x, %1) : f32[4, 50000]
  %3 = mul(%2, %2) : f32[4, 50000]
  %4 = mul(%3, %2) : f32[4, 50000]
  %5 = reduce_sum(%4) {axes = [1]} : f32[4]
  return "y" = %5
})",
     1e4},
    {"angles of thousands", R"(entry main(%x: f32[8, 256]) {
  %w = param "w" : f32[256, 50]
  %1 = matmul(%x, %w) : f32[8, 50]
  %2 = sin(%1) : f32[8, 50]
  return "y" = %2
})",
     1e4},
    {"small differences of large values", R"(entry main(%x: f32[8, 256]) {
  %c = constant f32[] = [10000]
  %1 = add(%x, %c) : f32[8, 256]
  %2 = layer_norm(%1) {axis = -1} : f32[8, 256]
  return "y" = %2
})",
     1e-2},
};

// Each layer magnifies errors.
std::string chain(const std::string& dtype, int layers) {
  std::string text =
      "entry main(%v0: f32[8, 64]) {\n %w = param \"w\" : f32[64, 64]\n %gain = constant f32[] = [1.5]\n";
  for (int i = 0; i < layers; ++i) {
    const std::string at = std::to_string(i), next = std::to_string(i + 1);
    text += " %p" + at + " = matmul(%v" + at + ", %w) : f32[8, 64]\n %q" + at + " = mul(%p" + at +
            ", %gain) : f32[8, 64]\n %v" + next + " = tanh(%q" + at + ") : f32[8, 64]\n";
  }
  return replaced(text + " return \"y\" = %v" + std::to_string(layers) + "\n}", "f32", dtype);
}

TEST(Validate, RightModelsPassThatNoFixedToleranceFits) {
  std::vector<Model> models;
  std::vector<double> scales;
  for (const HardCase& test : kHardCases) {
    models.push_back(model_of(test.name, program_of(test.entry)));
    scales.push_back(test.scale);
  }
  for (const char* dtype : {"f16", "bf16"}) {
    models.push_back(model_of(std::string("a chain of ") + dtype, program_of(chain(dtype, 16))));
    scales.push_back(1);
  }
  for (size_t m = 0; m < models.size(); ++m) {
    Model& model = models[m];
    for (auto& [name, array] : model.inputs)
      for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, scales[m] * array.get_f64(i));
    const Validation validation = judged(model.program, model.inputs, right_device());
    EXPECT_TRUE(validation.passed()) << model.name << "\n" << to_string(validation);
    // The fixed tolerances of f32, and of halves in places of their dtype.
    const Array got =
        Executable(aicf::Model::load(compile(model.program), make_cpu_device({2, detect_isa()})))
            .run("", model.inputs)
            .at("y");
    const Array want =
        evaluate(model.program, model.program.entries[0], {model.inputs, {}}, {false}).outputs.at("y");
    const double place = got.dtype() == DType::f16 ? 0x1p-10 : got.dtype() == DType::bf16 ? 0x1p-7 : 0;
    EXPECT_FALSE(compare(got, want, std::max(1e-4, 8 * place), std::max(1e-5, place)).ok())
        << model.name << ": " << to_string(compare(got, want, 1e-4, 1e-5));
  }
}

TEST(Validate, ADecisionBetweenNearValuesIsUndecided) {
  const Model model = model_of("ties", program_of(R"(entry main(%x: f32[64, 300]) {
  %1 = reduce_sum(%x) {axes = [1]} : f32[64]
  %2 = reverse(%x) {axes = [1]} : f32[64, 300]
  %3 = reduce_sum(%2) {axes = [1]} : f32[64]
  %4 = gt(%1, %3) : bool[64]
  %5 = concat(%1, %3) {axis = 0} : f32[128]
  %6 = reshape(%5) {shape = [2, 64]} : f32[2, 64]
  %7 = argmax(%6) {axis = 0} : i64[64]
  return "above" = %4, "which" = %7
})"));
  const Validation validation = judged(model.program, model.inputs, right_device());
  EXPECT_TRUE(validation.passed()) << to_string(validation);
  for (const OutputCheck& output : validation.outputs) EXPECT_GT(output.report.undecided, 50) << output.name;
}

TEST(Validate, RightRandomProgramsPass) {
  const RandomSeeds seeds = seeds_from_environment("AICF_VALIDATE_GRAPHS", fault_count() == 30 ? 100 : 3000);
  for (uint64_t seed = seeds.first; seed <= seeds.last; ++seed) {
    const Program program = random_program(seed);
    const Validation validation = judged(program, random_inputs(program, 3, seed), right_device());
    EXPECT_TRUE(validation.passed()) << rerun_text(seed, seeds, to_string(validation),
                                                   [&] { return print(program); });
  }
}

}  // namespace
}  // namespace aicf::testing::validate_test
