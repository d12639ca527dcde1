#include "runtime/bound_entry.h"

#include <algorithm>

#include "runtime/check_io.h"

namespace aicf {

BoundEntry::BoundEntry(Device& device, const EntryPlan& entry, const EntryPlan& plan,
                       const SymbolValues& sizes, std::unique_ptr<Sequence> sequence)
    : device_(device),
      entry_(entry),
      plan_(plan),
      sizes_(sizes),
      sequence_(std::move(sequence)),
      input_bindings_(entry.inputs.size()),
      output_bindings_(entry.outputs.size()),
      known_inputs_(entry.inputs.size()),
      known_outputs_(entry.outputs.size()),
      input_copies_(entry.inputs.size()),
      output_copies_(entry.outputs.size()) {
  for (const IoTensor& io : entry.inputs) input_sizes_.push_back(evaluate(io.sizes, sizes));
  for (const IoTensor& io : entry.outputs) output_sizes_.push_back(evaluate(io.sizes, sizes));
}

bool BoundEntry::matches(const EntryPlan& entry, const std::vector<TensorView>& inputs) const {
  if (&entry_ != &entry || inputs.size() != input_sizes_.size()) return false;
  for (size_t i = 0; i < inputs.size(); ++i)
    if (inputs[i].sizes != input_sizes_[i] || inputs[i].dtype != entry.inputs[i].dtype) return false;
  return true;
}

void BoundEntry::bind_input(size_t i, const TensorView& view, Stream stream) {
  check_owner(view, known_inputs_[i], "input", entry_.inputs[i]);
  check_input_value(i, view, stream);
  auto* address = static_cast<std::byte*>(view.data);
  input_bindings_[i] = usable(view) ? Binding::kRebound : Binding::kCopied;
  if (input_bindings_[i] == Binding::kCopied) {
    address = input_copies_[i].address(device_, view);
    copy_in(address, view, input_copies_[i], stream);
  }
  sequence_->set_address(plan_.inputs[i].buffer, address);
}

void BoundEntry::bind_output(size_t i, const TensorView& view) {
  check_owner(view, known_outputs_[i], "output", entry_.outputs[i]);
  output_bindings_[i] = usable(view) ? Binding::kRebound : Binding::kCopied;
  sequence_->set_address(plan_.outputs[i].buffer, output_bindings_[i] == Binding::kRebound
                                                      ? static_cast<std::byte*>(view.data)
                                                      : output_copies_[i].address(device_, view));
}

void BoundEntry::finish_output(size_t i, const TensorView& view, Stream stream) {
  if (output_bindings_[i] == Binding::kCopied)
    copy_out(view, output_copies_[i].address(device_, view), output_copies_[i], stream);
}

bool BoundEntry::copies_output() const {
  return std::find(output_bindings_.begin(), output_bindings_.end(), Binding::kCopied) !=
         output_bindings_.end();
}

bool BoundEntry::usable(const TensorView& view) const {
  const auto alignment = static_cast<uintptr_t>(device_.alignment(dtype_bytes(view.dtype)));
  const bool in_place = view.on_device || device_.uses_host_memory();
  return in_place && view.row_major() && reinterpret_cast<uintptr_t>(view.data) % alignment == 0;
}

void BoundEntry::copy_in(std::byte* to, const TensorView& view, Staging& staging, Stream stream) {
  if (is_remote(view)) {
    require_row_major(view);
    return device_.copy(to, static_cast<const std::byte*>(view.data), view.bytes(), stream);
  }
  const void* from = view.data;
  if (!view.row_major()) {
    pack(view, staging.host_address(view));
    from = staging.host_address(view);
  }
  if (from != to) device_.upload(to, from, view.bytes(), stream);
}

void BoundEntry::copy_out(const TensorView& view, std::byte* from, Staging& staging, Stream stream) {
  if (is_remote(view)) {
    require_row_major(view);
    return device_.copy(static_cast<std::byte*>(view.data), from, view.bytes(), stream);
  }
  if (view.row_major()) return device_.download(view.data, from, view.bytes(), stream);
  std::byte* dense = staging.host_address(view);
  if (dense != from) device_.download(dense, from, view.bytes(), stream);
  unpack(dense, view);
}

void BoundEntry::check_owner(const TensorView& view, const void*& known, const char* kind,
                             const IoTensor& io) const {
  if (!is_remote(view) || view.data == known) return;
  check_same_device(device_.owner_of(view.data), device_.id(), std::string(kind) + " '" + io.name + "'");
  known = view.data;
}

void BoundEntry::check_input_value(size_t i, const TensorView& view, Stream stream) {
  const Array& only = entry_.inputs[i].only_value;
  if (only.data() == nullptr || only.bytes() == 0) return;
  const auto* given = static_cast<const std::byte*>(view.data);
  if (is_remote(view)) {
    require_row_major(view);
    device_.download(input_copies_[i].host_address(view), given, only.bytes(), stream);
    given = input_copies_[i].host_address(view);
  } else if (!view.row_major()) {
    pack(view, input_copies_[i].host_address(view));
    given = input_copies_[i].host_address(view);
  }
  check_only_value(entry_.inputs[i], given);
}

std::byte* BoundEntry::Staging::address(Device& owner, const TensorView& view) {
  if (owner.uses_host_memory()) return host_address(view);
  if (device == nullptr) device = owner.allocate(view.bytes());
  return device->data();
}

std::byte* BoundEntry::Staging::host_address(const TensorView& view) {
  if (host.data() == nullptr) host = Array(view.dtype, view.sizes);
  return static_cast<std::byte*>(host.mutable_data());
}

}  // namespace aicf
