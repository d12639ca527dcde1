#include "kernels/tile/cpu/tile_link_builder.h"

#include <algorithm>

#include "kernels/tile/cpu/tile_compile.h"
#include "kernels/tile/cpu/tile_links.h"

namespace aicf {
namespace {

class LinkBuilder {
 public:
  LinkBuilder(const TileProgram& program, const TileState& state)
      : program_(program),
        state_(state),
        places_(program.registers.size()),
        writers_(register_writers(program)) {}

  std::optional<TileStageLinks> build(const std::vector<TileInstr>& stage) {
    stage_ = &stage;
    links_.clear();
    per_row_.assign(stage.size(), false);
    running_ = -1, stored_ = false;
    for (size_t r = 0; r < places_.size(); ++r)
      if (!program_.registers[r].row) places_[r] = {};
    for (position_ = 0; position_ < stage.size(); ++position_)
      if (!add(stage[position_]) || links_.size() > kMaxTileLinks) return std::nullopt;
    return TileStageLinks{links_, per_row_};
  }

 private:
  // Where a register's value can be read, if it is not the running one.
  struct Place {
    enum Kind : uint8_t { kNowhere, kOperand, kSlot } kind = kNowhere;
    bool per_row = false;  // one number for the whole row
    int32_t number = 0;
  };

  bool add(const TileInstr& instr) {
    if (instr.op == TileOp::store_scalar || add_per_row(instr)) return true;
    if (instr.op == TileOp::load) return is_tile_scalar(instr.dst) || add_load(instr);
    if (is_tile_reduction(instr.op)) return add_reduction(instr);
    if (instr.op == TileOp::store) return add_store(instr);
    return is_tile_scalar(instr.dst) || add_compute(instr);
  }

  // A value of the whole row in a register of its own is computed before the elements, whatever its type.
  bool add_per_row(const TileInstr& instr) {
    if (instr.dst < 0 || is_tile_scalar(instr.dst) || writers_[static_cast<size_t>(instr.dst)] != 1 ||
        is_tile_reduction(instr.op) || instr.op == TileOp::inner_index)
      return false;
    const int arity = tile_op_info(instr.op).arity;
    const int16_t sources[] = {instr.a, instr.b, instr.c};
    for (int i = 0; i < arity; ++i)
      if (!place_of(sources[i]).per_row) return false;
    if (instr.op == TileOp::load && state_.operands[instr.operand].inner_strides[0] != 0) return false;
    places_[static_cast<size_t>(instr.dst)] = {Place::kSlot, true, instr.dst};
    return per_row_[position_] = true;
  }

  bool add_load(const TileInstr& instr) {
    const TileOperand& operand = state_.operands[instr.operand];
    const bool per_row = operand.inner_strides[0] == 0;
    if (instr.type != TileType::f32 || program_.inputs[static_cast<size_t>(instr.operand)] != DType::f32 ||
        (!per_row && operand.inner_strides[0] != operand.bytes))
      return false;
    if (running_ == instr.dst) running_ = -1;
    places_[static_cast<size_t>(instr.dst)] = {Place::kOperand, per_row, instr.operand};
    return true;
  }

  bool add_compute(const TileInstr& instr) {
    const std::optional<TileChainOp> op = chain_op(instr.op);
    if (!op || instr.type != TileType::f32) return false;
    const bool binary = *op < kChainExp;
    TileStep link = step(kLinkSelf, *op);
    if (binary && instr.a == instr.b) {
      if (!make_running(instr.a)) return false;
    } else if (binary) {
      // What runs stays; of two others the first is loaded, if it is no number of the row.
      link.b = instr.b == running_ || (instr.a != running_ && place_of(instr.a).per_row);
      if (!make_running(link.b ? instr.b : instr.a)) return false;
      const Place other = place_of(link.b ? instr.a : instr.b);
      if (!set_place(link, other.per_row ? kLinkScalar : kLinkMemory, other)) return false;
    } else if (!make_running(instr.a)) {
      return false;
    }
    if (running_ != instr.dst) put_aside(position_ + 1);
    links_.push_back(link);
    running_ = instr.dst;
    places_[static_cast<size_t>(running_)] = {};
    if (program_.registers[static_cast<size_t>(running_)].row) keep();
    return true;
  }

