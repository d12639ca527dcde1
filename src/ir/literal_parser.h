// Types, attributes and contents of constants in the text form. Failures are Cursor's: bad_text with the
// place.
#pragma once

#include <vector>

#include "ir/attr.h"
#include "ir/cursor.h"
#include "ir/op.h"
#include "ir/text.h"

namespace aicf {

class LiteralParser {
 public:
  // Reads on from `in`, which it shares; `blobs` gives the contents that stand outside the text.
  LiteralParser(Cursor& in, const BlobResolver& blobs) : in_(in), blobs_(blobs) {}

  int64_t integer();
  std::vector<int64_t> integers();  // "[1, 2]"
  TensorType type();                // "f32[batch, 4]"
  // "{name = value, …}", each an attribute that the op declares.
  Attrs attributes(const OpInfo& info);
  // "[1, 2]" or "blob 0x…", of constant sizes; `at` is where the constant begins, for errors.
  Array contents(size_t at, const TensorType& declared);

 private:
  double real();
  bool boolean();
  DType dtype();
  Attr attribute(AttrType type);
  template <typename T, typename Read>
  std::vector<T> list(Read read);
  Array inline_elements(size_t at, DType dtype, const std::vector<int64_t>& sizes);
  Array blob(DType dtype, const std::vector<int64_t>& sizes);

  Cursor& in_;
  const BlobResolver& blobs_;
};

}  // namespace aicf
