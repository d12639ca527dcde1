#include "base/mapped_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "base/error.h"

namespace aicf {
namespace {

class MappedFileTest : public ::testing::Test {
 protected:
  void TearDown() override {
    unsetenv("AICF_COPIED_FILES");
    unsetenv("AICF_MAX_MEMORY");
    std::filesystem::remove(path_);
  }
  // Into the file that is there.
  void write(const std::string& text) const {
    std::ofstream(path_, std::ios::binary | std::ios::trunc) << text;
  }
  static void copy_at_most(const char* bytes) { setenv("AICF_COPIED_FILES", bytes, 1); }
  static ErrorCode code_of(const MappedFile& file) {
    try {
      file.require_unchanged();
    } catch (const EnvironmentError& error) {
      EXPECT_NE(error.remedy, "");
      return error.code;
    }
    return ErrorCode::kI_check_failed;
  }
  const std::string path_ = ::testing::TempDir() + "/mapped_file_" + std::to_string(getpid());
};

TEST_F(MappedFileTest, ACopyKeepsItsBytesWhateverBecomesOfTheFile) {
  for (const size_t bytes : {size_t{100}, size_t{3} << 20}) {
    const std::string text(bytes, 'a');
    write(text);
    const auto file = MappedFile::open(path_);
    write(std::string(bytes, 'b'));
    EXPECT_EQ(file->text(), text);
    std::filesystem::resize_file(path_, 0);
    EXPECT_EQ(file->text(), text);
    EXPECT_TRUE(file->is_copy());
    EXPECT_NO_THROW(file->require_unchanged());
    EXPECT_EQ(MappedFile::mapping_of(file->data()), nullptr);
  }
}

TEST_F(MappedFileTest, AMappedFileTellsThatItWasWrittenTo) {
  copy_at_most("0");
  write(std::string(10000, 'a'));
  const auto file = MappedFile::open(path_);
  EXPECT_FALSE(file->is_copy());
  EXPECT_EQ(MappedFile::mapping_of(file->data() + 9999), file);
  EXPECT_EQ(MappedFile::mapping_of(file->data() + 10000), nullptr);
  EXPECT_NO_THROW(file->require_unchanged());
  std::filesystem::resize_file(path_, 9999);
  EXPECT_EQ(code_of(*file), ErrorCode::kE_file_changed);

  const auto again = MappedFile::open(path_);
  EXPECT_NO_THROW(again->require_unchanged());
  // Equally many bytes, and another time of writing.
  const timespec times[2] = {{1, 0}, {1, 5}};
  ASSERT_EQ(utimensat(AT_FDCWD, path_.c_str(), times, 0), 0);
  EXPECT_EQ(code_of(*again), ErrorCode::kE_file_changed);
}

TEST_F(MappedFileTest, AFileThatIsReplacedByRenameIsNotChanged) {
  copy_at_most("0");
  write(std::string(5000, 'a'));
  const auto file = MappedFile::open(path_);
  const std::string other = path_ + ".other";
  std::ofstream(other) << "b";
  std::filesystem::rename(other, path_);
  EXPECT_NO_THROW(file->require_unchanged());
  EXPECT_EQ(file->text(), std::string(5000, 'a'));
}

TEST_F(MappedFileTest, APartIsCopiedOrMappedAsTheWholeIs) {
  std::string text;
  for (int i = 0; i < 30000; ++i) text.push_back(static_cast<char>(i % 251));
  write(text);
  for (const char* limit : {"1G", "0"}) {
    copy_at_most(limit);
    const auto part = MappedFile::open_part(path_, [&](int64_t size) {
      EXPECT_EQ(size, 30000);
      return MappedFile::FileRange{4097, 20000};
    });
    EXPECT_EQ(part->text(), text.substr(4097, 20000)) << limit;
    EXPECT_EQ(part->is_copy(), *limit == '1');
    const auto nothing =
        MappedFile::open_part(path_, [](int64_t size) { return MappedFile::FileRange{size, 0}; });
    EXPECT_EQ(nothing->size(), 0);
  }
}

TEST_F(MappedFileTest, CopiesShareOneBudget) {
  copy_at_most("10K");
  write(std::string(6 << 10, 'a'));
  auto first = MappedFile::open(path_);
  EXPECT_TRUE(first->is_copy());
  EXPECT_FALSE(MappedFile::open(path_)->is_copy());
  first.reset();
  EXPECT_TRUE(MappedFile::open(path_)->is_copy());
}

TEST_F(MappedFileTest, TheBudgetIsAGigabyteOrAnEighthOfTheMemoryThatMayBeUsed) {
  setenv("AICF_MAX_MEMORY", "1T", 1);
  EXPECT_EQ(copied_files_limit(), int64_t{1} << 30);
  setenv("AICF_MAX_MEMORY", "80M", 1);
  EXPECT_EQ(copied_files_limit(), int64_t{10} << 20);
  copy_at_most("many");
  try {
    (void)copied_files_limit();
    FAIL() << "a value that is no size";
  } catch (const UserError& error) {
    EXPECT_EQ(error.code, ErrorCode::kU_bad_option);
    EXPECT_EQ(error.op, "AICF_COPIED_FILES");
  }
}

}  // namespace
}  // namespace aicf
