/* The C API: `run_model MODEL.aicf` loads a compiled model, runs it once at its smallest sizes on zeros, and
 * prints what goes in and what comes out. */
#include <stdio.h>
#include <stdlib.h>

#include <aicf/aicf_c.h>

enum { MAX_TENSORS = 64, MAX_RANK = 16 };

static const int element_bytes[] = {8, 4, 2, 2, 8, 4, 2, 1, 1, 1}; /* by enum aicf_dtype */

static void check(aicf_status status) {
  if (status == AICF_OK) return;
  fprintf(stderr, "%s\n", aicf_last_error());
  exit(status);
}

static void print_tensor(const char* kind, const aicf_tensor_info* info, const int64_t* sizes) {
  int i;
  printf("%s %s: [", kind, info->name);
  for (i = 0; i < info->rank; ++i)
    printf("%s%s = %lld", i ? ", " : "", info->size_names[i], (long long)sizes[i]);
  printf("]\n");
}

/* Zeroed memory for a tensor; the caller frees it. */
static void* allocate(const aicf_tensor_info* info, const int64_t* sizes) {
  size_t count = 1;
  int i;
  void* memory;
  for (i = 0; i < info->rank; ++i) count *= (size_t)sizes[i];
  memory = calloc(count > 0 ? count : 1, (size_t)element_bytes[info->dtype]);
  if (memory == NULL) {
    fprintf(stderr, "memory is exhausted\n");
    exit(AICF_ENVIRONMENT_ERROR);
  }
  return memory;
}

int main(int argc, char** argv) {
  static aicf_tensor inputs[MAX_TENSORS], outputs[MAX_TENSORS];
  static int64_t output_sizes[MAX_TENSORS][MAX_RANK];
  aicf_executable* exe;
  aicf_tensor_info info;
  int32_t input_count, output_count, i;
  if (argc != 2) {
    fprintf(stderr, "usage: run_model MODEL.aicf\n");
    return AICF_USER_ERROR;
  }
  if (aicf_abi_version() != AICF_ABI_VERSION) {
    fprintf(stderr, "libaicf has ABI %d, this program needs %d\n", (int)aicf_abi_version(), AICF_ABI_VERSION);
    return AICF_ENVIRONMENT_ERROR;
  }
  check(aicf_load(argv[1], 0, &exe));
  check(aicf_input_count(exe, 0, &input_count));
  check(aicf_output_count(exe, 0, &output_count));
  if (input_count > MAX_TENSORS || output_count > MAX_TENSORS) {
    fprintf(stderr, "this example is for models of up to %d inputs and outputs\n", MAX_TENSORS);
    return AICF_USER_ERROR;
  }

  for (i = 0; i < input_count; ++i) {
    check(aicf_input_info(exe, 0, i, &info));
    inputs[i].data = allocate(&info, info.min_sizes);
    inputs[i].dtype = info.dtype;
    inputs[i].rank = info.rank;
    inputs[i].sizes = info.min_sizes;
    print_tensor("input", &info, info.min_sizes);
  }
  for (i = 0; i < output_count; ++i) {
    check(aicf_output_info(exe, 0, i, &info));
    if (info.rank > MAX_RANK) {
      fprintf(stderr, "this example is for ranks up to %d\n", MAX_RANK);
      return AICF_USER_ERROR;
    }
    check(aicf_output_sizes(exe, 0, inputs, input_count, i, output_sizes[i]));
    outputs[i].data = allocate(&info, output_sizes[i]);
    outputs[i].dtype = info.dtype;
    outputs[i].rank = info.rank;
    outputs[i].sizes = output_sizes[i];
  }

  check(aicf_run(exe, 0, inputs, input_count, outputs, output_count));
  for (i = 0; i < output_count; ++i) {
    check(aicf_output_info(exe, 0, i, &info));
    print_tensor("output", &info, output_sizes[i]);
    if (info.dtype == AICF_DTYPE_f32 && info.rank > 0)
      printf("  first number: %g\n", ((const float*)outputs[i].data)[0]);
  }

  for (i = 0; i < input_count; ++i) free(inputs[i].data);
  for (i = 0; i < output_count; ++i) free(outputs[i].data);
  check(aicf_free(exe));
  return 0;
}
