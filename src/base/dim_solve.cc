#include "base/dim_solve.h"

namespace aicf {

std::optional<SolvedSize> solve(const Dim& dim, int64_t length) {
  if (dim.terms().size() != 1) return std::nullopt;
  const Dim::Term& term = dim.terms()[0];
  if (term.factors.size() != 1 || term.factors[0].kind != Dim::AtomKind::kSymbol) return std::nullopt;
  const int64_t rest = checked_add(length, checked_mul(dim.constant_part(), -1));
  if (rest % term.coefficient != 0) return SolvedSize{term.factors[0].text, std::nullopt};
  return SolvedSize{term.factors[0].text, rest / term.coefficient};
}

}  // namespace aicf
