/* The C API of AICF: compile an ONNX model, load a compiled one (.aicf) and run it. C99; every function
 * returns a status and none throws or exits. Any pointer may be NULL where not stated otherwise; one that is
 * needed gives AICF_USER_ERROR. After a failure aicf_last_error() says what happened in the calling thread.
 * An aicf_executable has one run in flight; give each thread a clone. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "aicf/version.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Raised when a function or struct of this header changes incompatibly. */
#define AICF_ABI_VERSION 2

typedef int32_t aicf_status;
enum { AICF_OK = 0, AICF_USER_ERROR = 2, AICF_ENVIRONMENT_ERROR = 3, AICF_INTERNAL_ERROR = 4 };

enum aicf_dtype {
  AICF_DTYPE_f64,
  AICF_DTYPE_f32,
  AICF_DTYPE_f16,
  AICF_DTYPE_bf16,
  AICF_DTYPE_i64,
  AICF_DTYPE_i32,
  AICF_DTYPE_i16,
  AICF_DTYPE_i8,
  AICF_DTYPE_u8,
  AICF_DTYPE_boolean
};

typedef struct aicf_executable aicf_executable;

/* Where an array is: in the host's memory, or in that of the device the executable was loaded onto. Memory of
 * another GPU is refused; addresses that the driver does not know are not checked. */
enum aicf_place { AICF_HOST, AICF_DEVICE };

/* An array in the caller's memory. */
typedef struct aicf_tensor {
  void* data;    /* of inputs never written; an address of the device in AICF_DEVICE */
  int32_t dtype; /* enum aicf_dtype */
  int32_t rank;
  const int64_t* sizes;   /* `rank` of them */
  const int64_t* strides; /* in elements; NULL: row-major */
  int32_t place;          /* enum aicf_place */
} aicf_tensor;

/* An input or output of a model. The pointers live as long as the executable. */
typedef struct aicf_tensor_info {
  const char* name;
  int32_t dtype;
  int32_t rank;
  const int64_t* min_sizes; /* what each size may be; equal if it is fixed */
  const int64_t* max_sizes;
  const char* const* size_names; /* "batch", "16", "2*seq" */
} aicf_tensor_info;

/* Of the library that runs; compare it with AICF_ABI_VERSION. */
AICF_API int32_t aicf_abi_version(void);
AICF_API const char* aicf_version(void);

/* Text and code ("AICF-U0403") of the last failure in this thread; "" if there was none. Valid until the next
 * failure. */
AICF_API const char* aicf_last_error(void);
AICF_API const char* aicf_last_error_code(void);

/* A compiled model that is not loaded; immutable, for any number of threads. */
typedef struct aicf_artifact aicf_artifact;

/* All zero: as compiling without options. */
typedef struct aicf_compile_options {
  const char* const* dims; /* what dynamic sizes may be: "batch=8", "batch=1,8", "sequence=16..512" */
  int32_t dim_count;
  int32_t unoptimised;   /* not 0: without the optimisations, for comparing */
  const char* target;    /* NULL: "cpu"; "cuda": this machine's GPU; "sm_90"; several by comma */
  const char* precision; /* NULL: "f32", as the model states it; "tf32", "bf16-mixed", "f16-mixed" */
} aicf_compile_options;

/* Compiles an ONNX file, or one in memory, which the call only reads and which must hold its weights itself.
 * options: NULL, defaults. *result is NULL after a failure. */
AICF_API aicf_status aicf_compile_onnx_file(const char* path, const aicf_compile_options* options,
                                            aicf_artifact** result);
AICF_API aicf_status aicf_compile_onnx_memory(const void* data, size_t bytes,
                                              const aicf_compile_options* options, aicf_artifact** result);
/* Writes an .aicf file; it appears under its name only when it is complete. */
AICF_API aicf_status aicf_artifact_save(const aicf_artifact* artifact, const char* path);
/* As aicf_load_on() of the saved file; the executable does not need the artifact any more. */
AICF_API aicf_status aicf_artifact_load(const aicf_artifact* artifact, const char* device, int32_t threads,
                                        int64_t memory_limit, aicf_executable** result);
/* Accepts NULL. */
AICF_API aicf_status aicf_artifact_free(aicf_artifact* artifact);

/* threads 0: AICF_NUM_THREADS, else the physical cores. *result is NULL after a failure. */
AICF_API aicf_status aicf_load(const char* path, int32_t threads, aicf_executable** result);
/* device: "cpu", "cuda", "cuda:1"; memory_limit: bytes of a GPU's memory that the model and its users take
 * together, 0: no limit. */
