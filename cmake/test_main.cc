// Every test program runs in a temporary folder of its own, so that two of them, of one tree or of two, never
// write the same file; the folder goes when the tests end.
#include <gtest/gtest.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  std::string folder = (std::filesystem::temp_directory_path() / "aicf_test_XXXXXX").string();
  if (::mkdtemp(folder.data()) == nullptr) {
    std::perror(folder.c_str());
    return EXIT_FAILURE;
  }
  ::setenv("TMPDIR", folder.c_str(), 1);
  ::setenv("TEST_TMPDIR", folder.c_str(), 1);  // what ::testing::TempDir() looks at first
  const int result = RUN_ALL_TESTS();
  std::error_code ignored;
  std::filesystem::remove_all(folder, ignored);
  return result;
}
