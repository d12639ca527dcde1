#include "compile/testing/forger.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <ctime>
#include <fstream>

#include <xxhash.h>

#include "base/mapped_file.h"
#include "base/safetensors.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"
#include "runtime/random_inputs.h"

namespace aicf::testing {
namespace {

using Json = Forger::Json;

constexpr const char* kPlan = "aicf.plan.cpu";

std::string checksum(std::string_view bytes) {
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx",
                static_cast<unsigned long long>(XXH3_64bits(bytes.data(), bytes.size())));
  return text;
}

std::string_view bytes_of(const Array& array) {
  return {array.data_as<char>(), static_cast<size_t>(array.bytes())};
}

std::string safetensors_text(const Json& tensors, const std::string& data) {
  std::string header = tensors.dump();
  header.resize((header.size() + 8 + 63) / 64 * 64 - 8, ' ');
  std::string text;
  for (int i = 0; i < 8; ++i) text.push_back(static_cast<char>(header.size() >> (8 * i) & 0xff));
  return text + header + data;
}

}  // namespace

Forger::Forger(const Artifact& good, int64_t largest_size)
    : good_path_(::testing::TempDir() + "/hostile_good.aicf"),
      path_(::testing::TempDir() + "/hostile.aicf"),
      largest_size_(largest_size),
      device_(make_cpu_device({1, detect_isa()})) {
  // Its own file: the weights of the forgeries are views of it.
  write_artifact(good_path_, good);
  file_ = MappedFile::open(good_path_)->text();
  const SafetensorsFile parts = read_safetensors(good_path_);
  version_ = parts.metadata.at("aicf.version");
  for (const auto& [name, array] : parts.tensors) {
    if (name == "aicf.header") {
      header_ = Json::parse(bytes_of(array));
    } else if (name == kPlan) {
      plan_ = Json::parse(bytes_of(array));
    } else if (!name.starts_with(kSafetensorsFiller)) {
      others_.emplace(name, array);
    }
  }
}

Forger::~Forger() {
  std::remove(path_.c_str());
  std::remove(good_path_.c_str());
}

void Forger::expect_sound_plan(const std::string& text, const std::string& what) {
  header_["checksums"][kPlan] = checksum(text);
  const std::string header = header_.dump();
  std::string data;
  Json tensors = {{"__metadata__", {{"aicf.version", version_}, {"aicf.header_checksum", checksum(header)}}}};
  const auto add = [&](const std::string& name, const std::string& dtype, const std::vector<int64_t>& sizes,
                       std::string_view bytes) {
    data.resize((data.size() + 63) / 64 * 64);
    tensors[name] = {
        {"dtype", dtype}, {"shape", sizes}, {"data_offsets", {data.size(), data.size() + bytes.size()}}};
    data += bytes;
  };
  for (const auto& [name, array] : others_)
    add(name, std::string(dtype_info(array.dtype()).safetensors), array.sizes(), bytes_of(array));
  add(kPlan, "U8", {static_cast<int64_t>(text.size())}, text);
  add("aicf.header", "U8", {static_cast<int64_t>(header.size())}, header);
  write(safetensors_text(tensors, data));
  expect_our_errors_only(what);
}
void Forger::expect_sound_plan(const Json& plan, const std::string& what) {
  expect_sound_plan(plan.dump(-1, ' ', false, Json::error_handler_t::replace), what);
}
void Forger::expect_sound_file(const std::string& bytes, const std::string& what) {
  write(bytes);
  expect_our_errors_only(what);
}

ErrorCode Forger::code_of(const Json& plan) {
  last_ = ErrorCode::kI_check_failed;
  expect_sound_plan(plan, "a plan over a limit");
  return last_;
}

// Without the fsync of write_artifact, which would take most of the time here.
void Forger::write(const std::string& bytes) {
  std::ofstream(path_, std::ios::binary | std::ios::trunc) << bytes;
}

void Forger::expect_our_errors_only(const std::string& what) {
  const std::clock_t start = std::clock();  // the process's own time: the machine may be busy
  try {
    use();
    ++accepted_;
  } catch (const InternalError& error) {
    ADD_FAILURE() << what << ": taken for a bug of ours: " << error.what();
  } catch (const Error& error) {
    last_ = error.code;
    last_text_ = error.text();
  } catch (const std::exception& error) {
    ADD_FAILURE() << what << ": " << error.what();
  }
  EXPECT_LT(static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC, 20) << what;
}

void Forger::use() {
  Executable exe(Model::load(read_artifact(path_), device_));
  const Plan& plan = exe.model().plan();
  for (const bool high : {false, true}) {
    SymbolValues sizes;
    for (const auto& [name, range] : plan.sizes)
      sizes[name] = high ? std::min(range.hi, largest_size_) : std::min(range.lo, largest_size_);
    for (const EntryPlan& entry : plan.entries)
      if (entry.name != kInitEntry)  // loading has run it
        exe.run(entry.name, random_inputs(plan, entry, sizes, 1));
  }
}

}  // namespace aicf::testing
