#include "calls/join_updates.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/format.h"
#include "calls/call_code.h"
#include "calls/call_windows.h"
#include "calls/group_products.h"
#include "calls/joined_program.h"
#include "calls/legality.h"
#include "calls/live_bytes.h"
#include "calls/row_names.h"
#include "kernels/product_group.h"
#include "select/cost_model.h"

namespace aicf {
namespace {

// Of the updates' time apart that may be left beside the products: their launches also share bundles.
constexpr double kMostSeen = 0.5;

// Whether no call touches what another one writes: they run side by side.
bool updates_are_apart(const std::vector<KernelCall>& calls) {
  for (const KernelCall& one : calls)
    for (const KernelCall& other : calls)
      if (&one != &other && (meet(one.outputs, other.inputs) || meet(one.outputs, other.outputs)))
        return false;
  return true;
}

// Where a product or a group of products and their updates, in the order of the products, stand in the list
// of calls.
struct Places {
  size_t product;
  std::vector<size_t> updates;
  std::vector<KernelCall> rests =
      {};  // the updates without the gradients, which the joined call reads nowhere
};

class UpdateJoiner {
 public:
  UpdateJoiner(CallGraph& calls, const Target& target)
      : all_(calls),
        calls_(calls.calls),
        graph_(calls.graph),
        programs_(calls.programs),
        target_(target),
        ranges_(calls.ranges),
        legality_(calls) {}

  void run() {
    for (size_t i = 0; i < calls_.size(); ++i)
      if (const std::vector<KernelCall> products = products_of(calls_[i]); !products.empty())
        join(i, products);
    legality_.finish();
  }

 private:
  const TileProgram& program_of(const KernelCall& call) const { return all_.program_of(call); }
  CodeContext context() const { return context_of(all_, target_); }

  // The members of a group; or a product by itself whose K is in one piece, as it is in a group.
  std::vector<KernelCall> products_of(const KernelCall& call) const {
    if (const auto* group = std::get_if<GroupedProducts>(&call.what)) return group->members;
    if (!is_row(call, kTensorCoreProduct) || !has_program(call, ProgramRole::kEpilogue) ||
        call.choice.source != ChoiceSource::kRank || call.inputs.size() != 2 || call.outputs.size() != 1)
      return {};
    const std::vector<KernelVariant> variants = grouped_variants(call_problem(call, context()), 1);
    const bool whole = std::any_of(variants.begin(), variants.end(),
                                   [&](const KernelVariant& v) { return v.way == row_call(call)->way; });
    return whole ? std::vector<KernelCall>{call} : std::vector<KernelCall>{};
  }

  // The only call that reads this result of a product, if it updates variables element by element.
  std::optional<size_t> update_of(const Window& result) const {
    if (result.root >= graph_.value_count()) return std::nullopt;
    const std::optional<size_t> reader = legality_.sole_reader(result.root);
    return reader && is_update(calls_[*reader], result) ? reader : std::nullopt;
  }

  bool is_update(const KernelCall& call, const Window& gradient) const {
    if (!is_region(call) || !has_elements_alone(program_of(call))) return false;
    if (std::count_if(call.inputs.begin(), call.inputs.end(),
                      [&](const Window& w) { return w.root == gradient.root; }) != 1 ||
        std::find(call.inputs.begin(), call.inputs.end(), gradient) == call.inputs.end())
      return false;
    const auto has_its_sizes = [&](const Window& w) { return w.sizes == gradient.sizes; };
    // What it overwrites it reads in step.
    const auto is_in_step = [&](const Window& w) {
      return !meets(call.outputs, w.root) ||
             std::find(call.outputs.begin(), call.outputs.end(), w) != call.outputs.end();
    };
    return std::all_of(call.inputs.begin(), call.inputs.end(),
                       [&](const Window& w) { return has_its_sizes(w) && is_in_step(w); }) &&
           std::all_of(call.outputs.begin(), call.outputs.end(), has_its_sizes) &&
           std::any_of(call.outputs.begin(), call.outputs.end(),
                       [&](const Window& w) { return is_variable(w.root); });
  }
  bool is_variable(ValueId root) const {
    return root < graph_.value_count() && graph_.value(root).role != Role::kTemp;
  }

