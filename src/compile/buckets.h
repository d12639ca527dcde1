// A program's ranges of sizes in the parts that Program::buckets names: which programs to compile beside the
// one that serves all sizes.
#pragma once

#include <vector>

#include "ir/graph.h"

namespace aicf {

struct BucketProgram {
  SymbolRanges bucket;  // the sizes that it is for
  Program program;      // one entry, over the same variables; a size of one value is a number in it
};

// For every entry all combinations of the buckets of its inputs' sizes but the last, of the largest sizes,
// which the entry itself runs. bad_option where they are too many.
std::vector<BucketProgram> bucket_programs(const Program& program);

}  // namespace aicf
