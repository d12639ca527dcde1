// A program compiled for the device of test_device.h and loaded there, and what a stage of compiling prints.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "compile/compile.h"
#include "compile/testing/test_device.h"
#include "kernels/common/kernel.h"
#include "runtime/cpu/cpu_device.h"
#include "runtime/executable.h"

namespace aicf::testing {

// Null where the device only compiles. Two threads on the CPU.
inline std::unique_ptr<Executable> compiled(const Program& program, CompileOptions options = {}) {
  const TestDevice& where = TestDevice::get();
  options.target = where.target;
  Artifact artifact = compile(program, options);
  if (!where.runs) return nullptr;
  const std::shared_ptr<Device> device =
      open_device(where.cuda ? DeviceOptions{"cuda"} : DeviceOptions{"cpu", 2});
  return std::make_unique<Executable>(Model::load(std::move(artifact), device));
}

// With two threads and the best instructions of this machine.
inline Executable loaded_on_cpu(Artifact artifact) {
  return Executable(Model::load(std::move(artifact), make_cpu_device({2, detect_isa()})));
}

// As `aicf compile --stop-after=STAGE --print` shows it.
inline std::string printed_stage(const Program& program, const char* stage, CompileOptions options = {}) {
  options.stop_after = stage;
  options.print_stage = true;
  std::string text;
  options.on_dump = [&](const std::string&, const std::string& dump) { text += dump; };
  compile(program, options);
  return text;
}

}  // namespace aicf::testing
