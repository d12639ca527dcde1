/* Version numbers and the macros that all public headers use. Plain C, so that aicf_c.h can include it. */
#pragma once

#define AICF_VERSION_MAJOR 0
#define AICF_VERSION_MINOR 2
#define AICF_VERSION_PATCH 0

/* Names that leave the shared library. */
#if defined(__GNUC__)
#define AICF_API __attribute__((visibility("default")))
#else
#define AICF_API
#endif

#ifdef __cplusplus
/* Users write aicf::Tensor; the linker sees aicf::v1::Tensor, so that an incompatible v2 can live beside it.
 */
#ifndef AICF_BUILDING_API
namespace aicf {
namespace v1 {}
using namespace v1;
}  // namespace aicf
#endif

namespace aicf::v1 {
/* Of the library that runs, "0.2.0"; the macros above are those of the headers compiled against. */
AICF_API const char* version();
}  // namespace aicf::v1
#endif
