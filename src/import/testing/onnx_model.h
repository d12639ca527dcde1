// A tiny writer of ONNX protobuf messages for tests: just enough fields to build small models in memory.
#pragma once

#include <protozero/pbf_writer.hpp>

#include <string>
#include <vector>

#include "base/array.h"

namespace aicf::onnx_test {

using Writer = protozero::pbf_writer;

inline std::string tensor(const std::string& name, const Array& array) {
  std::string out;
  Writer w(out);
  for (int64_t size : array.sizes()) w.add_int64(1, size);
  w.add_int32(2, dtype_info(array.dtype()).onnx);
  w.add_bytes(9, static_cast<const char*>(array.data()), static_cast<size_t>(array.bytes()));
  w.add_string(8, name);
  return out;
}

inline std::string sparse_tensor(const std::string& name, const Array& values, const Array& indices,
                                 const std::vector<int64_t>& sizes) {
  std::string out;
  Writer w(out);
  w.add_message(1, tensor(name, values));
  w.add_message(2, tensor("", indices));
  for (int64_t size : sizes) w.add_int64(3, size);
  return out;
}

// A size: a number, or a name if it does not start with a digit; "" is unnamed.
inline std::string value_info(const std::string& name, DType dtype, const std::vector<std::string>& sizes) {
  std::string shape, type, tensor_type, out;
  for (const std::string& size : sizes) {
    std::string dim;
    Writer d(dim);
    if (!size.empty() && size[0] >= '0' && size[0] <= '9')
      d.add_int64(1, std::stoll(size));
    else if (!size.empty())
      d.add_string(2, size);
    Writer(shape).add_message(1, dim);
  }
  Writer t(tensor_type);
  t.add_int32(1, dtype_info(dtype).onnx);
  t.add_message(2, shape);
  Writer(type).add_message(1, tensor_type);
  Writer w(out);
  w.add_string(1, name);
  w.add_message(2, type);
  return out;
}

struct Attribute {
  std::string bytes;
  static Attribute make(const std::string& name, int type, void (*fill)(Writer&, const void*),
                        const void* value) {
    Attribute a;
    Writer w(a.bytes);
    w.add_string(1, name);
    fill(w, value);
    w.add_int32(20, type);
    return a;
  }
};

inline Attribute attr(const std::string& name, int64_t value) {
  return Attribute::make(
      name, 2, [](Writer& w, const void* v) { w.add_int64(3, *static_cast<const int64_t*>(v)); }, &value);
}
inline Attribute attr(const std::string& name, float value) {
  return Attribute::make(
      name, 1, [](Writer& w, const void* v) { w.add_float(2, *static_cast<const float*>(v)); }, &value);
}
inline Attribute graph_attr(const std::string& name, const std::string& graph) {
  return Attribute::make(
      name, 5, [](Writer& w, const void* v) { w.add_message(6, *static_cast<const std::string*>(v)); },
      &graph);
}
// The value of the enclosing function's attribute.
inline Attribute ref_attr(const std::string& name, const std::string& of, int type) {
  return Attribute::make(
      name, type, [](Writer& w, const void* v) { w.add_string(21, *static_cast<const std::string*>(v)); },
      &of);
}

inline std::string node(const std::string& op, const std::vector<std::string>& inputs,
                        const std::vector<std::string>& outputs,
                        const std::vector<Attribute>& attributes = {}, const std::string& domain = "") {
  std::string out;
  Writer w(out);
  for (const std::string& input : inputs) w.add_string(1, input);
  for (const std::string& output : outputs) w.add_string(2, output);
  w.add_string(3, op + "_" + outputs[0]);
  w.add_string(4, op);
  for (const Attribute& attribute : attributes) w.add_message(5, attribute.bytes);
  w.add_string(7, domain);
  return out;
}

struct Model {
  std::vector<std::string> nodes, initializers, sparse_initializers, inputs, outputs, functions;
  int64_t opset = 21;

  std::string graph() const {
    std::string out;
    Writer w(out);
    for (const std::string& n : nodes) w.add_message(1, n);
    w.add_string(2, "test");
    for (const std::string& t : initializers) w.add_message(5, t);
    for (const std::string& t : sparse_initializers) w.add_message(15, t);
    for (const std::string& i : inputs) w.add_message(11, i);
    for (const std::string& o : outputs) w.add_message(12, o);
    return out;
  }

  static void add_opset(Writer& w, int field, const std::string& domain, int64_t version) {
    std::string opset_text;
    Writer o(opset_text);
    o.add_string(1, domain);
    o.add_int64(2, version);
    w.add_message(static_cast<protozero::pbf_tag_type>(field), opset_text);
  }

  std::string bytes() const {
    std::string out;
    Writer w(out);
    w.add_int64(1, 10);
    w.add_message(7, graph());
    add_opset(w, 8, "", opset);
    add_opset(w, 8, "local", 1);
    for (const std::string& f : functions) w.add_message(25, f);
    return out;
  }
};

}  // namespace aicf::onnx_test
