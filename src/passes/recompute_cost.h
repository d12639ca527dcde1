// Whether what one region gives and others read had better be stored, or computed again by those readers.
// fuse_regions asks when it takes groups apart, recompute_values once it is known what regions store. Both
// weigh bytes: on a GPU the arithmetic between a region's loads and stores is free behind the memory.
#pragma once

#include "ir/graph.h"

namespace aicf {

enum class Readers {
  kOne,   // one region reads the value: the work moves there and is done once all the same
  kMany,  // each region that reads the value does the work again
};

// Whether regions that read the node's result may compute it themselves.
bool readers_may_compute(const Node& node, Readers readers);

// Whether the cast gives more bytes than it takes: then what it takes is stored and the cast done again.
bool widens(const Graph& graph, const Node& cast);

// Whether a value is so small beside what its readers run over, as a row's mean is, that it is stored
// whatever its computation costs. Both in elements.
bool is_cheap_to_store(int64_t elements, int64_t domain);

// At the largest sizes of the ranges.
int64_t most_elements(const Shape& shape, const SymbolRanges& sizes);
double most_bytes(const TensorType& type, const SymbolRanges& sizes);

}  // namespace aicf
