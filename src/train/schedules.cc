#include "train/schedules.h"

#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"
#include "base/format.h"
#include "ir/decompose/emitter.h"

namespace aicf {
namespace {

constexpr DType kRate = DType::f64;  // rounded once, where a parameter of another dtype takes it

// The graph under construction, its step as an integer and as a number.
struct Schedule {
  explicit Schedule(const char* name) : graph(name) {
    step = graph.add_input("step", {DType::i64, {}});
    time = e.cast(step, kRate);
  }
  ValueId number(double value) { return e.scalar(kRate, value); }
  Graph finish(ValueId rate) {
    graph.add_output(rate, "rate");
    return std::move(graph);
  }
  const std::string origin = "schedule";
  Graph graph;
  Emitter e{graph, origin};
  ValueId step = kNoValue, time = kNoValue;
};

void require_setting(bool holds, const char* what, double value) {
  if (holds) return;
  throw UserError(ErrorCode::kU_bad_option, "a learning rate schedule has an impossible number")
      .with_expected(what)
      .with_actual(format_number(value));
}

void require_rate(double rate) {
  require_setting(rate >= 0 && std::isfinite(rate), "rates that are finite and not below 0", rate);
}

// step / total, at most 1.
ValueId progress(Schedule& s, int64_t total) {
  require_setting(total >= 1, "a total of at least one step", static_cast<double>(total));
  return s.e.op(Op::min, {s.e.div(s.time, s.number(static_cast<double>(total))), s.number(1)});
}

}  // namespace

Graph constant_rate(double rate) {
  require_rate(rate);
  Schedule s("constant");
  return s.finish(s.number(rate));
}

Graph linear_rate(double first, double last, int64_t total) {
  require_rate(first);
  require_rate(last);
  Schedule s("linear");
  return s.finish(s.e.add(s.number(first), s.e.mul(s.number(last - first), progress(s, total))));
}

Graph cosine_rate(double peak, int64_t total, double floor) {
  require_rate(peak);
  require_rate(floor);
  Schedule s("cosine");
  const ValueId wave = s.e.op(Op::cos, {s.e.mul(progress(s, total), s.number(std::numbers::pi))});
  const ValueId height = s.e.mul(s.number((peak - floor) / 2), s.e.add(s.number(1), wave));
  return s.finish(s.e.add(s.number(floor), height));
}

Graph step_rate(double rate, double factor, int64_t every) {
  require_setting(every >= 1, "a stair of at least one step", static_cast<double>(every));
  require_rate(rate);
  require_setting(factor >= 0 && std::isfinite(factor), "a factor that is finite and not below 0", factor);
  Schedule s("step");
  const ValueId stair = s.e.cast(s.e.div(s.step, s.e.scalar_int(DType::i64, every)), kRate);
  return s.finish(s.e.mul(s.number(rate), s.e.op(Op::pow, {s.number(factor), stair})));
}

Graph with_warmup(const Graph& after, int64_t steps) {
  require_setting(steps >= 0, "a warm-up of at least no step", static_cast<double>(steps));
  check_schedule(after);
  if (steps == 0) return after;
  Schedule s("warmup");
  const ValueId zero = s.e.scalar_int(DType::i64, 0), length = s.e.scalar_int(DType::i64, steps);
  const ValueId later = s.e.op(Op::max, {s.e.sub(s.step, length), zero});
  const ValueId rate = s.e.cast(inline_body(s.graph, after, {later})[0], kRate);
  const ValueId rise = s.e.div(s.e.add(s.time, s.number(1)), s.number(static_cast<double>(steps)));
  return s.finish(s.e.mul(rate, s.e.op(Op::min, {rise, s.number(1)})));
}

void check_schedule(const Graph& schedule) {
  const auto fail = [&](const std::string& actual) {
    return UserError(ErrorCode::kU_bad_graph, "a learning rate schedule maps the step to a rate")
        .with_op(schedule.name())
        .with_expected("one input, an i64 scalar; one output, a float scalar; no params or states")
        .with_actual(actual);
  };
  if (schedule.inputs().size() != 1 || schedule.outputs().size() != 1 || !schedule.updates().empty())
    throw fail(std::to_string(schedule.inputs().size()) + " inputs, " +
               std::to_string(schedule.outputs().size()) + " outputs");
  const TensorType &step = schedule.type(schedule.inputs()[0]), &rate = schedule.type(schedule.outputs()[0]);
  if (step != TensorType{DType::i64, {}} || !is_float(rate.dtype) || rate.rank() != 0)
    throw fail(to_string(step) + " to " + to_string(rate));
  for (ValueId leaf : schedule.leaves())
    if (const Role role = schedule.value(leaf).role; role == Role::kParam || role == Role::kState)
      throw fail("it reads " + std::string(role_name(role)) + " '" + schedule.value(leaf).name + "'");
}

}  // namespace aicf