  bool add_reduction(const TileInstr& instr) {
    if (instr.type != TileType::f32 || !make_running(instr.a)) return false;
    const auto kind = instr.op == TileOp::reduce_sum    ? kLinkSum
                      : instr.op == TileOp::reduce_prod ? kLinkProduct
                      : instr.op == TileOp::reduce_max  ? kLinkMaximum
                                                        : kLinkMinimum;
    links_.push_back(step(kind));
    links_.back().c = tile_slot(instr.dst);
    return true;
  }

  bool add_store(const TileInstr& instr) {
    const TileOperand& operand = state_.operands[instr.operand];
    const DType dtype = program_.outputs[static_cast<size_t>(instr.operand) - program_.inputs.size()];
    if (instr.type != TileType::f32 || dtype != DType::f32 || operand.inner_strides[0] != operand.bytes ||
        is_tile_scalar(instr.a) || !make_running(instr.a))
      return false;
    links_.push_back(step(kLinkStore));
    links_.back().operand = instr.operand;
    stored_ = true;
    return true;
  }

  static TileStep step(TileLinkKind kind, TileChainOp op = {}) {
    return {nullptr, TileStepKind::kLink, kind, op, 0, 0, -1, 0, 0};
  }

  Place place_of(int16_t number) const {
    if (is_tile_scalar(number)) return {Place::kSlot, true, tile_slot(number)};
    return places_[static_cast<size_t>(number)];
  }

  // An output may share the memory of an operand, so that is not read any more after a store.
  bool set_place(TileStep& link, TileLinkKind kind, const Place& place) const {
    if (place.kind == Place::kNowhere || (place.kind == Place::kOperand && stored_)) return false;
    link.dst = kind;
    (place.kind == Place::kOperand ? link.operand : link.c) = place.number;
    return true;
  }

  bool make_running(int16_t number) {
    if (!is_tile_scalar(number) && number == running_) return true;
    const Place place = place_of(number);
    TileStep link = step(kLinkLoad);
    if (!set_place(link, place.per_row ? kLinkFill : kLinkLoad, place)) return false;
    put_aside(position_);
    links_.push_back(link);
    running_ = number;
    return true;
  }

  // Writes the running value where it can be read again, if an instruction from `first` on does.
  void put_aside(size_t first) {
    if (running_ < 0 || places_[static_cast<size_t>(running_)].kind != Place::kNowhere) return;
    for (size_t i = first; i < stage_->size(); ++i) {
      const TileInstr& instr = (*stage_)[i];
      const int arity = tile_op_info(instr.op).arity;
      if ((arity > 0 && instr.a == running_) || (arity > 1 && instr.b == running_) ||
          (arity > 2 && instr.c == running_))
        return keep();
      if (instr.dst == running_) return;
    }
  }

  void keep() {
    links_.push_back(step(kLinkStore));
    links_.back().c = running_;
    places_[static_cast<size_t>(running_)] = {Place::kSlot, false, running_};
  }

  const TileProgram& program_;
  const TileState& state_;
  std::vector<Place> places_;
  std::vector<int> writers_;  // per register: instructions that write it
  const std::vector<TileInstr>* stage_ = nullptr;
  size_t position_ = 0;
  int16_t running_ = -1;
  bool stored_ = false;
  std::vector<TileStep> links_;
  std::vector<bool> per_row_;
};

}  // namespace

std::optional<std::vector<TileStageLinks>> build_links(const TileProgram& program, const TileState& state) {
  LinkBuilder builder(program, state);
  std::vector<TileStageLinks> stages;
  for (const auto& stage : program.stages) {
    std::optional<TileStageLinks> links = builder.build(stage);
    if (!links) return std::nullopt;
    stages.push_back(std::move(*links));
  }
  return stages;
}

}  // namespace aicf
