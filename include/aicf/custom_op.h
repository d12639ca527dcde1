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
 * whole and real attributes in the order of their declaration. It may run in any thread, in several at once,
 * and keeps no address after it returned. */
typedef void (*aicf_custom_function)(const aicf_custom_tensor* inputs, int32_t input_count,
                                     const aicf_custom_tensor* outputs, int32_t output_count,
                                     const int64_t* params, const double* fparams, void* user);

/* The same for an op that can fail. It gives AICF_OK, or any other value, and then it may have written the
 * reason to `message`: at most message_size bytes, its final 0 included; it is empty before. The run stops
 * there and gives AICF_USER_ERROR (AICF-U0408 with op, node and reason); states are as before the run,
 * outputs undefined. */
typedef aicf_status (*aicf_checked_function)(const aicf_custom_tensor* inputs, int32_t input_count,
                                             const aicf_custom_tensor* outputs, int32_t output_count,
                                             const int64_t* params, const double* fparams, void* user,
                                             char* message, int32_t message_size);

/* For the life of the process; `user` is handed to every call. A name can be registered once. */
AICF_API aicf_status aicf_register_op(const char* name, aicf_custom_function function, void* user);
AICF_API aicf_status aicf_register_checked_op(const char* name, aicf_checked_function function, void* user);

/* What a shared library of ops exports, one or both, to be named in AICF_CUSTOM_OPS (colon-separated paths):
 *   void aicf_register_custom_ops(aicf_add_op add) { add("my::op", my_op, NULL); }
 *   void aicf_register_checked_ops(aicf_add_checked_op add) { add("my::other", my_other, NULL); } */
typedef void (*aicf_add_op)(const char* name, aicf_custom_function function, void* user);
typedef void (*aicf_add_checked_op)(const char* name, aicf_checked_function function, void* user);

#ifdef __cplusplus
}
#endif
