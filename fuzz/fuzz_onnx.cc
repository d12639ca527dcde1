// A stranger's .onnx: importing, compiling, loading and running it ends in success or in a coded error.
// Mutations keep the protobuf framing: they change, copy, drop and exchange whole fields at any depth.
#include "harness.h"
#include "import/onnx.h"
#include "import/testing/onnx_model.h"

namespace aicf::fuzz {
namespace {

// One field of a message. Bytes that parse as a message are taken for one: framing survives either way.
struct Field {
  uint64_t number = 0;
  int wire_type = 0;
  uint64_t value = 0;  // varint, fixed32, fixed64
  std::string bytes;   // length-delimited and not a message
  bool is_message = false;
  std::vector<Field> fields;
};

bool read_varint(std::string_view& bytes, uint64_t& value) {
  value = 0;
  for (int shift = 0; shift < 64 && !bytes.empty(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[0]);
    bytes.remove_prefix(1);
    value |= uint64_t{byte & 0x7fu} << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

bool read_fixed(std::string_view& bytes, size_t width, uint64_t& value) {
  if (bytes.size() < width) return false;
  value = 0;
  for (size_t i = width; i-- > 0;) value = value << 8 | static_cast<uint8_t>(bytes[i]);
  bytes.remove_prefix(width);
  return true;
}

constexpr int kMaxDepth = 16;

bool parse(std::string_view bytes, int depth, std::vector<Field>& fields) {
  while (!bytes.empty()) {
    Field field;
    uint64_t key = 0, length = 0;
    if (!read_varint(bytes, key)) return false;
    field.number = key >> 3;
    field.wire_type = static_cast<int>(key & 7);
    if (field.number == 0 || field.number > 40) return false;
    switch (field.wire_type) {
      case 0:
        if (!read_varint(bytes, field.value)) return false;
        break;
      case 1:
        if (!read_fixed(bytes, 8, field.value)) return false;
        break;
      case 5:
        if (!read_fixed(bytes, 4, field.value)) return false;
        break;
      case 2: {
        if (!read_varint(bytes, length) || length > bytes.size()) return false;
        field.bytes = bytes.substr(0, length);
        bytes.remove_prefix(length);
        field.is_message = depth > 0 && length > 0 && parse(field.bytes, depth - 1, field.fields);
        if (!field.is_message) field.fields.clear();
        break;
      }
      default:
        return false;
    }
    fields.push_back(std::move(field));
  }
  return true;
}

void put_varint(std::string& out, uint64_t value) {
  for (; value >= 0x80; value >>= 7) out.push_back(static_cast<char>(value | 0x80));
  out.push_back(static_cast<char>(value));
}

std::string serialize(const std::vector<Field>& fields) {
  std::string out;
  for (const Field& field : fields) {
    put_varint(out, field.number << 3 | static_cast<uint64_t>(field.wire_type));
    if (field.wire_type == 0) {
      put_varint(out, field.value);
    } else if (field.wire_type == 2) {
      const std::string bytes = field.is_message ? serialize(field.fields) : field.bytes;
      put_varint(out, bytes.size());
      out += bytes;
    } else {
      for (int i = 0; i < (field.wire_type == 1 ? 8 : 4); ++i)
        out.push_back(static_cast<char>(field.value >> (8 * i)));
    }
  }
  return out;
}

// Where a field stands: its message's list and its place there.
struct Place {
  std::vector<Field>* list;
  size_t at;
  Field& field() const { return (*list)[at]; }
};

void list_places(std::vector<Field>& fields, std::vector<Place>& places) {
  for (size_t i = 0; i < fields.size(); ++i) {
    places.push_back({&fields, i});
    list_places(fields[i].fields, places);
  }
}

void mutate_field(Field& field, Random& random) {
  if (field.wire_type == 0) {
    field.value = static_cast<uint64_t>(pick_number(random, static_cast<int64_t>(field.value & INT64_MAX)));
  } else if (field.wire_type == 5) {
    field.value =
        pick(random, std::vector<uint64_t>{0, 0x3f800000, 0xbf800000, 0x7f800000, 0x7fc00000, 1, 0x7f7fffff});
  } else if (field.wire_type == 1) {
    field.value = random();
  } else if (!field.is_message) {
    field.bytes = mutate_text(field.bytes, 16);
  }
}

void mutate_message(std::vector<Field>& model, Random& random) {
  std::vector<Place> places;
  list_places(model, places);
  if (places.empty()) return;
  const Place place = pick(random, places);
  // A field of the same number elsewhere is likely the same kind of thing: another name, op, attribute, node.
  std::vector<Place> alike;
  std::copy_if(places.begin(), places.end(), std::back_inserter(alike), [&](const Place& other) {
    return other.field().number == place.field().number && other.field().wire_type == place.field().wire_type;
  });
  const Field other = pick(random, alike).field();
  const auto at = place.list->begin() + static_cast<std::ptrdiff_t>(place.at);
  switch (random() % 8) {
    case 0:
      place.list->erase(at);
      return;
    case 1:
      place.list->insert(at, Field(*at));
      return;
    case 2:
    case 3:
    case 4:
      place.field() = other;
      return;
    default:
      mutate_field(place.field(), random);
  }
}

std::string mutated(std::string_view bytes, Random& random) {
  std::vector<Field> model;
  if (!parse(bytes, kMaxDepth, model)) return {};
  for (uint64_t i = 0, changes = 1 + random() % 4; i < changes; ++i) mutate_message(model, random);
  return serialize(model);
}

// A few models of our own, for where the ONNX package's test cases are not at hand.
Seeds seeds() {
  using namespace onnx_test;
  const auto save = [](const onnx_test::Model& model) {
    return
        [bytes = model.bytes()](const std::string& path) { std::ofstream(path, std::ios::binary) << bytes; };
  };
  onnx_test::Model mlp;
  mlp.inputs = {value_info("x", DType::f32, {"n", "4"})};
  mlp.outputs = {value_info("y", DType::f32, {"n", "3"})};
  mlp.initializers = {tensor("w", Array::from<double>(DType::f32, {4, 3}, std::vector<double>(12, 0.5)))};
  mlp.nodes = {node("MatMul", {"x", "w"}, {"h"}), node("Relu", {"h"}, {"r"}),
               node("Softmax", {"r"}, {"y"}, {attr("axis", int64_t{1})})};
  onnx_test::Model shapes;
  shapes.inputs = {value_info("x", DType::f32, {"2", "n", "4"})};
  shapes.outputs = {value_info("y", DType::f32, {})};
  shapes.initializers = {tensor("s", Array::from<int64_t>(DType::i64, {2}, {0, -1}))};
  shapes.nodes = {node("Shape", {"x"}, {"d"}),
                  node("Reshape", {"x", "s"}, {"r"}),
                  node("Transpose", {"r"}, {"t"}),
                  node("ReduceMean", {"t", ""}, {"m"}),
                  node("Cast", {"d"}, {"c"}, {attr("to", int64_t{1})}),
                  node("Add", {"c", "m"}, {"y"})};
  return {{"mlp.onnx", save(mlp)}, {"shapes.onnx", save(shapes)}};
}

// Dynamic sizes are ranges in some inputs and lists, hence buckets, in others.
void use(const std::string& path, std::string_view bytes) {
  const bool lists = std::hash<std::string_view>()(bytes) % 3 == 0;
  ImportOptions options;
  for (const OnnxDim& dim : dynamic_dims_onnx(path)) {
    if (lists)
      options.dims[dim.name].values = {1, 2, 4};
    else
      options.dims[dim.name].range = Interval{1, 4};
  }
  run_everything(compile(import_onnx(path, options), drawn_options(bytes)));
}

}  // namespace

Target target() { return {seeds, mutated, use}; }

}  // namespace aicf::fuzz
