/* Ops of your own for the CPU: a C function under a name. A model that uses the op holds only the name, so
 * every process that loads it for the CPU registers it first; docs/custom_ops.md has the whole way. C99. */
#pragma once

#include <stdint.h>

#include "aicf/aicf_c.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Row-major memory. */
typedef struct aicf_custom_tensor {
  void* data;    /* of inputs never written */
  int32_t dtype; /* enum aicf_dtype */
  int32_t rank;
  const int64_t* sizes;
} aicf_custom_tensor;

/* Computes every element of the outputs from the inputs, and nothing else; params and fparams are the op's
 * whole and real attributes in the order of their declaration. It may run in any thread, in several at once.
 */
typedef void (*aicf_custom_function)(const aicf_custom_tensor* inputs, int32_t input_count,
                                     const aicf_custom_tensor* outputs, int32_t output_count,
                                     const int64_t* params, const double* fparams, void* user);

/* For the life of the process; `user` is handed to every call. A name can be registered once. */
AICF_API aicf_status aicf_register_op(const char* name, aicf_custom_function function, void* user);

/* What a shared library of ops exports, to be named in AICF_CUSTOM_OPS (colon-separated paths):
 *   void aicf_register_custom_ops(aicf_add_op add) { add("my::op", my_op, NULL); } */
typedef void (*aicf_add_op)(const char* name, aicf_custom_function function, void* user);

#ifdef __cplusplus
}
#endif
