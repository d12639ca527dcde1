// Arrays of standard normal numbers, the same on every run, and how far results are from what they should be.
#pragma once

#include <cmath>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "base/array.h"
#include "ir/graph.h"

namespace aicf::testing {

inline void fill_normal(Array& array, std::mt19937& engine, std::normal_distribution<double>& normal) {
  for (int64_t i = 0; i < array.count(); ++i) array.set_f64(i, normal(engine));
}

inline Array random_array(DType dtype, std::vector<int64_t> sizes, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  Array array(dtype, std::move(sizes));
  fill_normal(array, engine, normal);
  return array;
}
inline Array random_array(std::vector<int64_t> sizes, uint32_t seed) {
  return random_array(DType::f32, std::move(sizes), seed);
}

// The inputs of the first entry, whose sizes are constant.
inline std::map<std::string, Array> normal_inputs(const Program& program, uint32_t seed) {
  std::mt19937 engine(seed);
  std::normal_distribution<double> normal;
  std::map<std::string, Array> inputs;
  const Graph& graph = program.entries[0];
  for (ValueId id : graph.inputs()) {
    Array array(graph.dtype(id), evaluate(graph.shape(id), {}));
    fill_normal(array, engine, normal);
    inputs.emplace(graph.value(id).name, std::move(array));
  }
  return inputs;
}

// Of all elements together: |got - want| / |want|.
inline double relative_error(const Array& got, const Array& want) {
  double error = 0, size = 0;
  for (int64_t i = 0; i < want.count(); ++i) {
    const double difference = got.get_f64(i) - want.get_f64(i);
    error += difference * difference;
    size += want.get_f64(i) * want.get_f64(i);
  }
  return std::sqrt(error / size);
}

}  // namespace aicf::testing
