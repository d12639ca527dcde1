// Whether the calls of a program hold together: what every pass over calls takes for granted, and leaves as
// true as it was. Broken, it is our fault: InternalError check_failed says behind which pass, in which graph
// and call.
//
// - Graphs: bodies come before the graphs that run them; every list that goes by value or output has its
//   length.
// - Windows: on a value that there is, and inside its storage at one end of the ranges of the sizes at least.
//   Where a model takes more of a value than sizes give, some sizes do not fit, and a run with them is
//   refused.
// - Order: a temp is written before it is read, in a bundle by an earlier stage; a variable whose new value
//   nobody wants is not read any more once it is written; what is constant nobody writes.
// - Lanes: calls that may run at the same time write nothing of each other's.
// - What runs: something does; control flow has bodies, a library's call its text. A region has a schedule.
// - Programs: a row's program is there, plays the role that the row has for it, and its operands are those of
//   the call from its first one on; of an epilogue, behind the sums of the row's products,
//   each over the axes of the result.
// - Members: calls by themselves, whose operands are those of the whole, each at least once; stages ascend
//   from 0. Those of a group run one row in one way; of a prologue fusion, the consumer reads what
//   the producer writes.
#pragma once

#include <string>

#include "select/call_program.h"

namespace aicf {

// `after`: the pass, for the message.
void verify(const CallGraph& calls, const std::string& after);
void verify(const CallProgram& program, const std::string& after);

// Whether every call of a GPU, and every member of one, runs in a way that its row of the kernel table offers
// for its problem. Asks all rows again, so tests and debug builds do.
void verify_ways(const CallProgram& program);

}  // namespace aicf
