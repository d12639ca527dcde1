// Files that lie about themselves, or grow, are refused with a code, within bounds of memory and work.
#include <gtest/gtest.h>

#include <filesystem>

#include "base/atomic_file.h"
#include "import/testing/import_model.h"

namespace aicf {
namespace {

using namespace onnx_test;  // NOLINT: the writer's short names are the point

// A model whose first weight is not in it, but in the file `location`.
Model mlp_with_external_weight(const std::string& location) {
  std::string proto, entry;
  Writer e(entry);
  e.add_string(1, "location");
  e.add_string(2, location);
  Writer w(proto);
  w.add_int64(1, 2);
  w.add_int64(1, 2);
  w.add_int32(2, 1);
  w.add_string(8, "w");
  w.add_message(13, entry);
  for (const auto& [key, value] : {std::pair("offset", "4"), std::pair("length", "16")}) {
    std::string pair;
    Writer p(pair);
    p.add_string(1, key);
    p.add_string(2, value);
    w.add_message(13, pair);
  }
  w.add_int32(14, 1);
  Model m = mlp();
  m.initializers[0] = proto;
  return m;
}

UserError external_error(const std::string& location) {
  try {
    import_onnx_bytes(mlp_with_external_weight(location).bytes(), with_dims({{"batch", "1"}}),
                      ::testing::TempDir());
  } catch (const UserError& error) {
    return error;
  }
  return UserError(ErrorCode::kU_misuse, "none");
}

TEST(HostileOnnx, ExternalDataStaysInsideTheFolder) {
  for (const char* location : {"../secret", "/etc/passwd", "a/../../b"})
    EXPECT_EQ(external_error(location).code, ErrorCode::kU_path_escape) << location;
}

TEST(HostileOnnx, AnExternalFileThatIsTooShortIsNamedWithItsSize) {
  const std::string name = "onnx_external_weight.bin", path = ::testing::TempDir() + "/" + name;
  for (const int size : {0, 3, 19}) {
    write_file_atomically(path, std::string(static_cast<size_t>(size), 'x'));
    const UserError error = external_error(name);
    EXPECT_EQ(error.code, ErrorCode::kU_bad_model_file) << size;
    EXPECT_NE(error.value.find(name), std::string::npos) << error.value;
    EXPECT_EQ(error.expected, "16 bytes from byte 4");
    EXPECT_EQ(error.actual, "a file of " + std::to_string(size) + " bytes");
  }
  write_file_atomically(path, std::string(20, 'x'));
  EXPECT_EQ(external_error(name).code, ErrorCode::kU_misuse);  // none: it is long enough
  std::filesystem::remove(path);
}

TEST(HostileOnnx, TruncatedAndForeignFilesAreCodedErrors) {
  const std::string bytes = mlp().bytes();
  const ImportOptions options = with_dims({{"batch", "1"}});
  for (size_t size = 0; size < bytes.size(); ++size) {
    try {
      import_onnx_bytes(std::string_view(bytes).substr(0, size), options);
    } catch (const UserError&) {
    }
  }
  std::string flipped = bytes;
  for (size_t i = 0; i < bytes.size(); ++i) {
    for (unsigned char bit : {0x01, 0x80}) {
      flipped[i] = static_cast<char>(static_cast<unsigned char>(bytes[i]) ^ bit);
      try {
        import_onnx_bytes(flipped, options);
      } catch (const UserError&) {
      }
    }
    flipped[i] = bytes[i];
  }
  EXPECT_THROW(import_onnx_bytes("PK\x03\x04 not a model", options), UserError);
}

// Small files that would grow without end: repeated squaring of a size, functions that double their calls.
TEST(HostileOnnx, HostileGrowthIsBounded) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"batch", "n"})};
  m.nodes = {node("Size", {"x"}, {"s0"})};
  for (int i = 0; i < 40; ++i)
    m.nodes.push_back(
        node("Mul", {"s" + std::to_string(i), "s" + std::to_string(i)}, {"s" + std::to_string(i + 1)}));
  m.outputs = {value_info("s40", DType::i64, {})};
  import_model(m, with_dims({{"batch", "1..8"}, {"n", "1..8"}}));

  Model calls;
  for (int i = 0; i < 60; ++i) {
    std::string function;
    Writer w(function);
    w.add_string(1, "F" + std::to_string(i));
    w.add_string(4, "a");
    w.add_string(5, "c");
    const std::string next = i == 59 ? "Identity" : "F" + std::to_string(i + 1),
                      domain = i == 59 ? "" : "local";
    w.add_message(7, node(next, {"a"}, {"b"}, {}, domain));
    w.add_message(7, node(next, {"b"}, {"c"}, {}, domain));
    Model::add_opset(w, 9, "", 21);
    Model::add_opset(w, 9, "local", 1);
    w.add_string(10, "local");
    calls.functions.push_back(function);
  }
  calls.inputs = {value_info("x", DType::f32, {"1"})};
  calls.nodes = {node("F0", {"x"}, {"y"}, {}, "local")};
  calls.outputs = {out("y")};
  EXPECT_EQ(error_of(calls).code, ErrorCode::kU_bad_model_file);
}

