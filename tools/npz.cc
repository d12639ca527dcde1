#include "npz.h"

#include <minizip/unzip.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string_view>

#include "base/error.h"
#include "base/mapped_file.h"
#include "base/npy.h"

namespace aicf::cli {
namespace {

constexpr uLong kStored = 0, kDeflated = 8;
constexpr uLong kEncrypted = 1 << 0 | 1 << 6 | 1 << 13;  // appnote 6.3.9, 4.4.4
// Deflate makes at most this many bytes of one (RFC 1951: 258 bytes of a length and a distance of a bit
// each).
constexpr uint64_t kMostOfAByte = 1032;

// The archive's bytes as the file that minizip reads.
struct ZipBytes {
  std::string_view bytes;
  uint64_t at = 0;
};

ZipBytes& zip_bytes(voidpf stream) { return *static_cast<ZipBytes*>(stream); }

voidpf zip_open(voidpf opaque, const void*, int) { return opaque; }
int zip_close(voidpf, voidpf) { return 0; }
int zip_error(voidpf, voidpf) { return 0; }
ZPOS64_T zip_tell(voidpf, voidpf stream) { return zip_bytes(stream).at; }

uLong zip_read(voidpf, voidpf stream, void* to, uLong size) {
  ZipBytes& file = zip_bytes(stream);
  const uint64_t count = std::min<uint64_t>(size, file.bytes.size() - file.at);
  if (count > 0) std::memcpy(to, file.bytes.data() + file.at, count);
  file.at += count;
  return count;
}

long zip_seek(voidpf, voidpf stream, ZPOS64_T offset, int origin) {
  ZipBytes& file = zip_bytes(stream);
  const uint64_t size = file.bytes.size();
  const uint64_t from = origin == ZLIB_FILEFUNC_SEEK_SET   ? 0
                        : origin == ZLIB_FILEFUNC_SEEK_CUR ? file.at
                                                           : size;
  if (offset > size - from) return -1;
  file.at = from + offset;
  return 0;
}

struct CloseZip {
  void operator()(void* zip) const { unzClose(zip); }
};
using Zip = std::unique_ptr<void, CloseZip>;

Zip open_zip(ZipBytes& bytes, const std::string& path) {
  zlib_filefunc64_def functions = {};
  functions.zopen64_file = zip_open;
  functions.zread_file = zip_read;
  functions.ztell64_file = zip_tell;
  functions.zseek64_file = zip_seek;
  functions.zclose_file = zip_close;
  functions.zerror_file = zip_error;
  functions.opaque = &bytes;
  Zip zip(unzOpen2_64(path.c_str(), &functions));
  if (zip == nullptr) throw bad_array_file(path, "it has no zip directory that can be read");
  return zip;
}

struct Member {
  std::string name;
  unz_file_info64 info;
};

Member current_member(const Zip& zip, const std::string& path) {
  Member member;
  if (unzGetCurrentFileInfo64(zip.get(), &member.info, nullptr, 0, nullptr, 0, nullptr, 0) != UNZ_OK)
    throw bad_array_file(path, "its zip directory is damaged");
  member.name.resize(member.info.size_filename);
  if (unzGetCurrentFileInfo64(zip.get(), nullptr, member.name.data(), member.name.size(), nullptr, 0, nullptr,
                              0) != UNZ_OK)
    throw bad_array_file(path, "its zip directory is damaged");
  return member;
}

// What the directory says of a member, before any of it is read.
void check_member(const unz_file_info64& info, const std::string& name) {
  constexpr const char* kRemedy = "save it with numpy.savez or numpy.savez_compressed";
  if ((info.flag & kEncrypted) != 0) throw bad_array_file(name, "it is encrypted").with_remedy(kRemedy);
  if (info.compression_method != kStored && info.compression_method != kDeflated)
    throw bad_array_file(name,
                         "it is compressed by method " + std::to_string(info.compression_method) + " of zip")
        .with_remedy(kRemedy);
  const uint64_t most = info.compression_method == kStored ? 1 : kMostOfAByte;
  if (info.uncompressed_size / most > info.compressed_size)
    throw bad_array_file(name, "it claims to hold " + std::to_string(info.uncompressed_size) + " bytes in " +
                                   std::to_string(info.compressed_size));
}

Array read_member(const Zip& zip, const unz_file_info64& info, const std::string& name) {
  if (unzOpenCurrentFile(zip.get()) != UNZ_OK) throw bad_array_file(name, "its local header is damaged");
  const auto read = [&](std::byte* to, int64_t bytes) {
    while (bytes > 0) {
      const auto part = static_cast<unsigned>(std::min<int64_t>(bytes, 1 << 20));
      const int count = unzReadCurrentFile(zip.get(), to, part);
      if (count <= 0) throw bad_array_file(name, "its data is truncated or damaged");
      to += count;
      bytes -= count;
    }
  };
  Array array = read_npy(static_cast<int64_t>(info.uncompressed_size), read, name);
  // All of it was read, so that the checksum is known.
  if (unzCloseCurrentFile(zip.get()) != UNZ_OK) throw bad_array_file(name, "its checksum does not fit");
  return array;
}

}  // namespace

std::map<std::string, Array> read_npz(const std::string& path) {
  const auto file = MappedFile::open(path);
  ZipBytes bytes{file->text()};
  const Zip zip = open_zip(bytes, path);
  unz_global_info64 all = {};
  unzGetGlobalInfo64(zip.get(), &all);
  std::map<std::string, Array> arrays;
  uint64_t unclaimed = bytes.bytes.size();
  for (uint64_t i = 0; i < all.number_entry; ++i) {
    if ((i == 0 ? unzGoToFirstFile(zip.get()) : unzGoToNextFile(zip.get())) != UNZ_OK)
      throw bad_array_file(path, "its zip directory is damaged");
    auto [name, info] = current_member(zip, path);
    const std::string where = path + ": member " + name;
    check_member(info, where);
    if (info.compressed_size > unclaimed)
      throw bad_array_file(where, "the members claim more bytes than the file has");
    unclaimed -= info.compressed_size;
    Array array = read_member(zip, info, where);
    if (name.ends_with(".npy")) name.resize(name.size() - 4);
    if (!arrays.emplace(name, std::move(array)).second)
      throw bad_array_file(where, "the archive has two members of this name");
  }
  return arrays;
}

}  // namespace aicf::cli
