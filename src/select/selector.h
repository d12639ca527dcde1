// The walk over an entry graph that select_kernels() is, with what it knows on the way. One class over
// several files: select.cc walks, places values and lowers views and table ops; lower_region.cc,
// lower_contraction.cc, lower_control.cc and lower_custom.cc lower their kinds of nodes; weights.cc decides
// what is computed, packed or joined at load. Private to select/; select.h is the way in.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/error.h"
#include "select/layout.h"
#include "select/select.h"
#include "select/storage_order.h"

namespace aicf {

class Selector {
 public:
  Selector(const Graph& graph, const Target& target, const SelectOptions& options);
  CallGraph run();
  // Graphs that calls of control flow run, by ControlRun::bodies; they are selected on their own.
  const std::vector<Graph>& bodies() const { return bodies_; }

 private:
  // A concat of weights: a packed value that init copies together if it is read as it stands.
  struct JoinedWeights {
    Window whole;
    size_t axis;
    std::vector<Window> parts;
    std::string origin;
  };

  // How an operand of products is copied: the axis that becomes innermost, and whether tf32 multiplies it.
  struct CopyForm {
    size_t inner = 0;
    bool rounded = false;
    bool operator==(const CopyForm&) const = default;
  };
  struct OperandCopy {
    Window from;
    CopyForm form;
    Window to;
  };

  void check_ranks() const;

  // --- select.cc: where values live
  const Window& window(ValueId id) const { return result_.placement[static_cast<size_t>(id)]; }
  // A new value's own storage, in the order decided for it, or that of the variable it updates, or its part
  // of a concat's.
  const Window& place(ValueId id);
  Window add_extra(ExtraValue::Kind kind, const TensorType& type, std::string name);
  // Where a part, or what it is a view of, lies in the concat; none if strides cannot say it.
  std::optional<Window> window_in_concat(ValueId id, const ConcatPart& part);
  static Window part_window(Window whole, const ConcatPart& part, const Shape& shape);
  // An output lives in its own buffer: a temp made row-major by a kernel is that buffer; anything else is
  // copied there.
  void place_outputs();
  // Updates come after every read. A new value that is itself a variable to be overwritten is saved first.
  void write_updates();

  // --- select.cc: nodes
  void lower(const Node& node);
  void lower_view(const Node& node);
  void lower_concat(const Node& node);
  void lower_by_table(const Node& node);
  // `rounded`: to tf32.
  void emit_copy(const Window& from, const Window& to, std::string origin, std::string reason,
                 bool rounded = false);
  static std::string origin_of(const Node& node);
  UserError no_kernel(const Node& node) const;

  // --- lower_region.cc
  // A lone pointwise op or reduction is a region of one node.
  void lower_single(const Node& node);
  void lower_region(Region region, const std::vector<ValueId>& operands, const std::vector<ValueId>& results,
                    std::string origin, std::string reason);
  void add_tile_call(Region region, const std::vector<int64_t>& inner_axes, std::vector<Window> inputs,
                     std::vector<Window> outputs, std::string origin, std::string reason);
  // A reduction's result without keepdims, seen with its reduced axes as axes of size 1.
  static Window row_window(Window window, size_t rank, const std::vector<int64_t>& axes);
  // All inputs from number `first` on are operands of the region.
  static void set_elementwise(KernelCall& call, size_t first);
  // The axes of an output from outermost to innermost, or none if nothing but row-major is known.
  Ints walking_order(const Window& output) const;