  void join(size_t at, const std::vector<KernelCall>& products) {
    Places places{at, {}};
    for (const KernelCall& product : products)
      if (const auto update = update_of(product.outputs[0]))
        places.updates.push_back(*update);
      else
        return;
    std::optional<KernelCall> joined = joined_call(places, products);
    if (!joined) return;
    std::vector<KernelCall> before = calls_;
    const auto leave = [&] {
      calls_ = std::move(before);
      legality_.rebuild();
      programs_.pop_back();
    };
    if (!place(std::move(*joined), std::move(places))) return leave();
    if (peak_live_bytes(calls_, all_) > peak_live_bytes(before, all_)) leave();
  }

  // One call of them all, if they are alike and the updates hide; its program then is the last one.
  std::optional<KernelCall> joined_call(const Places& places, const std::vector<KernelCall>& products) {
    const KernelCall& first = calls_[places.updates[0]];
    const auto middle = static_cast<size_t>(
        std::find(first.inputs.begin(), first.inputs.end(), products[0].outputs[0]) - first.inputs.begin());
    std::optional<TileProgram> program = program_with(program_of(products[0]), program_of(first), middle);
    if (!program) return std::nullopt;
    KernelCall joined;
    std::vector<KernelCall>& members = joined.what.emplace<GroupedProducts>().members;
    for (size_t i = 0; i < products.size(); ++i) {
      const KernelCall& update = calls_[places.updates[i]];
      if (!is_like(update, first) || !(update.inputs[middle] == products[i].outputs[0]) ||
          meet(products[i].inputs, update.outputs))
        return std::nullopt;
      members.push_back(joined_member(products[i], update, middle));
      add_member(members.back(), joined);
    }
    if (!arguments_fit(joined, members.size()) || !updates_are_apart(members)) return std::nullopt;
    programs_.push_back(std::move(*program));
    if (choose(joined, members, places, products)) return joined;
    programs_.pop_back();
    return std::nullopt;
  }

  bool is_like(const KernelCall& update, const KernelCall& first) const {
    return program_of(update) == program_of(first) && same_form(update.inputs, first.inputs) &&
           same_form(update.outputs, first.outputs);
  }

  // A product that also does its update, with the program that comes next.
  KernelCall joined_member(const KernelCall& product, const KernelCall& update, size_t middle) const {
    KernelCall member = product;
    for (size_t i = 0; i < update.inputs.size(); ++i)
      if (i != middle) member.inputs.push_back(update.inputs[i]);
    member.outputs = update.outputs;
    row_call(member)->programs[0].index = static_cast<int>(programs_.size());
    member.origins = united_origins(product, update);
    return member;
  }

  static std::optional<TileProgram> program_with(const TileProgram& product, const TileProgram& update,
                                                 size_t middle) {
    const DType gradient = product.outputs[0];
    if ((gradient != DType::f16 && gradient != DType::bf16) || product.stages.size() != 1 ||
        product.registers.size() + update.registers.size() >= static_cast<size_t>(kMaxTileRegisters) ||
        product.scalars.size() + update.scalars.size() > static_cast<size_t>(kMaxTileRegisters) ||
        product.inputs.size() + update.inputs.size() + update.outputs.size() >
            static_cast<size_t>(kMaxTileOperands))
      return std::nullopt;
    TileProgram program = joined_program(product, 0, {false}, update, middle);
    check_tile_program(program);
    return program;
  }

