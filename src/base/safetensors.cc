#include "base/safetensors.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <exception>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>

#include "base/dim.h"
#include "base/error.h"
#include "base/helpers.h"
#include "base/out_of_memory.h"
#include "base/rounding.h"

namespace aicf {
namespace {

using Json = nlohmann::json;

// The reference implementation's own limit.
constexpr int64_t kMaxHeaderBytes = 100'000'000;
constexpr int64_t kPrefixBytes = 8;

[[noreturn]] void bad_safetensors(const std::string& path, const std::string& what, std::string actual = "") {
  throw UserError(ErrorCode::kU_bad_model_file, "not a valid safetensors file: " + what)
      .with_value(path)
      .with_actual(std::move(actual))
      .with_remedy("download or export the file again");
}

int64_t read_header_size(const MappedFile& file) {
  if (file.size() < kPrefixBytes) bad_safetensors(file.path(), "shorter than its length prefix");
  uint64_t size = 0;
  for (int i = 7; i >= 0; --i) size = size << 8 | static_cast<uint8_t>(file.data()[i]);
  if (size > kMaxHeaderBytes || static_cast<int64_t>(size) > file.size() - kPrefixBytes)
    bad_safetensors(file.path(), "header length exceeds the file or its limit", std::to_string(size));
  return static_cast<int64_t>(size);
}

struct Extent {
  int64_t begin, end;
  std::string name;
};

int64_t unsigned_number(const Json& value, const std::string& path, const std::string& name) {
  if (!value.is_number_unsigned() || value.get<uint64_t>() > INT64_MAX)
    bad_safetensors(path, "tensor '" + name + "' has a size or offset that is not a number >= 0",
                    value.dump());
  return value.get<int64_t>();
}

Array read_tensor(const std::shared_ptr<const MappedFile>& file, int64_t data_begin, const std::string& name,
                  const Json& entry, std::vector<Extent>& extents) {
  const std::string& path = file->path();
  if (!entry.is_object() || !entry.contains("dtype") || !entry["dtype"].is_string() ||
      !entry.contains("shape") || !entry["shape"].is_array() || !entry.contains("data_offsets") ||
      !entry["data_offsets"].is_array() || entry["data_offsets"].size() != 2)
    bad_safetensors(path, "tensor '" + name + "' lacks dtype, shape or data_offsets");
  const std::string dtype_text = entry["dtype"];
  const auto dtype = dtype_from_safetensors(dtype_text);
  if (!dtype)
    throw UserError(ErrorCode::kU_unsupported_dtype,
                    "safetensors tensor '" + name + "' has an unsupported dtype")
        .with_value(path)
        .with_actual(dtype_text);
  std::vector<int64_t> sizes;
  for (const Json& size : entry["shape"]) sizes.push_back(unsigned_number(size, path, name));
  const int64_t begin = unsigned_number(entry["data_offsets"][0], path, name);
  const int64_t end = unsigned_number(entry["data_offsets"][1], path, name);
  const int64_t bytes = checked_mul(element_count(sizes), dtype_bytes(*dtype));
  if (begin > end || end > file->size() - data_begin)
    bad_safetensors(path, "tensor '" + name + "' lies outside the file",
                    std::to_string(begin) + ".." + std::to_string(end));
  if (end - begin != bytes)
    bad_safetensors(path, "tensor '" + name + "' has " + std::to_string(end - begin) +
                              " bytes where its shape needs " + std::to_string(bytes));
  extents.push_back({begin, end, name});
  const std::byte* data = file->data() + data_begin + begin;
  if (reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(dtype_bytes(*dtype)) == 0)
    return Array::view(*dtype, std::move(sizes), data, file);
  Array copy(*dtype, std::move(sizes));
  if (bytes > 0) std::memcpy(copy.mutable_data(), data, static_cast<size_t>(bytes));
  return copy;
}

void check_disjoint(const std::string& path, std::vector<Extent>& extents) {
  std::sort(extents.begin(), extents.end(), [](const Extent& a, const Extent& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  for (size_t i = 1; i < extents.size(); ++i)
    if (extents[i].begin < extents[i - 1].end)
      bad_safetensors(path, "tensors '" + extents[i - 1].name + "' and '" + extents[i].name + "' overlap");
}

// Refuses what Json::parse lets pass: nlohmann keeps the last of two equal keys, and a file with two is
// ambiguous; nothing lies deeper than a tensor's own fields. No callback of Json::parse, which looks through
// the whole header after each of its tensors.
class HeaderCheck : public nlohmann::json_sax<Json> {
 public:
  explicit HeaderCheck(const std::string& path) : path_(path) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_array(size_t) override { return start(); }
  bool end_array() override { return end(); }
  bool start_object(size_t) override { return start(); }
  bool end_object() override { return end(); }
  bool key(string_t& key) override {
    if (!keys_.back().insert(key).second) bad_safetensors(path_, "a key appears twice in the header", key);
    return true;
  }
  // Json::parse says it.
  bool parse_error(size_t, const std::string&, const Json::exception&) override { return false; }

 private:
  bool start() {
    constexpr size_t kMaxDepth = 4;
    if (keys_.size() == kMaxDepth) bad_safetensors(path_, "header nests too deeply");
    keys_.emplace_back();
    return true;
  }
  bool end() {
    keys_.pop_back();
    return true;
  }

  const std::string& path_;
  std::vector<std::set<std::string>> keys_;  // of each object or array that is open
};

Json parse_header(const std::string& path, std::string_view text) {
  require_room_for_json(text.size(), path);
  HeaderCheck check(path);
  Json::sax_parse(text, &check);
  try {
    Json header = Json::parse(text);
    if (!header.is_object()) bad_safetensors(path, "the header is not a JSON object");
    return header;
  } catch (const Json::exception& error) {
    bad_safetensors(path, "the header is not JSON", error.what());
  }
}

SafetensorsMetadata read_metadata(const std::string& path, const Json& object) {
  if (!object.is_object()) bad_safetensors(path, "__metadata__ is not an object");
  SafetensorsMetadata metadata;
  for (const auto& [key, value] : object.items()) {
    if (!value.is_string()) bad_safetensors(path, "__metadata__ holds a value that is not text", key);
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

struct Placed {
  const SafetensorsTensor* tensor;  // null for a filler
  std::string name;
  int64_t begin, end;
};

std::vector<Placed> place(const std::vector<SafetensorsTensor>& tensors) {
  std::set<std::string_view> names;
  std::vector<Placed> placed;
  int64_t at = 0;
  int fillers = 0;
  for (const SafetensorsTensor& tensor : tensors) {
    AICF_CHECK(
        tensor.alignment > 0 && tensor.alignment <= 4096 && (tensor.alignment & (tensor.alignment - 1)) == 0,
        tensor.name);
    if (tensor.name == "__metadata__" || tensor.name.starts_with(kSafetensorsFiller) ||
        !names.insert(tensor.name).second)
      throw UserError(ErrorCode::kU_misuse, "a tensor name is reserved or appears twice")
          .with_value(tensor.name);
    const int64_t aligned =
        checked_round_up(at, std::max<int64_t>(tensor.alignment, dtype_bytes(tensor.array.dtype())));
    if (aligned > at) {
      placed.push_back({nullptr, std::string(kSafetensorsFiller) + std::to_string(fillers++), at, aligned});
      at = aligned;
    }
    placed.push_back({&tensor, tensor.name, at, checked_add(at, tensor.array.bytes())});
    at = placed.back().end;
  }
  return placed;
}

std::string header_text(const std::vector<Placed>& placed, const SafetensorsMetadata& metadata,
                        int64_t alignment) {
  constexpr uint64_t kLeast = 1 << 20, kOfATensor = 4 << 10;
  require_room(kLeast + kOfATensor * placed.size(), "the header of a file");
  // Json objects are sorted by key, so the text depends on nothing but the contents.
  Json header = Json::object();
  if (!metadata.empty()) header["__metadata__"] = metadata;
  for (const Placed& item : placed) {
    const DType dtype = item.tensor ? item.tensor->array.dtype() : DType::u8;
    const std::vector<int64_t> sizes =
        item.tensor ? item.tensor->array.sizes() : std::vector<int64_t>{item.end - item.begin};
    header[item.name] = {
        {"dtype", dtype_info(dtype).safetensors}, {"shape", sizes}, {"data_offsets", {item.begin, item.end}}};
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const Json::exception& error) {
    throw UserError(ErrorCode::kU_misuse, "a tensor name or metadata value is not UTF-8")
        .with_actual(error.what());
  }
  const int64_t size = static_cast<int64_t>(text.size());
  text.resize(static_cast<size_t>(checked_round_up(size + kPrefixBytes, alignment) - kPrefixBytes), ' ');
  return text;
}

// So large that files with many tensors have their data at one of few places, which are foreseen.
constexpr int64_t kLargeAlignment = 64 << 10;

int64_t data_alignment(const std::vector<Placed>& placed) {
  constexpr int64_t kLarge = 16 << 20;
  if (!placed.empty() && placed.back().end >= kLarge) return kLargeAlignment;
  const bool wide = std::any_of(placed.begin(), placed.end(), [](const Placed& item) {
    return item.tensor != nullptr && item.tensor->alignment > 64;
  });
  return wide ? 4096 : 64;
}

bool is_same_piece(const Placed& a, const Placed& b) {
  const auto data = [](const Placed& item) { return item.tensor ? item.tensor->array.data() : nullptr; };
  return a.begin == b.begin && a.end == b.end && data(a) == data(b);
}

struct Piece {
  const std::byte* data;
  int64_t bytes, at;
};

// Of placed[first] and what follows; fillers are left out: they are zeros, as is what nobody wrote.
std::vector<Piece> pieces_of(const std::vector<Placed>& placed, size_t first, int64_t data_begin) {
  constexpr int64_t kBytes = 16 << 20;
  std::vector<Piece> pieces;
  for (size_t i = first; i < placed.size(); ++i) {
    if (placed[i].tensor == nullptr) continue;
    const auto* data = static_cast<const std::byte*>(placed[i].tensor->array.data());
    const int64_t bytes = placed[i].end - placed[i].begin;
    for (int64_t at = 0; at < bytes; at += kBytes)
      pieces.push_back({data + at, std::min(kBytes, bytes - at), data_begin + placed[i].begin + at});
  }
  return pieces;
}

// By several threads: one copies slower than some disks write.
void write_pieces(AtomicFile& file, const std::vector<Piece>& pieces) {
  int64_t bytes = 0;
  for (const Piece& piece : pieces) bytes += piece.bytes;
  std::atomic<size_t> next = 0;
  std::mutex mutex;
  std::exception_ptr error;
  run_with_helpers(bytes, [&] {
    try {
      for (size_t i = next++; i < pieces.size(); i = next++)
        file.write_at(pieces[i].at, pieces[i].data, pieces[i].bytes);
    } catch (...) {
      const std::lock_guard lock(mutex);
      if (error == nullptr) error = std::current_exception();
      next = pieces.size();
    }
  });
  if (error != nullptr) std::rethrow_exception(error);
}

}  // namespace

SafetensorsFile read_safetensors(const std::string& path) { return read_safetensors(MappedFile::open(path)); }

SafetensorsFile read_safetensors(std::shared_ptr<const MappedFile> file) {
  const std::string& path = file->path();
  const int64_t header_size = read_header_size(*file);
  const Json header = parse_header(path, file->text().substr(kPrefixBytes, static_cast<size_t>(header_size)));
  SafetensorsFile result;
  std::vector<Extent> extents;
  for (const auto& [name, entry] : header.items()) {
    if (name == "__metadata__")
      result.metadata = read_metadata(path, entry);
    else
      result.tensors.emplace(name, read_tensor(file, kPrefixBytes + header_size, name, entry, extents));
  }
  check_disjoint(path, extents);
  return result;
}

void write_safetensors(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                       const SafetensorsMetadata& metadata) {
  SafetensorsWriter(path).finish(tensors, metadata);
}

void SafetensorsWriter::write_ahead(const std::vector<SafetensorsTensor>& tensors) noexcept {
  constexpr int64_t kOtherHeader = 8 << 10;  // of the tensors to come and the metadata
  try {
    const std::vector<Placed> placed = place(tensors);
    const int64_t alignment = data_alignment(placed);
    if (alignment != kLargeAlignment) return;
    const auto header = static_cast<int64_t>(header_text(placed, {}, 1).size());
    const int64_t begin = checked_round_up(kPrefixBytes + header + kOtherHeader, alignment);
    write_pieces(file_, pieces_of(placed, 0, begin));
    ahead_ = tensors;
    ahead_begin_ = begin;
  } catch (...) {
    // finish() writes them, or says why not.
  }
}

void SafetensorsWriter::finish(const std::vector<SafetensorsTensor>& tensors,
                               const SafetensorsMetadata& metadata) {
  const std::vector<Placed> placed = place(tensors);
  const std::string header = header_text(placed, metadata, data_alignment(placed));
  std::string prefix;
  for (int i = 0; i < 8; ++i) prefix.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  const auto begin = static_cast<int64_t>(prefix.size() + header.size());
  const std::vector<Placed> before = place(ahead_);
  const bool stand = begin == ahead_begin_ && before.size() <= placed.size() &&
                     std::equal(before.begin(), before.end(), placed.begin(), is_same_piece);
  if (!stand) file_.set_size(0);
  file_.set_size(begin + (placed.empty() ? 0 : placed.back().end));
  file_.write(prefix);
  file_.write(header);
  write_pieces(file_, pieces_of(placed, stand ? before.size() : 0, begin));
  for (const SafetensorsTensor& tensor : tensors)
    if (const auto source = MappedFile::mapping_of(tensor.array.data())) source->require_unchanged();
  file_.commit();
}

void sort_for_safetensors(std::vector<SafetensorsTensor>& tensors) {
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const SafetensorsTensor& a, const SafetensorsTensor& b) {
                     const int width_a = dtype_bytes(a.array.dtype()), width_b = dtype_bytes(b.array.dtype());
                     return width_a != width_b ? width_a > width_b : a.name < b.name;
                   });
}

}  // namespace aicf
