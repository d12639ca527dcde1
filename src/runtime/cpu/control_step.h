// A step of control flow on the CPU: which of its bodies runs next, and over which memory. What is carried
// from one run of a body to the next alternates between two places in the step's workspace, so that nothing
// is copied before the end; rows of a scan are read and written where they lie.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "base/error.h"
#include "kernels/common/abi.h"
#include "runtime/bind_control.h"

namespace aicf {

// A body at bound sizes.
class BoundBody {
 public:
  virtual ~BoundBody() = default;
  virtual void set_address(int32_t buffer, std::byte* address) = 0;
  // `have_pool`: the caller holds the pool of workers.
  virtual void run_steps(bool have_pool) = 0;
  // The first index_out_of_range that the data of the runs since the last question asked for.
  virtual std::optional<UserError> take_error() = 0;
  virtual bool has_error() const = 0;
  virtual double seconds() const = 0;  // of one run, estimated
};

class ControlStep {
 public:
  // `call` is the bound step, `bodies` are those of the step in order. Throws as bind_control.
  ControlStep(const Plan& plan, const Step& step, const BoundCall& call, const SymbolValues& sizes,
              std::vector<std::unique_ptr<BoundBody>> bodies);
  // over_limit if it takes longer than AICF_MAX_SECONDS.
  void run(const BoundCall& call, bool have_pool);
  std::optional<UserError> take_error();
  bool has_error() const;
  double seconds() const { return seconds_; }

 private:
  struct Body : BoundControl::Body {
    std::unique_ptr<BoundBody> bound;
  };
  void run_branch(const BoundCall& call, bool have_pool);
  void run_loop(const BoundCall& call, bool have_pool);
  void run_scan(const BoundCall& call, bool have_pool);
  static void set_input(Body& body, size_t i, std::byte* address);
  static void set_output(Body& body, size_t i, std::byte* address);
  void begin_carrying(const BoundCall& call);
  // The last body reads what is carried now and writes what is carried next.
  void carry(const BoundCall& call, int64_t trip);
  void advance(const BoundCall& call, int64_t trip);
  void end_carrying(const BoundCall& call) const;

  const Step& step_;
  BoundControl control_;
  std::vector<Body> bodies_;
  std::vector<std::byte*> now_;  // per carried value
  double seconds_ = 0, limit_;
};

}  // namespace aicf
