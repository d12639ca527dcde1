// The layout is that of ELF-64 (System V ABI, chapter 4), little-endian.
#include "runtime/code_image.h"

#include <cstdint>
#include <cstring>
#include <string_view>

#include "base/error.h"

namespace aicf {
namespace {

constexpr size_t kHeaderBytes = 64, kSectionBytes = 64, kSegmentBytes = 56;
constexpr uint16_t kCudaMachine = 190;
constexpr uint32_t kNoBits = 8;  // a section without bytes in the file
constexpr uint32_t kFirstOwn =
    0x70000001;  // types of sections beyond CUDA's own info, which need not have any

UserError refused_image(const char* why) {
  return UserError(ErrorCode::kU_bad_artifact, "a module of machine code is not sound")
      .with_actual(why)
      .with_remedy("compile the model again");
}

template <typename T>
T number_at(std::string_view bytes, size_t at) {
  T value;
  std::memcpy(&value, bytes.data() + at, sizeof(value));
  return value;
}

bool lies_inside(std::string_view bytes, uint64_t first, uint64_t count) {
  return first <= bytes.size() && count <= bytes.size() - first;
}

// A table of `count` entries of at least `least` bytes each.
bool table_fits(std::string_view bytes, uint64_t first, uint64_t count, uint64_t entry, uint64_t least) {
  return count == 0 || (entry >= least && lies_inside(bytes, first, count * entry));  // both have 16 bits
}

void check_cubin(std::string_view bytes) {
  constexpr char k64Bits = 2, kLittleEndian = 1;
  if (bytes.size() < kHeaderBytes || bytes[4] != k64Bits || bytes[5] != kLittleEndian ||
      number_at<uint16_t>(bytes, 18) != kCudaMachine)
    throw refused_image("an ELF file that is no cubin");
  const auto segments = number_at<uint64_t>(bytes, 32), sections = number_at<uint64_t>(bytes, 40);
  const auto segment_bytes = number_at<uint16_t>(bytes, 54), segment_count = number_at<uint16_t>(bytes, 56),
             section_bytes = number_at<uint16_t>(bytes, 58), section_count = number_at<uint16_t>(bytes, 60),
             names = number_at<uint16_t>(bytes, 62);
  if (!table_fits(bytes, segments, segment_count, segment_bytes, kSegmentBytes) ||
      !table_fits(bytes, sections, section_count, section_bytes, kSectionBytes) || names >= section_count)
    throw refused_image("a cubin whose tables leave it");
  for (size_t i = 0; i < section_count; ++i) {
    const size_t at = sections + i * section_bytes;
    const auto type = number_at<uint32_t>(bytes, at + 4);
    if (type == 0 || type == kNoBits || type >= kFirstOwn) continue;
    if (!lies_inside(bytes, number_at<uint64_t>(bytes, at + 24), number_at<uint64_t>(bytes, at + 32)))
      throw refused_image("a cubin with a section that leaves it");
  }
}

}  // namespace

void check_code_image(const Array& image) {
  const std::string_view bytes(image.data_as<char>(), static_cast<size_t>(image.bytes()));
  if (bytes.substr(0, 4) ==
      "\x7f"
      "ELF")
    return check_cubin(bytes);
  // Text, and NVRTC's ends in a zero.
  if (bytes.find(".version") == std::string_view::npos ||
      bytes.substr(0, bytes.size() - 1).find('\0') != std::string_view::npos)
    throw refused_image("neither a cubin nor PTX");
}

}  // namespace aicf
