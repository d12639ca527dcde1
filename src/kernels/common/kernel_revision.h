// The speed of a kernel as a number: raised by whoever changes a row so much that tuning records of before
// may no longer name its best variant. Records hold it (select/records.h).
#pragma once

#include <string_view>

namespace aicf {

// 0 for a row that has one way only.
int kernel_revision(std::string_view kernel);

}  // namespace aicf
