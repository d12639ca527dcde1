// ai.onnx.ml: what prepares features and decodes labels. Text and maps are refused: the IR has numbers only.
#include "import/onnx_ops/ml_scores.h"
#include "import/onnx_ops/registry.h"

namespace aicf::onnx {
namespace {

// A list of one number for all features, or of one for each.
ValueId per_feature(NodeContext& n, DType dtype, const std::vector<float>& values) {
  if (values.size() == 1) return n.scalar(dtype, static_cast<double>(values[0]));
  return constant_of(n, dtype, values, {static_cast<int64_t>(values.size())});
}

void scaler(NodeContext& n) {
  const ValueId x = n.cast(n.in(0), DType::f32);
  const ValueId centered = n.add(Op::sub, {x, per_feature(n, DType::f32, n.attr_floats("offset", {0}))});
  n.out(0, n.add(Op::mul, {centered, per_feature(n, DType::f32, n.attr_floats("scale", {1}))}));
}

// Each row over its largest number, the sum of its sizes or its length; a row of zeros stays.
void normalizer(NodeContext& n) {
  const std::string norm = n.attr_str("norm", "MAX");
  if (n.rank(0) != 1 && n.rank(0) != 2) n.unsupported("rank " + std::to_string(n.rank(0)));
  const ValueId x = n.cast(n.in(0), DType::f32);
  const Attrs row = {{"axes", Ints{n.rank(0) - 1}}, {"keepdims", true}};
  ValueId size = kNoValue;
  if (norm == "MAX")
    size = n.add(Op::reduce_max, {x}, row);
  else if (norm == "L1")
    size = n.add(Op::reduce_sum, {n.add(Op::abs, {x})}, row);
  else if (norm == "L2")
    size = n.add(Op::sqrt, {n.add(Op::reduce_sum, {n.add(Op::mul, {x, x})}, row)});
  else
    n.bad("norm", "MAX, L1 or L2", norm);
  const ValueId none = n.add(Op::eq, {size, n.scalar(DType::f32, 0)});
  n.out(0, n.add(Op::div, {x, n.add(Op::select, {none, n.scalar(DType::f32, 1), size})}));
}

void binarizer(NodeContext& n) {
  const ValueId x = n.in(0);
  const ValueId above = n.add(Op::gt, {x, n.scalar(n.dtype(0), n.attr_float("threshold", 0))});
  n.out(0, n.cast(above, n.dtype(0)));
}

// The features at the given places of the last axis; those of a vector as one row.
void array_feature_extractor(NodeContext& n) {
  if (n.rank(0) < 1) n.bad("X", "at least one axis", "a scalar");
  ValueId x = n.in(0);
  Shape shape = n.shape(0);
  if (shape.size() == 1) x = n.reshape(x, shape = {Dim(1), shape[0]});
  const ValueId places = n.reshape(n.in(1), {element_count(n.shape(1))});
  n.out(0, n.add(Op::gather, {x, places}, {{"axis", static_cast<int64_t>(shape.size()) - 1}}));
}

void imputer(NodeContext& n) {
  const ValueId x = n.in(0);
  const bool real = is_float(n.dtype(0));
  const std::vector<float> floats = n.attr_floats("imputed_value_floats");
  const Ints ints = n.attr_ints("imputed_value_int64s");
  const double replaced = n.attr_float("replaced_value_float", 0);
  const int64_t replaced_int = n.attr_int("replaced_value_int64", 0);
  if (real ? floats.empty() : ints.empty()) n.bad("imputed values", "numbers of the type of X", "none");
  if (!real) {
    const ValueId hit = n.add(Op::eq, {x, n.iscalar(n.dtype(0), replaced_int)});
    const ValueId value = n.constant_of(
        Array::from(n.dtype(0), ints.size() == 1 ? Ints{} : Ints{static_cast<int64_t>(ints.size())}, ints));
    return n.out(0, n.add(Op::select, {hit, value, x}));
  }
  const ValueId hit =
      replaced != replaced ? n.add(Op::is_nan, {x}) : n.add(Op::eq, {x, n.scalar(n.dtype(0), replaced)});
  n.out(0, n.add(Op::select, {hit, per_feature(n, n.dtype(0), floats), x}));
}

void feature_vectorizer(NodeContext& n) {
  const Ints widths = n.attr_ints("inputdimensions");
  if (!widths.empty() && widths.size() != n.input_count())
    n.bad("inputdimensions", "one for each input", std::to_string(widths.size()));
  std::vector<ValueId> parts;
  for (size_t i = 0; i < n.input_count(); ++i) {
    const Shape shape = n.shape(i);
    if (shape.size() != 1 && shape.size() != 2) n.unsupported("rank " + std::to_string(shape.size()));
    if (!widths.empty() && shape.back() != Dim(widths[i]))
      n.unsupported("features cut or filled up to inputdimensions");
    const ValueId part = n.cast(n.in(i), DType::f32);
    parts.push_back(shape.size() == 2 ? part : n.reshape(part, {Dim(1), shape[0]}));
  }
  n.out(0, n.add(Op::concat, parts, {{"axis", int64_t{1}}}));
}

// [..., keys]: which of the keys each element is. NaN is a key like others.
ValueId matches(NodeContext& n, ValueId x, const Array& keys) {
  Shape shape = n.shape_of(x);
  shape.emplace_back(1);
  const ValueId values = n.reshape(x, shape), known = n.constant_of(keys);
  const ValueId equal = n.add(Op::eq, {values, known});
  if (!is_float(keys.dtype())) return equal;
  return n.add(Op::bit_or,
               {equal, n.add(Op::bit_and, {n.add(Op::is_nan, {values}), n.add(Op::is_nan, {known})})});
}

// What is none of the categories has no 1, whatever `zeros` says of it: an error cannot depend on data.
void one_hot_encoder(NodeContext& n) {
  n.ignore("zeros");
  const Ints categories = n.attr_ints("cats_int64s");
  if (const AttributeProto* texts = n.attr("cats_strings"); texts && !texts->strings.empty())
    n.unsupported("categories that are text");
  if (categories.empty()) n.bad("cats_int64s", "the categories", "none");
  const Array keys = Array::from(DType::i64, {static_cast<int64_t>(categories.size())}, categories);
  n.out(0, n.cast(matches(n, n.cast(n.in(0), DType::i64), keys), DType::f32));
}

// The keys or values of a LabelEncoder as one list; nullopt if it has none of this kind.
std::optional<Array> table(NodeContext& n, const std::string& kind) {
  std::optional<Array> found;
  if (const AttributeProto* a = n.attr(kind + "_int64s"); a && !a->ints.empty())
    found = Array::from(DType::i64, {static_cast<int64_t>(a->ints.size())}, a->ints);
  if (const AttributeProto* a = n.attr(kind + "_floats"); a && !a->floats.empty())
    found = Array::from(DType::f32, {static_cast<int64_t>(a->floats.size())}, a->floats);
  if (const AttributeProto* a = n.attr(kind + "_tensor"); a && a->t) found = to_array(*a->t, nullptr, "");
  if (const AttributeProto* a = n.attr(kind + "_strings"); a && !a->strings.empty())
    n.unsupported(kind + " that are text");
  if (found) found = found->reshaped({found->count()});
  return found;
}

// The value of what no key matches; the attribute of the type of the values counts.
ValueId default_value(NodeContext& n, DType dtype) {
  n.ignore("default_string");
  const double real = n.attr_float("default_float", 0);
  const int64_t whole = n.attr_int("default_int64", -1);
  if (const AttributeProto* given = n.attr("default_tensor"); given && given->t)
    return n.cast(n.reshape(n.constant_of(to_array(*given->t, nullptr, "")), {}), dtype);
  return is_float(dtype) ? n.scalar(dtype, real) : n.iscalar(dtype, whole);
}

void label_encoder(NodeContext& n) {
  const std::optional<Array> keys = table(n, "keys"), values = table(n, "values");
  if (!keys || !values || keys->count() != values->count())
    n.bad("keys and values", "as many of one as of the other", "else");
  if (keys->dtype() != n.dtype(0)) n.bad("keys", "the type of X", std::string(dtype_name(keys->dtype())));
  const ValueId found = matches(n, n.in(0), *keys);
  const int64_t last = n.rank(0);
  const ValueId place = n.add(Op::argmax, {n.cast(found, DType::i32)}, {{"axis", last}});
  const ValueId value = n.add(Op::gather, {n.constant_of(*values), place}, {{"axis", int64_t{0}}});
  const ValueId known = n.add(Op::reduce_max, {found}, {{"axes", Ints{last}}});
  n.out(0, n.add(Op::select, {known, value, default_value(n, values->dtype())}));
}

void zip_map(NodeContext& n) {
  n.unsupported(
      "maps from labels to numbers: export without it (skl2onnx: options={'zipmap': False}), or make its "
      "input "
      "the output");
}

}  // namespace

std::vector<OpRule> ml_rules() {
  return {{"Scaler", scaler, 1, kMl},
          {"Normalizer", normalizer, 1, kMl},
          {"Binarizer", binarizer, 1, kMl},
          {"ArrayFeatureExtractor", array_feature_extractor, 1, kMl},
          {"Imputer", imputer, 1, kMl},
          {"FeatureVectorizer", feature_vectorizer, 1, kMl},
          {"OneHotEncoder", one_hot_encoder, 1, kMl},
          {"LabelEncoder", label_encoder, 2, kMl},
          {"ZipMap", zip_map, 1, kMl}};
}

}  // namespace aicf::onnx
