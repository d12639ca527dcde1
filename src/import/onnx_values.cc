#include "import/onnx_values.h"

#include "base/error.h"
#include "ir/literal.h"

namespace aicf::onnx {
namespace {

void parse_shape(pbf_reader reader, ValueInfo& info) {
  info.has_shape = true;
  for_each_field(reader, [&](pbf_reader& r) {
    if (r.tag() != 1 || !is_bytes(r)) return false;
    Dimension& dimension = info.shape.emplace_back();
    for_each_field(r.get_message(), [&](pbf_reader& d) {
      switch (d.tag()) {
        case 1:
          return is_varint(d) ? (dimension.has_value = true, dimension.value = d.get_int64(), true) : false;
        case 2:
          return take_string(d, dimension.param);
        default:
          return false;
      }
    });
    return true;
  });
}

void parse_type(pbf_reader reader, ValueInfo& info) {
  for_each_field(reader, [&](pbf_reader& r) {
    if (!is_bytes(r)) return false;
    switch (r.tag()) {
      case 1:
        info.kind = "tensor";
        for_each_field(r.get_message(), [&](pbf_reader& t) {
          if (t.tag() == 1) return take_enum(t, info.elem_type);
          if (t.tag() == 2 && is_bytes(t)) return parse_shape(t.get_message(), info), true;
          return false;
        });
        return true;
      case 4:
        info.kind = "sequence";
        return false;
      case 5:
        info.kind = "map";
        return false;
      case 7:
        info.kind = "opaque";
        return false;
      case 8:
        info.kind = "sparse_tensor";
        return false;
      case 9:
        info.kind = "optional";
        return false;
      default:
        return false;
    }
  });
}

}  // namespace

void fail_model(const std::string& what) {
  throw UserError(ErrorCode::kU_bad_model_file, "not a valid ONNX model: " + what)
      .with_remedy("check that the file is a complete ONNX model");
}

void require_text(const std::string& name) {
  if (is_utf8(name)) return;
  std::string quoted;
  append_quoted(quoted, name);
  fail_model("a name is not UTF-8 text: " + quoted);
}

std::pair<std::string, std::string> parse_entry(pbf_reader reader) {
  std::pair<std::string, std::string> entry;
  for_each_field(reader, [&](pbf_reader& r) {
    switch (r.tag()) {
      case 1:
        return take_string(r, entry.first);
      case 2:
        return take_string(r, entry.second);
      default:
        return false;
    }
  });
  return entry;
}

TensorProto parse_tensor_message(pbf_reader reader) {
  TensorProto tensor;
  for_each_field(reader, [&](pbf_reader& r) {
    switch (r.tag()) {
      case 1:
        return append_ints(r, tensor.dims);
      case 2:
        return take_enum(r, tensor.data_type);
      case 3:
        fail_model("a tensor comes in segments");
      case 4:
        return append_floats(r, tensor.floats);
      case 5:
        return append_numbers(r, pbf_wire_type::varint, &pbf_reader::get_int32, &pbf_reader::get_packed_int32,
                              tensor.int32s);
      case 6:
        return append_bytes(r, tensor.strings);
      case 7:
        return append_ints(r, tensor.int64s);
      case 8:
        return take_string(r, tensor.name);
      case 9:
        if (!is_bytes(r)) return false;
        tensor.raw = view_of(r);
        tensor.has_raw = true;
        return true;
      case 10:
        return append_numbers(r, pbf_wire_type::fixed64, &pbf_reader::get_double,
                              &pbf_reader::get_packed_double, tensor.doubles);
      case 11:
        return append_numbers(r, pbf_wire_type::varint, &pbf_reader::get_uint64,
                              &pbf_reader::get_packed_uint64, tensor.uint64s);
      case 13:
        return is_bytes(r) ? (tensor.external_data.insert(parse_entry(r.get_message())), true) : false;
      case 14:
        return is_varint(r) ? (tensor.external = r.get_int32() == 1, true) : false;
      default:
        return false;
    }
  });
  return tensor;
}

TensorProto parse_sparse_tensor(pbf_reader reader) {
  TensorProto tensor;
  auto values = std::make_shared<TensorProto>(), indices = std::make_shared<TensorProto>();
  for_each_field(reader, [&](pbf_reader& r) {
    if (r.tag() == 3) return append_ints(r, tensor.dims);
    if ((r.tag() != 1 && r.tag() != 2) || !is_bytes(r)) return false;
    TensorProto& part = r.tag() == 1 ? *values : *indices;
    part = parse_tensor_message(r.get_message());
    return true;
  });
  tensor.name = values->name;
  tensor.data_type = values->data_type;
  tensor.sparse_values = std::move(values);
  tensor.sparse_indices = std::move(indices);
  return tensor;
}

ValueInfo parse_value_info(pbf_reader reader) {
  ValueInfo info;
  for_each_field(reader, [&](pbf_reader& r) {
    if (r.tag() == 1) return take_string(r, info.name);
    if (r.tag() == 2 && is_bytes(r)) return parse_type(r.get_message(), info), true;
    return false;
  });
  return info;
}

}  // namespace aicf::onnx
