// Chooses among the candidates of one call: the rows of the kernel table that can run it, each with its
// variants. Pure: a choice follows from the call, the target, records and what the caller forces; nothing is
// measured. Takes a call with its windows and the params of its row; gives it row, way or library, the ranked
// candidates and the reason.
#pragma once

#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/common/kernel.h"
#include "select/kernel_call.h"
#include "select/records.h"
#include "target/target.h"

namespace aicf {

// "Run `candidate` wherever it is a candidate of a step that `where` names": the op's family, a part of the
// step's origin, or "*".
struct ForcedChoice {
  std::string where, candidate;
};

bool is_meant(const ForcedChoice& forced, const KernelCall& call, std::string_view op);

struct SelectOptions {
  SymbolRanges ranges;
  const Records* records = nullptr;  // null: no records
  std::vector<ForcedChoice> forced;
  bool libraries = true;  // recorded or forced calls of libraries are candidates
  // Variables that some entry of the program writes; their packed forms would go stale, so kernels read them
  // as they are stored.
  std::set<std::string> updated;
};

// Whether a forced choice gives such a call to the row, in whatever way.
bool is_forced(const KernelRow& row, const KernelCall& call, const SelectOptions& options);

// "estimated 7.1 us", with ", priced 6.3 us" if measurements have changed the price.
std::string time_text(const Candidate& candidate);

// What the kernel table is asked about the call of a row: its windows and params.
Problem problem_of_call(const KernelCall& call, std::string_view family, bool has_program);

// The one builder of keys. `region` is null if the call has none.
ProblemKey problem_key(const KernelCall& call, std::string_view op, const Region* region,
                       const Target& target, const SymbolRanges& ranges);

// Candidates of the rows, which come best first: theirs in order, each row's variants as it ranks them.
std::vector<Candidate> list_candidates(const KernelCall& call, const std::vector<const KernelRow*>& rows,
                                       const Target& target, const SymbolRanges& ranges);

// A library's call in the place of an `own` candidate. No library says how long its call takes: the estimate
// is what the work of the own kernel cannot take less than.
Candidate library_candidate(const LibraryCall& library, const KernelCall& call, const Candidate& own,
                            const Target& target, const SymbolRanges& ranges);

// What a record makes of the price of its candidate: what was measured of this very problem. If that was of a
// like problem, the candidate is expected to take no longer than what would run without the record.
void set_price(Candidate& candidate, const Records::Found& found, double otherwise_us);

// Fills what runs, choice and reason; gives the chosen row. `op` is the family asked for.
const KernelRow* choose(KernelCall& call, std::string_view op, const std::vector<const KernelRow*>& rows,
                        const Region* region, const Target& target, const SelectOptions& options);

// Whether a product runs so on wgmma, by parts too; no of what is no product.
bool multiplies_by_wgmma(const Way& way);

// Makes the call of a row run `winner`; `own` is what runs in place of a library where that is not wanted.
void use_candidate(KernelCall& call, const Candidate& winner, const Candidate& own);

}  // namespace aicf
