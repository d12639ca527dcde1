// What happens to a model whose file is written to while it is loaded: a copy of the file is not touched by
// it, a mapped file is refused.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "base/mapped_file.h"
#include "compile/compile.h"
#include "compile/testing/random_arrays.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::changed_file_test {
namespace {

using testing::random_array;
using Arrays = std::map<std::string, Array>;

// y = x + w and a state that adds up y: `w` is read from the file's bytes in each run, never packed.
Artifact artifact_with(uint32_t seed) {
  Program program;
  const TensorType type = {DType::f32, {Dim(64)}};
  program.variables["w"] = {"w", Role::kParam, type, random_array(DType::f32, {64}, seed)};
  program.variables["sum"] = {"sum", Role::kState, type, random_array(DType::f32, {64}, seed + 1)};
  Graph graph("main");
  const ValueId x = graph.add_input("x", type);
  const ValueId y = graph.add(Op::add, {x, graph.add_param("w", type)});
  const ValueId sum = graph.add_state("sum", type);
  graph.add_update(sum, graph.add(Op::add, {sum, y}));
  graph.add_output(y, "y");
  program.entries.push_back(std::move(graph));
  return compile(program, {});
}

std::string contents(const std::string& path) { return std::string(MappedFile::open(path)->text()); }

class ChangedFile : public ::testing::Test {
 protected:
  void SetUp() override {
    write_artifact(other_, artifact_with(9));
    write_artifact(path_, artifact_with(1));
  }
  void TearDown() override { unsetenv("AICF_COPIED_FILES"); }
  void write_in_place(const std::string& bytes) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
  }
  Executable load() const {
    return Executable(Model::load(read_artifact(path_), make_cpu_device({1, detect_isa()})));
  }
  static ErrorCode code_of(const std::function<void()>& call) {
    try {
      call();
    } catch (const Error& error) {
      return error.code;
    }
    return ErrorCode::kI_check_failed;
  }
  const std::string path_ = ::testing::TempDir() + "/changed.aicf",
                    other_ = ::testing::TempDir() + "/changed_other.aicf";
  const Arrays x_ = {{"x", random_array(DType::f32, {64}, 5)}};
};

TEST_F(ChangedFile, ACopyRunsOnAsItWasLoaded) {
  Executable exe = load(), untouched = load();
  const Array first = exe.run("", x_).at("y");
  untouched.run("", x_);
  write_in_place(contents(other_));
  EXPECT_EQ(exe.run("", x_).at("y"), first);
  std::filesystem::resize_file(path_, 10);
  EXPECT_EQ(exe.run("", x_).at("y"), first);
  untouched.run("", x_);
  untouched.run("", x_);
  EXPECT_EQ(exe.state("sum"), untouched.state("sum"));
  EXPECT_NO_THROW(exe.reset());
}

TEST_F(ChangedFile, AMappedFileIsRefusedBeforeItsBytesAreRead) {
  setenv("AICF_COPIED_FILES", "0", 1);
  Executable exe = load();
  exe.run("", x_);
  const Array sum = exe.state("sum");
  write_in_place(contents(other_));
  EXPECT_EQ(code_of([&] { exe.run("", x_); }), ErrorCode::kE_file_changed);
  std::filesystem::resize_file(path_, 10);
  EXPECT_EQ(code_of([&] { exe.run("", x_); }), ErrorCode::kE_file_changed);
  EXPECT_EQ(code_of([&] { exe.reset(); }), ErrorCode::kE_file_changed);
  EXPECT_EQ(code_of([&] { exe.clone(); }), ErrorCode::kE_file_changed);
  EXPECT_EQ(exe.state("sum"), sum);
}

TEST_F(ChangedFile, AMappedFileIsNotWrittenOnToAnotherWhenItChanged) {
  setenv("AICF_COPIED_FILES", "0", 1);
  const Artifact artifact = read_artifact(path_);
  std::filesystem::last_write_time(path_, std::filesystem::file_time_type{});
  EXPECT_EQ(code_of([&] { write_artifact(other_ + ".2", artifact); }), ErrorCode::kE_file_changed);
  EXPECT_FALSE(std::filesystem::exists(other_ + ".2"));
}

TEST_F(ChangedFile, AMappedFileThatIsReplacedByRenameRunsOn) {
  setenv("AICF_COPIED_FILES", "0", 1);
  Executable exe = load();
  const Array first = exe.run("", x_).at("y");
  std::filesystem::rename(other_, path_);
  EXPECT_EQ(exe.run("", x_).at("y"), first);
}

}  // namespace
}  // namespace aicf::changed_file_test
