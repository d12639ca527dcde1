// Arrays of a call as views, wherever they are: in the host's memory (DLPack, buffer protocol) or in that of
// the executable's device (DLPack, __cuda_array_interface__, DeviceTensor), and the stream that the call runs
// on.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bindings.h"

namespace aicf::python {

// "input 'x'", for errors.
struct Label {
  const char* role;
  std::string_view name;
  std::string text() const { return std::string(role) + " '" + std::string(name) + "'"; }
};

// The stream of a call is the one it was given, else that of the first array whose library tells its own (a
// DeviceTensor, or a type with DLPack's C exchange interface), else the device's own. The other arrays are
// made ready on it as their protocol says.
class Arguments {
 public:
  Arguments(Device& device, std::optional<Stream> stream) : device_(device), stream_(stream) {}

  // All inputs and outputs of a call, then settle(). An object must stay alive until the call is over.
  void add_input(nb::handle object, const Label& label) { add(inputs, object, label, false); }
  void add_output(nb::handle object, const Label& label) { add(outputs, object, label, true); }
  void settle();

  std::vector<TensorView> inputs, outputs;
  Stream stream() const { return stream_.value_or(Stream{}); }
  // Whether any array is in the memory of a device.
  bool on_device() const { return on_device_; }
  // Whether arrays may be released by another stream's user while a run that nobody waited for reads them.
  bool must_wait() const { return must_wait_; }

 private:
  // Arrays that can only be read when the stream is known.
  struct Deferred {
    std::vector<TensorView>* views;
    size_t index;
    nb::handle object;
    std::string label;
    bool written;
  };
  void add(std::vector<TensorView>& views, nb::handle object, const Label& label, bool written);
  TensorView host_view(nb::handle object, const std::string& label, bool written);
  TensorView foreign_view(const Deferred& array);
  TensorView interface_view(const Deferred& array);
  nb::object capsule_of(nb::handle object);

  Device& device_;
  std::optional<Stream> stream_;
  bool on_device_ = false, must_wait_ = false;
  std::vector<Deferred> deferred_;
  std::vector<const DeviceTensor*> ours_;  // to be ordered before the call
  std::vector<ReadableArray> read_;        // keep what the protocols gave
  std::vector<WritableArray> written_;
};

// A stream given as an int (a CUstream), None, or an object of torch, CuPy or cuda.core. unsupported_option.
std::optional<Stream> stream_of(nb::handle object);

}  // namespace aicf::python
