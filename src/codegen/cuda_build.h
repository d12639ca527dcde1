// From kernel calls to CUDA launches: asks the kernel table's rows for their text, keeps equal texts once,
// and puts them together to the units that compile_cached takes. One builder serves all entries of a program
// for one target.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "base/array.h"
#include "calls/call_code.h"
#include "codegen/nvrtc.h"
#include "kernels/common/cuda_kernel.h"
#include "select/call_program.h"
#include "target/target.h"

namespace aicf {

// A module as it was compiled; 0 milliseconds: it came from the cache, or the driver compiles it.
struct ModuleRecord {
  std::string target;
  std::vector<std::string> functions;
  int64_t bytes = 0;
  double milliseconds = 0;
};

// "module of matmul_0 and 3 more: 812.5 ms, 40960 bytes"
std::string to_string(const ModuleRecord& record);

class CudaBuilder {
 public:
  explicit CudaBuilder(const Target& target) : target_(target) {}

  // Until units() puts the modules' numbers, their modules are those of the sources. `running`: roots that
  // may still be written when the first launch begins; of an entry none, all that was queued before a run has
  // ended then.
  CodedGraph add(const CallGraph& calls, const std::set<ValueId>& running = {});
  // Texts so far, one per kernel code.
  const std::vector<std::string>& sources() const { return sources_; }
  // What is to be compiled: units of several sources each, because most of the time of a small compilation is
  // its start. They do not depend on the machine that compiles. The launches get their modules' numbers.
  std::vector<CudaUnit> units(const std::vector<CodedGraph*>& graphs) const;
  // The modules, of the units' machine code.
  std::vector<Array> modules(const std::vector<std::string>& images) const;

 private:
  std::vector<StepLaunches> add_list(const std::vector<KernelCall>& calls, CodeContext context,
                                     const std::set<ValueId>& running);
  StepLaunches add_call(const KernelCall& call, const CodeContext& context);
  int32_t intern_source(const CudaCode& code);
  Target target_;
  std::vector<std::string> sources_;
  std::vector<CompileWork> works_;  // of the sources
  std::map<std::string, int32_t> index_;
};

// Of the modules that the launches' functions are in; `milliseconds` of those that had to be compiled.
std::vector<ModuleRecord> module_records(const std::vector<CodedGraph*>& graphs,
                                         const std::vector<Array>& modules, std::vector<double> milliseconds,
                                         const std::string& target);

}  // namespace aicf
