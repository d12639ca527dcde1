// A stranger's .npz: arrays whose every byte can be read, or a coded error. Mutations change the archive's
// bytes, or what a member holds, says and is called under checksums that fit.
#include "npz.h"

#include <minizip/unzip.h>
#include <minizip/zip.h>
#include <zlib.h>

#include "base/npy.h"
#include "harness.h"

namespace aicf::fuzz {
namespace {

struct Member {
  std::string name, content;
  bool deflated = true;
};

void write_archive(const std::string& path, const std::vector<Member>& members, bool zip64) {
  const zipFile zip = zipOpen64(path.c_str(), APPEND_STATUS_CREATE);
  if (zip == nullptr) std::abort();
  for (const Member& member : members) {
    const int method = member.deflated ? Z_DEFLATED : 0;
    if (zipOpenNewFileInZip64(zip, member.name.c_str(), nullptr, nullptr, 0, nullptr, 0, nullptr, method,
                              Z_DEFAULT_COMPRESSION, zip64 ? 1 : 0) != ZIP_OK)
      std::abort();
    zipWriteInFileInZip(zip, member.content.data(), static_cast<unsigned>(member.content.size()));
    zipCloseFileInZip(zip);
  }
  zipClose(zip, nullptr);
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// What minizip finds in an archive, as far as it is sound.
std::vector<Member> members_of(const std::string& path) {
  constexpr size_t kMost = 1 << 14;
  std::vector<Member> members;
  const unzFile zip = unzOpen64(path.c_str());
  if (zip == nullptr) return members;
  for (int found = unzGoToFirstFile(zip); found == UNZ_OK && members.size() < 8;
       found = unzGoToNextFile(zip)) {
    char name[64] = {};
    std::string content(kMost, ' ');
    if (unzGetCurrentFileInfo64(zip, nullptr, name, sizeof(name) - 1, nullptr, 0, nullptr, 0) != UNZ_OK ||
        unzOpenCurrentFile(zip) != UNZ_OK)
      break;
    const int size = unzReadCurrentFile(zip, content.data(), kMost);
    unzCloseCurrentFile(zip);
    content.resize(static_cast<size_t>(std::max(size, 0)));
    members.push_back({name, content});
  }
  unzClose(zip);
  return members;
}

std::string npy_bytes(const Array& array) {
  const std::string path = "/dev/shm/aicf_fuzz_npy." + std::to_string(::getpid());
  write_npy(path, array);
  std::string bytes = file_bytes(path);
  ::unlink(path.c_str());
  return bytes;
}

Seeds seeds() {
  const auto archive = [](bool deflated, bool zip64) {
    return [=](const std::string& path) {
      write_archive(path,
                    {{"x.npy", npy_bytes(Array(DType::f32, {3, 4})), deflated},
                     {"empty.npy", npy_bytes(Array(DType::f16, {0, 2})), deflated},
                     {"i.npy", npy_bytes(Array(DType::i64, {5})), deflated}},
                    zip64);
    };
  };
  return {{"stored.npz", archive(false, false)},
          {"deflated.npz", archive(true, false)},
          {"stored64.npz", archive(false, true)},
          {"deflated64.npz", archive(true, true)}};
}

// Half the time the archive's bytes: "".
std::string mutated(std::string_view bytes, Random& random) {
  static MemoryFile file;
  if (random() % 2 == 0) return "";
  file.write(bytes);
  std::vector<Member> members = members_of(file.path());
  if (members.empty()) return "";
  Member& member = members[random() % members.size()];
  switch (random() % 4) {
    case 0:
      member.name = random() % 2 ? mutate_text(member.name, 8) : pick(random, members).name;
      break;
    case 1:
      members.push_back(member);
      break;
    default:
      member.content = mutate_text(member.content, 64);
  }
  for (Member& each : members) each.deflated = random() % 2 == 0;
  file.write({});
  write_archive(file.path(), members, random() % 4 == 0);
  return file_bytes(file.path());
}

void use(const std::string& path, std::string_view) {
  for (const auto& [name, array] : cli::read_npz(path)) read_bytes(array);
}

}  // namespace

Target target() { return {seeds, mutated, use}; }

}  // namespace aicf::fuzz