// A shape that decides only after a product of hours.
TEST(HostileOnnx, FoldedWorkIsBounded) {
  Model m;
  m.inputs = {value_info("x", DType::f32, {"4"})};
  m.initializers = {tensor("sizes", ints({4096, 4096})), tensor("axes", ints({0}))};
  m.nodes = {node("ConstantOfShape", {"sizes"}, {"a"}),
             node("MatMul", {"a", "a"}, {"b"}),
             node("ReduceMax", {"b"}, {"c"}, {attr("keepdims", int64_t{0})}),
             node("Cast", {"c"}, {"d"}, {attr("to", int64_t{7})}),
             node("Unsqueeze", {"d", "axes"}, {"e"}),
             node("Reshape", {"x", "e"}, {"y"})};
  m.outputs = {out("y")};
  EXPECT_EQ(error_of(m).code, ErrorCode::kU_size_not_static);
}

// Operands of the wrong rank or count, where a converter looks at a certain axis or element.
TEST(HostileOnnx, OperandsOfTheWrongRankAreCodedErrors) {
  const auto with = [](const std::string& op, const std::vector<std::vector<std::string>>& shapes,
                       const std::vector<std::string>& outputs = {"y"}) {
    Model m;
    std::vector<std::string> names;
    for (size_t i = 0; i < shapes.size(); ++i) {
      names.push_back("x" + std::to_string(i));
      m.inputs.push_back(value_info(names.back(), DType::f32, shapes[i]));
    }
    m.nodes = {node(op, names, outputs)};
    m.outputs = {out("y")};
    return m;
  };
  for (const char* op : {"LSTM", "GRU", "RNN"}) {
    EXPECT_EQ(error_of(with(op, {{"3", "1", "2"}, {"1", "28", "2"}, {"28", "7"}})).code,
              ErrorCode::kU_bad_model_file);
    EXPECT_EQ(error_of(with(op, {{"3"}, {"1", "28", "2"}, {"1", "28", "7"}})).code,
              ErrorCode::kU_bad_model_file);
  }
  EXPECT_EQ(error_of(with("Einsum", {})).code, ErrorCode::kU_bad_model_file);
  EXPECT_EQ(error_of(with("InstanceNormalization", {{"3"}, {"3"}, {"3"}})).code,
            ErrorCode::kU_bad_model_file);

  for (const char* op : {"Range", "HannWindow", "DepthToSpace"}) {
    Model m;
    m.initializers = {tensor("none", floats({0}, {})), tensor("no_ints", ints({})),
                      tensor("x", floats({1, 4, 1, 1}, {1, 2, 3, 4}))};
    if (std::string(op) == "DepthToSpace")
      m.nodes = {node(op, {"x"}, {"y"}, {attr("blocksize", int64_t{1} << 40)})};
    else
      m.nodes = {node(op,
                      std::string(op) == "Range" ? std::vector<std::string>{"none", "none", "none"}
                                                 : std::vector<std::string>{"no_ints"},
                      {"y"})};
    m.outputs = {out("y")};
    error_of(m);
  }
}

// What the fuzzer once broke the importer with: it may be refused, with a code that does not blame us.
TEST(HostileOnnx, FoundInputsAreRefusedOrImported) {
  int files = 0;
  for (const auto& file :
       std::filesystem::directory_iterator(AICF_SOURCE_DIR "/fuzz/regressions/fuzz_onnx")) {
    ++files;
    try {
      import_onnx(file.path().string());
    } catch (const Error& error) {
      EXPECT_NE(error.kind(), ErrorKind::kInternal) << file.path() << ": " << error.what();
    }
  }
  EXPECT_GE(files, 6);
}

}  // namespace
}  // namespace aicf
