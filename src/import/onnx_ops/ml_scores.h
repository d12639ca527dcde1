// What the classifiers and regressors of ai.onnx.ml share: rows of numbers in, scores and labels out. Where
// the standard is silent they do what onnxruntime does, by which the converters of scikit-learn and others
// test.
#pragma once

#include "import/onnx_ops/node_context.h"

namespace aicf::onnx {

// Input 0, [rows, features], as floats: f64 stays, everything else becomes f32.
ValueId feature_rows(NodeContext& n);
// A constant of these numbers, [values] or of `sizes`.
ValueId constant_of(NodeContext& n, DType dtype, const std::vector<float>& values,
                    std::vector<int64_t> sizes);

// Scores [rows, classes or targets] after the attribute post_transform, in f32. One column stays as it is.
ValueId transformed_scores(NodeContext& n, ValueId scores, const std::string& transform);
// The class labels of attribute `ints`; those of text (attribute `strings`) only if output 0 is not asked
// for.
Ints class_labels(NodeContext& n, std::string_view ints, std::string_view strings);
// Output 0: the label at `index`, [rows].
void out_labels(NodeContext& n, ValueId index, const Ints& labels);

// Of a model with a single score [rows, 1] for two classes: the place of the class, 1 where the score is
// above `border`, [rows]; and the scores of both, 1 - s and s, or -s and s where s is no probability, or
// LOGISTIC of -s and s.
ValueId is_second(NodeContext& n, ValueId score, double border);
ValueId scores_of_two(NodeContext& n, ValueId score, const std::string& transform, bool probability);

}  // namespace aicf::onnx
