#include "import/onnx.h"

#include <algorithm>
#include <cstring>

#include "base/comma_list.h"
#include "base/error.h"
#include "base/mapped_file.h"
#include "base/option_text.h"
#include "base/path.h"
#include "import/chosen_results.h"
#include "import/importer.h"
#include "import/masked_updates.h"

namespace aicf {
namespace {

onnx::ModelProto read_model(const std::string& path) {
  auto file = MappedFile::open(path);
  const std::string_view text = file->text();
  return onnx::parse_model(text, std::move(file), path);
}

[[noreturn]] void fail_unsupported(const std::vector<UnsupportedOp>& ops) {
  std::string list;
  for (const UnsupportedOp& op : ops)
    list +=
        "\n  " + op.op + " (" + std::to_string(op.count) + ", first '" + op.first_node + "'): " + op.reason;
  throw UserError(ErrorCode::kU_unsupported_op, "the model uses what AICF does not support:" + list)
      .with_op(ops[0].op)
      .with_value(comma_list(ops, &UnsupportedOp::op))
      .with_remedy("replace these ops, or end the model before them (" +
                   option_text(Option::kResult, "NAME") + "); `aicf support` lists them before compiling");
}

Program import_model(onnx::ModelProto model, const ImportOptions& options, const std::string& folder) {
  onnx::choose_results(model, options.results);
  onnx::match_masked_updates(model);
  onnx::Importer importer(model, options, folder);
  importer.run();
  if (const auto unsupported = importer.unsupported(); !unsupported.empty()) fail_unsupported(unsupported);
  if (!importer.errors().empty()) throw importer.errors().front().error;
  return importer.take_program();
}

// A name, or arithmetic on names; "8" and "-3" are numbers.
bool refers_to_sizes(std::string_view text) {
  if (text.empty() || text.find(',') != std::string_view::npos) return false;
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  const bool named = std::any_of(text.begin(), text.end(), [](char c) {
    return c == '_' || std::isalpha(static_cast<unsigned char>(c));
  });
  if (named && text.find_first_of("+-*/(") != std::string_view::npos) return true;
  return !is_digit(text[0]) && text[0] != '-';
}

int64_t parse_size(std::string_view text, std::string_view whole) {
  int64_t value = 0;
  bool ok = !text.empty() && text.size() < 18;
  for (char c : text) {
    ok = ok && c >= '0' && c <= '9';
    value = ok ? value * 10 + (c - '0') : value;
  }
  if (!ok) throw onnx::not_a_size(std::string(whole));
  return value;
}

}  // namespace

DimOption parse_dim_option(std::string_view text) {
  DimOption option;
  if (const size_t dots = text.find(".."); dots != std::string_view::npos) {
    option.range = Interval{parse_size(text.substr(0, dots), text), parse_size(text.substr(dots + 2), text)};
    if (option.range->lo > option.range->hi)
      throw UserError(ErrorCode::kU_bad_option, "a range ends before it begins")
          .with_value(std::string(text))
          .with_expected("LO..HI with LO <= HI");
    return option;
  }
  if (refers_to_sizes(text)) {
    option.same_as = std::string(text);
    return option;
  }
  while (true) {
    const size_t comma = text.find(',');
    option.values.push_back(parse_size(text.substr(0, comma), text));
    if (comma == std::string_view::npos) return option;
    text.remove_prefix(comma + 1);
  }
}

Program import_onnx(const std::string& path, const ImportOptions& options) {
  return import_model(read_model(path), options, folder_of(path));
}

Program import_onnx_bytes(std::string_view bytes, const ImportOptions& options, const std::string& folder,
                          std::shared_ptr<const void> owner) {
  if (!owner) {
    auto copy = std::make_shared<Array>(DType::u8, std::vector<int64_t>{static_cast<int64_t>(bytes.size())});
    if (!bytes.empty()) std::memcpy(copy->mutable_data(), bytes.data(), bytes.size());
    bytes = {copy->data_as<char>(), bytes.size()};
    owner = std::move(copy);
  }
  return import_model(onnx::parse_model(bytes, std::move(owner), "model bytes"), options, folder);
}

namespace {

std::vector<OnnxDim> dynamic_dims(const onnx::ModelProto& model) {
  std::vector<OnnxDim> dims;
  for (const onnx::ValueInfo& input : model.graph.inputs) {
    const bool initialized = std::any_of(model.graph.initializers.begin(), model.graph.initializers.end(),
                                         [&](const auto& tensor) { return tensor->name == input.name; });
    for (size_t axis = 0; axis < input.shape.size() && !initialized; ++axis) {
      const onnx::Dimension& dimension = input.shape[axis];
      if (dimension.has_value && dimension.value >= 0) continue;
      const std::string name =
          dimension.param.empty() ? input.name + ":" + std::to_string(axis) : dimension.param;
      if (std::none_of(dims.begin(), dims.end(), [&](const OnnxDim& dim) { return dim.name == name; }))
        dims.push_back({input.name, static_cast<int>(axis), name});
    }
  }
  return dims;
}

// What a size may be while only support is asked for, not a compile.
constexpr Interval kAnySize = {1, 1 << 16};
// Numbers tried for models that no range fits: of batches, of sequences and of images.
constexpr int64_t kFixedSizes[] = {8, 16, 32, 64, 128, 224, 256, 320, 384, 512, 640, 1, 2, 4};

std::vector<UnsupportedOp> rows_of(const std::vector<onnx::Importer::NodeError>& errors) {
  std::vector<UnsupportedOp> rows;
  for (const auto& [node, error] : errors) {
    const std::string actual = error.actual.empty() ? "" : " (" + error.actual + ")";
    const std::string remedy = error.remedy.empty() ? "" : "; " + error.remedy;
    rows.push_back({error.op, 1, node, error.message + actual + remedy});
  }
  return rows;
}

}  // namespace

OnnxSupport support_onnx(const std::string& path, const ImportOptions& options) {
  onnx::ModelProto model = read_model(path);
  onnx::choose_results(model, options.results);
  onnx::match_masked_updates(model);
  const auto run = [&](Interval unset) {
    auto importer = std::make_unique<onnx::Importer>(model, options, folder_of(path), unset);
    importer->run();
    return importer;
  };
  const auto any = run(kAnySize);
  OnnxSupport support;
  support.unsupported = any->unsupported();
  if (any->errors().empty()) return support;
  for (const int64_t size : kFixedSizes) {
    const auto fixed = run({size, size});
    if (!fixed->errors().empty() || fixed->unsupported().size() > support.unsupported.size()) continue;
    support.unsupported = fixed->unsupported();
    support.of_fixed_sizes = rows_of(any->errors());
    for (const OnnxDim& dim : dynamic_dims(model))
      if (!options.dims.contains(dim.name)) support.fixed_sizes.emplace(dim.name, size);
    return support;
  }
  for (UnsupportedOp& row : rows_of(any->errors())) support.unsupported.push_back(std::move(row));
  return support;
}

std::vector<OnnxDim> dynamic_dims_onnx(const std::string& path) { return dynamic_dims(read_model(path)); }

}  // namespace aicf
