// DLPack's C exchange interface (DLPack 1.3): tensors of a Python type that offers it are read and made
// through C functions, without a Python call. torch's tensors do; for other types the object protocol is
// used.
#pragma once

#include <string>

#include "arguments.h"

namespace aicf::python {

struct ExchangeApi;

// That of a type, null if it has none or one of another major version. Looked up once per type.
const ExchangeApi* exchange_api(nb::handle type);

// The tensor's memory, valid as long as the caller keeps the object alive and unchanged. It must be the
// host's or that of `device`. Errors as view_of.
TensorView exchange_view(const ExchangeApi& api, nb::handle object, const DeviceId& device,
                         const Label& label);
// Where the interface's library queues its work on a device now.
Stream exchange_stream(const ExchangeApi& api, const DeviceId& device);

// A tensor of the interface's type that owns the array's memory.
nb::object exchange_tensor(const ExchangeApi& api, Array array);
nb::object exchange_tensor(const ExchangeApi& api, DeviceTensor tensor);

}  // namespace aicf::python