  // The variant, if it hides the updates behind the products.
  bool choose(KernelCall& joined, std::vector<KernelCall>& members, const Places& places,
              const std::vector<KernelCall>& products) const {
    const KernelCall& product = calls_[places.product];
    const auto count = static_cast<int>(products.size());
    const std::vector<KernelVariant> variants = grouped_variants(call_problem(members[0], context()), count);
    if (variants.empty()) return false;
    const double alone = row_call(product) != nullptr
                             ? product.choice.candidates[product.choice.chosen].microseconds
                             : grouped_variants(call_problem(products[0], context()), count)[0].microseconds;
    double apart = 0;
    for (const size_t update : places.updates)
      apart += estimate_microseconds(calls_[update], kRegionRow, target_, ranges_);
    for (KernelCall& member : members) row_call(member)->way = variants[0].way;
    joined.reason = std::to_string(count) + " products and their updates in one launch, estimated " +
                    format_fixed(variants[0].microseconds, 1) + " us, apart " +
                    format_fixed(alone + apart, 1) + " us";
    return variants[0].microseconds - alone < kMostSeen * apart;
  }

  // Puts the joined call where the product stood, or behind calls that the updates need and that cannot rise,
  // and takes the product and the updates away.
  bool place(KernelCall joined, Places places) {
    for (const size_t update : places.updates) {
      KernelCall& rest = places.rests.emplace_back(calls_[update]);
      std::erase_if(rest.inputs,
                    [&](const Window& w) { return meets(calls_[places.product].outputs, w.root); });
    }
    places = raise_needed(std::move(places));
    const size_t at = places.product;
    const std::vector<size_t>& updates = places.updates;
    const size_t last = last_needed(places);
    if (last >= *std::min_element(updates.begin(), updates.end())) return false;
    if (!legality_.may_move(at, last)) return false;
    calls_[at] = KernelCall();
    for (const size_t update : updates) calls_[update] = KernelCall();
    if (last == at)
      calls_[at] = std::move(joined);
    else
      calls_.insert(calls_.begin() + static_cast<std::ptrdiff_t>(last) + 1, std::move(joined));
    legality_.rebuild();
    return true;
  }

  // Lets calls that the updates need rise before the product, and says where all then are.
  Places raise_needed(Places places) {
    for (size_t c = places.product + 1; c < last_update(places); ++c)
      if (is_needed(c, places) && legality_.may_move(c, places.product)) rise(c, places);
    return places;
  }
  // The last call that must come before the joined one; the product if there is none.
  size_t last_needed(const Places& places) const {
    size_t last = places.product;
    for (size_t c = places.product + 1; c < last_update(places); ++c)
      if (is_needed(c, places)) last = c;
    return last;
  }
  static size_t last_update(const Places& places) {
    return *std::max_element(places.updates.begin(), places.updates.end());
  }
  bool is_needed(size_t call, const Places& places) const {
    const std::vector<size_t>& updates = places.updates;
    if (std::find(updates.begin(), updates.end(), call) != updates.end()) return false;
    for (size_t i = 0; i < updates.size(); ++i)
      if (call < updates[i] && must_keep_order(calls_[call], places.rests[i])) return true;
    return false;
  }

  void rise(size_t call, Places& places) {
    const auto begin = calls_.begin();
    std::rotate(begin + static_cast<std::ptrdiff_t>(places.product),
                begin + static_cast<std::ptrdiff_t>(call), begin + static_cast<std::ptrdiff_t>(call) + 1);
    for (size_t& update : places.updates) update += update < call ? 1 : 0;
    ++places.product;
    legality_.rebuild();
  }

  CallGraph& all_;
  std::vector<KernelCall>& calls_;
  const Graph& graph_;
  std::vector<TileProgram>& programs_;
  const Target& target_;
  const SymbolRanges& ranges_;
  Legality legality_;
};

}  // namespace

void join_updates(CallGraph& calls, const Target& target, const SelectOptions& /*options*/) {
  if (target.arch < 90) return;
  UpdateJoiner(calls, target).run();
}

}  // namespace aicf
