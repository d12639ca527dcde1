#include "kernels/matmul/wgmma_text.h"

namespace aicf {

std::string wgmma_multiply_text(DType dtype, int columns, bool x_along_k, bool y_along_k) {
  const int registers = columns / 2;
  const std::string type(dtype_name(dtype)), size = "m64n" + std::to_string(columns) + "k16";
  std::string names, operands;
  for (int i = 0; i < registers; ++i) {
    const std::string number = std::to_string(i), comma = i == 0 ? "" : ", ";
    names += comma + "%" + number;
    operands += comma + "\"+f\"(d[" + number + "])";
  }
  return "struct Multiply {\n  static __device__ __forceinline__ void run(float (&d)[" +
         std::to_string(registers) +
         "], uint64_t a, uint64_t b) {\n    asm volatile(\"{\\n.reg .pred add;\\nsetp.eq.u32 add, 0, "
         "0;\\n\"\n"
         "        \"wgmma.mma_async.sync.aligned." +
         size + ".f32." + type + "." + type + " {" + names + "}, %" + std::to_string(registers) + ", %" +
         std::to_string(registers + 1) + ", add, 1, 1, " + (x_along_k ? "0" : "1") + ", " +
         (y_along_k ? "0" : "1") + ";\\n}\"\n        : " + operands +
         "\n        : \"l\"(a), \"l\"(b));\n  }\n};\n";
}

}  // namespace aicf
