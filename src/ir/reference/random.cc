// Random bits: a pure function of seed, step, stream and element index.
#include "ir/reference/philox.h"
#include "ir/reference/ref_op.h"

namespace aicf::reference {

PhiloxCounter philox4x32_10(PhiloxCounter counter, PhiloxKey key) {
  for (int round = 0; round < 10; ++round) {
    const uint64_t first = uint64_t{0xD2511F53} * counter[0], second = uint64_t{0xCD9E8D57} * counter[2];
    const auto high = [](uint64_t product) { return static_cast<uint32_t>(product >> 32); };
    counter = {high(second) ^ counter[1] ^ key[0], static_cast<uint32_t>(second),
               high(first) ^ counter[3] ^ key[1], static_cast<uint32_t>(first)};
    key[0] += 0x9E3779B9;  // the golden ratio
    key[1] += 0xBB67AE85;  // sqrt(3) - 1
  }
  return counter;
}

uint32_t random_word(int64_t seed, int64_t step, int64_t stream, int64_t index) {
  const auto low = [](int64_t bits) { return static_cast<uint32_t>(static_cast<uint64_t>(bits)); };
  const auto high = [](int64_t bits) { return static_cast<uint32_t>(static_cast<uint64_t>(bits) >> 32); };
  const int64_t block = index / 4;
  const PhiloxCounter words =
      philox4x32_10({low(block), high(block), low(step), low(stream)}, {low(seed), high(seed)});
  return words[static_cast<size_t>(index % 4)];
}

RefResults ref_random_bits(const RefContext& c) {
  RefTensor out = c.result();
  if (out.dtype != DType::i32)
    throw UserError(ErrorCode::kU_bad_dtype, "random_bits gives 32-bit words")
        .with_op(c.op())
        .with_expected("i32")
        .with_actual(std::string(dtype_name(out.dtype)));
  for (int64_t index = 0; index < out.count(); ++index)
    out.i[static_cast<size_t>(index)] =
        static_cast<int32_t>(random_word(c.x(0).i.at(0), c.x(1).i.at(0), c.attrs().get_int("stream"), index));
  return one(std::move(out));
}

}  // namespace aicf::reference
