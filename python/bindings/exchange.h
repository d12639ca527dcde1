// DLPack's C exchange interface (DLPack 1.3): tensors of a Python type that offers it are read and made
// through C functions, without a Python call. torch's tensors do; for other types the object protocol is
// used.
#pragma once

#include <optional>
#include <string>

#include "bindings.h"

namespace aicf::python {

struct ExchangeApi;

// That of a type, null if it has none or one of another major version. Looked up once per type.
const ExchangeApi* exchange_api(nb::handle type);

// The tensor's memory, valid as long as the caller keeps the object alive and unchanged; nullopt if its type
// has no such interface. Errors as view_of.
std::optional<TensorView> exchange_view(nb::handle object, const std::string& what);

// A tensor of the interface's type that owns the array's memory.
nb::object exchange_tensor(const ExchangeApi& api, Array array);

}  // namespace aicf::python