  // --- lower_contraction.cc
  void lower_fused_contraction(const Node& node);
  // `node` carries attributes, results and origin; `product` is the shape of the plain product.
  void lower_matmul(const Node& node, const std::vector<ValueId>& operands, std::unique_ptr<Region> epilogue,
                    const Shape& product, const std::vector<ValueId>& extras);
  void emit_matmul(const Node& node, const std::vector<ValueId>& operands, std::vector<Window> inputs,
                   std::vector<Window> outputs, std::unique_ptr<Region> epilogue);
  // `node` has the results and the origin, `operands` are values of this graph.
  void lower_conv(const Node& node, const Conv& conv, const std::vector<ValueId>& operands,
                  std::unique_ptr<Region> epilogue, const std::vector<ValueId>& extras);
  // --- operand_copies.cc
  // On CUDA, of a product in tf32: y, and x where the copy engine cannot read it, become copies that wgmma
  // reads, if that takes less time with the copies. Those of weights are made at load.
  void round_operands(KernelCall& call, const std::vector<ValueId>& operands,
                      const std::vector<const KernelRow*>& rows, const std::string& origin);
  // The same of a product of halves, or of f32 by parts, whose operands become copies with rows of whole 16
  // bytes.
  void align_operands(KernelCall& call, const std::vector<ValueId>& operands,
                      const std::vector<const KernelRow*>& rows, const std::string& origin);
  // On CUDA: operands from number `first` on, read along axis `inner`, become copies along it, where reading
  // each element from a sector of its own takes longer.
  void turn_operands(KernelCall& call, size_t first, size_t inner, const std::string& origin);
  // The weights of which x (factor 0) or y (1) consists, side by side; none: a run makes it.
  std::vector<Window> factor_weights(const std::vector<ValueId>& operands, const KernelCall& call,
                                     size_t factor) const;
  // The operand as a product reads it; `weights`: of which it consists, side by side.
  Window operand_copy(const Window& w, const CopyForm& form, const std::vector<Window>& weights,
                      const std::string& origin, const char* reason);
  const Window* find_copy(const Window& w, const CopyForm& form) const;
  // Of a copy that a run makes, if there is none yet.
  double copy_microseconds(const Window& w, const CopyForm& form) const;

  // Its own operands are those from number `first_operand` on.
  void add_epilogue(KernelCall& call, Region epilogue, size_t first_operand);
  // The value with channels last: where it lies, or as a copy that its readers share; rounded, as tf32
  // multiplies it, always as a copy, which is made at load if it is weights.
  Window channels_last(ValueId id, const std::string& origin, bool rounded = false);
  // On CUDA, of a convolution of one tap at every position that the graph did not make a product of
  // (multiply_pointwise_convs), where x or the result has its pixels as neighbours: as a product of each
  // image, which reads and writes them so, if that takes less time than otherwise. Whether it was lowered.
  // The call is the convolution's; its own operands come first.
  bool lower_as_product(const Node& node, const Conv& conv, const std::vector<ValueId>& operands,
                        const KernelCall& call, const std::vector<const KernelRow*>& rows, size_t own_inputs,
                        std::unique_ptr<Region>& epilogue);
  // On CUDA: x and w become copies with channels last if the copy engine can read these, and no row takes
  // less time without; x also if several convolutions share its copy.
  void read_channels_last(KernelCall& call, const std::vector<const KernelRow*>& rows,
                          const std::vector<ValueId>& operands, const std::string& origin);
  // Of a gradient of weights: what a convolution before reads as a copy with channels last is read from that
  // copy, where this is estimated to take less time.
  void read_known_copies(KernelCall& call, const std::vector<const KernelRow*>& rows,
                         const std::vector<ValueId>& operands) const;
  // Of copies of x and w with channels last that a run makes for this call.
  double copies_microseconds(const KernelCall& call, const KernelCall& copied,
                             const std::vector<ValueId>& operands) const;
  // The least that rows estimate which read x as it lies; with such copies, and these.
  double microseconds_in_place(const KernelCall& call, const std::vector<const KernelRow*>& rows) const;
  double microseconds_over_copies(const KernelCall& call, const std::vector<ValueId>& operands,
                                  const std::vector<const KernelRow*>& rows) const;
  KernelCall over_channels_last(const KernelCall& call, const std::vector<ValueId>& operands) const;
  // On CUDA, of a product in tf32: w becomes a rounded copy, channels last, if the copy engine can then read
  // x and w. Whether it did.
  bool read_rounded_weights(KernelCall& call, const KernelRow& row, const std::vector<ValueId>& operands,
                            const std::string& origin);
  struct WeightOrder;
  // On CUDA, of f32: whether the convolution takes less time by parts, over copies with channels last of
  // operands that lie otherwise, together with the copies that a run makes; or is to run so whatever it
  // takes. `turned`: how weights are read if not.
  bool gains_by_parts_over_copies(const KernelCall& call, const std::vector<const KernelRow*>& rows,
                                  const std::vector<ValueId>& operands,
                                  const std::optional<WeightOrder>& turned) const;
  // What the slice that makes a value, if one does, reads; else the value.
  ValueId unsliced(ValueId id) const;
  // The value as a part of its copy, or of the copy of what it is sliced from.
  Window window_of_copy(ValueId id, const Window& copy) const;
  bool shared_by_convolutions(ValueId id) const;