AICF_API aicf_status aicf_load_on(const char* path, const char* device, int32_t threads, int64_t memory_limit,
                                  aicf_executable** result);
/* A second user of the same weights, with states of its own that begin as the present ones. */
AICF_API aicf_status aicf_clone(const aicf_executable* executable, aicf_executable** result);
/* Accepts NULL. */
AICF_API aicf_status aicf_free(aicf_executable* executable);

/* Entries by index; entry 0 is the default. */
AICF_API aicf_status aicf_entry_count(const aicf_executable* executable, int32_t* count);
AICF_API aicf_status aicf_entry_name(const aicf_executable* executable, int32_t entry, const char** name);

AICF_API aicf_status aicf_input_count(const aicf_executable* executable, int32_t entry, int32_t* count);
AICF_API aicf_status aicf_output_count(const aicf_executable* executable, int32_t entry, int32_t* count);
AICF_API aicf_status aicf_input_info(const aicf_executable* executable, int32_t entry, int32_t index,
                                     aicf_tensor_info* info);
AICF_API aicf_status aicf_output_info(const aicf_executable* executable, int32_t entry, int32_t index,
                                      aicf_tensor_info* info);

/* The sizes of output `index` for inputs of these dtypes and sizes; their data is not read. `sizes` has room
 * for the output's rank. */
AICF_API aicf_status aicf_output_sizes(const aicf_executable* executable, int32_t entry,
                                       const aicf_tensor* inputs, int32_t input_count, int32_t index,
                                       int64_t* sizes);

/* All inputs and outputs in the order of their infos. With sizes seen before and row-major memory it
 * allocates nothing. */
AICF_API aicf_status aicf_run(aicf_executable* executable, int32_t entry, const aicf_tensor* inputs,
                              int32_t input_count, const aicf_tensor* outputs, int32_t output_count);

/* The same, ordered on a stream (a CUstream or cudaStream_t; NULL: one of the executable's device). With wait
 * 0 it returns when the run is queued, if all arrays are in the device's memory; errors in data are then met
 * by aicf_finish or a later run. Stream and arrays must live until then. */
AICF_API aicf_status aicf_run_on(aicf_executable* executable, int32_t entry, const aicf_tensor* inputs,
                                 int32_t input_count, const aicf_tensor* outputs, int32_t output_count,
                                 void* stream, int32_t wait);
/* Waits for the runs that were not waited for. */
AICF_API aicf_status aicf_finish(aicf_executable* executable);

/* Memory of the executable's device for callers that have no allocator of their own; copies wait. Memory must
 * be freed before the executable. */
AICF_API aicf_status aicf_device_allocate(aicf_executable* executable, size_t bytes, void** data);
AICF_API aicf_status aicf_device_free(aicf_executable* executable, void* data);
AICF_API aicf_status aicf_copy_to_device(aicf_executable* executable, void* to, const void* from,
                                         size_t bytes);
AICF_API aicf_status aicf_copy_to_host(aicf_executable* executable, void* to, const void* from, size_t bytes);

/* States: copied out of or into row-major memory of exactly the state's bytes. */
AICF_API aicf_status aicf_state_count(const aicf_executable* executable, int32_t* count);
AICF_API aicf_status aicf_state_name(const aicf_executable* executable, int32_t index, const char** name);
AICF_API aicf_status aicf_state_get(const aicf_executable* executable, const char* name, void* data,
                                    size_t bytes);
AICF_API aicf_status aicf_state_set(aicf_executable* executable, const char* name, const void* data,
                                    size_t bytes);
AICF_API aicf_status aicf_reset(aicf_executable* executable);

/* Training: a step is the entry "step", run like any other (with gradients accumulated, "accumulate" runs
 * before it: docs/training.md). A checkpoint holds every trained param and every state; the file appears by
 * rename. Loading checks all names, dtypes and shapes first. aicf_save writes an .aicf file with the present
 * params and states. */
AICF_API aicf_status aicf_save_checkpoint(aicf_executable* executable, const char* path);
AICF_API aicf_status aicf_load_checkpoint(aicf_executable* executable, const char* path);
AICF_API aicf_status aicf_save(aicf_executable* executable, const char* path);
/* The first tensor of a step that was not finite, "loss" or "d_<param>"; "" if all were. Valid until the next
 * call. */
AICF_API aicf_status aicf_bad_tensor(aicf_executable* executable, const char** name);

/* Text stored under a key. *value is NULL if there is none; it lives as long as the executable and ends with
 * a NUL. `bytes` may be NULL. */
AICF_API aicf_status aicf_metadata(const aicf_executable* executable, const char* key, const char** value,
                                   size_t* bytes);

#ifdef __cplusplus
}
#endif
