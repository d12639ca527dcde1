// A way of running a convolution on matrix units: how its windows come to shared memory, and the product that
// they are of.
#pragma once

#include "kernels/matmul/cuda/matmul_way.h"

namespace aicf {

enum class ConvLoads : uint8_t {
  gathered,  // by threads, element by element or in vectors (conv_gather.cuh)
  tma,       // by the copy engine (conv_tma.cuh)
};

struct ConvWay {
  ConvLoads loads = ConvLoads::gathered;
  MatmulWay product;
  bool operator==(const ConvWay&) const = default;
};

std::string_view fault_of(const ConvWay& way);  // see matmul_way.h
std::string to_string(const ConvWay& way);      // "gathered mma 64x32 stages 5 splits 4 cluster"
std::optional<ConvWay> parse_conv_way(std::string_view text);

// The copy engine brings boxes of x with the halo of the window, once for all taps (conv_halo_tma.cuh).
struct HaloTmaWay {
  int rows = 1, columns = 1;  // of results, of a box
  int maps = 64;              // of a block's tile
  bool operator==(const HaloTmaWay&) const = default;
};

std::string to_string(const HaloTmaWay& way);  // "halo 32x8 maps 64"
std::optional<HaloTmaWay> parse_halo_tma_way(std::string_view text);

}  // namespace aicf