  // --- lower_custom.cc
  // The user's code sees dense windows only: others go through copies.
  void lower_custom(const Node& node);
  Window dense_operand(ValueId id, const std::string& origin, const std::string& reason);
  // Adds the call, whose results are those of the node, with the copies it needs.
  void add_dense_call(KernelCall call, const Node& node, const std::string& reason);
  std::shared_ptr<const CustomCuda> custom_cuda(const Node& node) const;

  // --- lower_control.cc
  void lower_control(const Node& node);

  // --- weights.cc
  // A constant or a param that nothing writes, what was made of such at load, or a view of one.
  bool is_weight(ValueId id) const;
  // Such values, a folded batch norm's factors for one, are made when weights are loaded or change.
  bool depends_on_weights_only(const std::vector<ValueId>& operands,
                               const std::vector<ValueId>& results) const;
  const Window& place_at_load(ValueId id, const std::string& origin);
  // The last call becomes a step of init.
  void make_init();
  // Weights side by side are made at load: packed from their parts, or copied for readers that want them
  // unpacked.
  bool join_weights(const Node& node);
  // Whether all parts are casts of weights, which then write their parts of one value at load.
  bool joins_casts(const Node& concat) const;
  // Steps of init for the joined weights that some call reads unpacked.
  void copy_joined_weights();
  // The weights of which y [K, N] consists, side by side; none if it is no weight, or joined in another way.
  std::vector<Window> weights_of(ValueId id, const Window& y) const;
  // A result of a step of init by this row; one such step serves all that want it. An order as
  // ordered_window.
  Window packed(RowCall row, std::vector<Window> from, const TensorType& type, const Ints& order,
                const std::string& origin, const char* reason);
  const KernelRow* best_row(const Problem& problem) const;
  // The row that multiplies by weights which are packed; null if none does.
  const KernelRow* find_packed(Problem problem) const;
  Window pack(const std::vector<Window>& parts, const Shape& sizes, const Node& node);
  const KernelRow* find_packed_conv(const Conv& conv, ValueId w, Problem problem) const;
  Window pack_conv(const Window& w, const Conv& conv, const std::string& origin);
  // How convolutions on CUDA read weights that are fixed at load, if these lie otherwise: matrix units 16
  // bytes of channels of a kernel position at a time, as weights of 1 × 1 that no view turned lie anyway;
  // others with maps innermost.
  struct WeightOrder {
    Ints axes;  // as ordered_window
    const char* reason;
  };
  std::optional<WeightOrder> weight_order(const Conv& conv, ValueId w) const;

  const Graph& graph_;
  const Target& target_;
  const SelectOptions& options_;
  std::vector<Ints> orders_;       // by value: how it is stored
  std::vector<ConcatPart> parts_;  // by value: the concat it is written into
  std::vector<Shape> padded_;      // by value: as it is stored, where its rows are padded
  std::map<ValueId, Window> padded_windows_;
  std::vector<ValueId> targets_;  // by value: the variable it is written into
  std::map<std::pair<ValueId, bool>, Window> channels_last_copies_;  // by value, and whether rounded
  std::vector<OperandCopy> operand_copies_;
  // How many convolutions, and gradients of weights, read a value or slices of it.
  std::map<ValueId, int> conv_inputs_;
  std::map<ValueId, JoinedWeights> joined_;  // by root
  std::set<ValueId> made_at_load_;           // roots
  std::multimap<ValueId, size_t> packings_;  // by root of what is packed: the step of init
  std::set<ValueId> updated_;                // variables
  std::vector<Graph> bodies_;
  CallGraph result_;
};

}  // namespace aicf
