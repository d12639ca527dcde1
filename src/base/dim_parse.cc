#include <cctype>

#include "base/dim_function.h"
#include "base/error.h"

namespace aicf {
namespace {

// Recursive descent over sum := product (('+'|'-') product)*, product := unary ('*' unary)*. Depth is bounded
// because the text may come from a stranger.
class DimParser {
 public:
  explicit DimParser(std::string_view text) : text_(text) {}

  Dim parse_all() {
    Dim dim = sum(0);
    skip();
    if (at_ != text_.size()) fail("unexpected text after the expression");
    return dim;
  }

 private:
  static constexpr int kMaxDepth = 32;
  static constexpr size_t kMaxSumTerms = 512;  // a sum of n terms takes n^2 copies of a term

  [[noreturn]] void fail(const char* why) const {
    throw UserError(ErrorCode::kU_bad_text, std::string("cannot read a size expression: ") + why)
        .with_value(std::string(text_.substr(0, 200)));
  }
  void skip() {
    while (at_ < text_.size() && std::isspace(static_cast<unsigned char>(text_[at_]))) ++at_;
  }
  bool take(char c) {
    skip();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  Dim sum(int depth) {
    if (depth > kMaxDepth) fail("nested too deeply");
    Dim result = take('-') ? Dim(-1) * product(depth) : product(depth);
    for (;;) {
      if (result.terms().size() > kMaxSumTerms) fail("too many terms");
      if (take('+')) {
        result = result + product(depth);
      } else if (take('-')) {
        result = result - product(depth);
      } else {
        return result;
      }
    }
  }
  Dim product(int depth) {
    Dim result = unary(depth);
    while (take('*')) result = result * unary(depth);
    return result;
  }
  Dim unary(int depth) {
    skip();
    if (take('(')) {
      Dim inner = sum(depth + 1);
      if (!take(')')) fail("expected ')'");
      return inner;
    }
    if (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_]))) return number();
    return name_or_function(depth);
  }
  Dim number() {
    int64_t value = 0;
    while (at_ < text_.size() && std::isdigit(static_cast<unsigned char>(text_[at_])))
      value = checked_add(checked_mul(value, 10), text_[at_++] - '0');
    return Dim(value);
  }
  Dim name_or_function(int depth) {
    const size_t begin = at_;
    while (at_ < text_.size() && is_symbol_char(text_[at_])) ++at_;
    const std::string_view name = text_.substr(begin, at_ - begin);
    if (name.empty()) fail("expected a number, a name or '('");
    if (!take('(')) return Dim::symbol(std::string(name));
    Dim a = sum(depth + 1);
    if (!take(',')) fail("expected ','");
    Dim b = sum(depth + 1);
    if (!take(')')) fail("expected ')'");
    for (const Dim::AtomKind kind :
         {Dim::AtomKind::kFloorDiv, Dim::AtomKind::kMod, Dim::AtomKind::kMax, Dim::AtomKind::kMin})
      if (name == function_name(kind)) return apply_function(kind, a, b);
    fail("unknown function");
  }
  static bool is_symbol_char(char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '$' || c == ':' ||
           c == '/';
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

Dim Dim::parse(std::string_view text) { return DimParser(text).parse_all(); }

}  // namespace aicf
