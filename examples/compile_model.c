/* Compiling from C: `compile_model MODEL.onnx MODEL.aicf [NAME=RANGE]...` compiles an ONNX model for the CPU
 * and saves it; run_model runs what it wrote. */
#include <stdio.h>

#include <aicf/aicf_c.h>

int main(int argc, char** argv) {
  aicf_compile_options options = {0};
  aicf_artifact* artifact;
  aicf_status status;
  if (argc < 3) {
    fprintf(stderr, "usage: compile_model MODEL.onnx MODEL.aicf [NAME=RANGE]...\n");
    return AICF_USER_ERROR;
  }
  options.dims = (const char* const*)(argv + 3);
  options.dim_count = (int32_t)(argc - 3);
  status = aicf_compile_onnx_file(argv[1], &options, &artifact);
  if (status == AICF_OK) status = aicf_artifact_save(artifact, argv[2]);
  if (status != AICF_OK) fprintf(stderr, "%s\n", aicf_last_error());
  aicf_artifact_free(artifact);
  return status;
}
