// The text form of programs, for people, golden tests and the artifact. print() takes any program; parse()
// takes text from anywhere, rebuilds it through the checked graph builder and gives a verified program.
// Printing what was parsed gives the same bytes.
//
//   program {
//     size batch in 1..8
//     param "0.W" : f32[384, 1536]
//     entry main(%x: f32[batch, 384]) {
//       %0 = param "0.W" : f32[384, 1536]
//       %1 = constant f32[2] = [1, nan:0x7fc00000]
//       %2 = matmul(%x, %0) : f32[batch, 1536] as "hint" @"origin"
//       return "y" = %2
//     }
//   }
//
// An input that accepts one value only reads `%shape: i64[2] only [2, 3]`. A constant of more than
// kInlineElements elements stands as the hash of its bytes, `blob 0x…`; whoever parses brings a resolver.
// Contents of params and states are never part of the text: attach them by name afterwards.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>
#include <string_view>

#include "ir/graph.h"
#include "ir/hash.h"

namespace aicf {

inline constexpr int64_t kInlineElements = 64;
// Nesting of bodies in bodies that the parser accepts, so that hostile text cannot exhaust the stack.
inline constexpr int kMaxBodyDepth = 64;

struct PrintOptions {
  bool hints = true;    // names of temps and constants, and of the inputs of bodies
  bool origins = true;  // Node::origin
};

std::string print(const Program& program, const PrintOptions& options = {});
// One graph as an `entry`; parse_graph reads it back.
std::string print(const Graph& graph, const PrintOptions& options = {});

// Gives the bytes with this hash; any dtype and sizes, the text knows the real ones. A null array means
// unknown.
using BlobResolver = std::function<Array(const Hash128&)>;
using Blobs = std::map<Hash128, Array>;
// What a resolver must know to parse the printed program: all constants too large to stand inline.
Blobs collect_blobs(const Program& program);
BlobResolver resolver_of(Blobs blobs);

// UserError: bad_text with line and column for what does not parse; the builder's and verifier's own codes,
// with the place in the message, for text that parses and means nothing.
Program parse(std::string_view text, const BlobResolver& blobs = {});
Graph parse_graph(std::string_view text, const BlobResolver& blobs = {});
// The printed program with these entries and the params and states they name alone, for who has not all its
// blobs. Metadata whose keys begin with `dropped` go, too; "": none.
std::string keep_entries(std::string_view program, const std::set<std::string>& entries,
                         std::string_view dropped = "");

}  // namespace aicf
