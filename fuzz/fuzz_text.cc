// A stranger's program as IR text: parsing, compiling and running it ends in success or in a coded error.
#include "harness.h"
#include "ir/text.h"

namespace aicf::fuzz {
namespace {

constexpr int64_t kMostElements = 1 << 16;  // of a param, whatever its type says

const std::vector<std::string>& words() {
  static const std::vector<std::string> list = {"%x",
                                                "%0",
                                                "%1",
                                                "%9",
                                                "add",
                                                "mul",
                                                "matmul",
                                                "softmax",
                                                "gather",
                                                "reshape",
                                                "if_else",
                                                "while_loop",
                                                "reduce_sum",
                                                "concat",
                                                "slice",
                                                "pad",
                                                "batch",
                                                "f32",
                                                "i64",
                                                "bool",
                                                "bf16",
                                                "[",
                                                "]",
                                                "{",
                                                "}",
                                                "(",
                                                ")",
                                                ",",
                                                "=",
                                                ":",
                                                "\"",
                                                "-1",
                                                "0",
                                                "1",
                                                "4",
                                                "1e30",
                                                "nan:0x7fc00000",
                                                "9223372036854775807",
                                                "batch+1",
                                                "-batch",
                                                "floordiv(batch, 2)",
                                                "blob 0x0",
                                                "param",
                                                "state",
                                                "update",
                                                "return",
                                                "body",
                                                "size",
                                                "in",
                                                "1..8",
                                                "only",
                                                "entry",
                                                "axis = 7",
                                                "axes = [0, 1]",
                                                "@\"a\"",
                                                "as \"b\""};
  return list;
}

Seeds seeds() {
  const std::string programs[] = {
      R"(program {
  size batch in 1..8
  param "0.W" : f32[4, 3]
  entry main(%x: f32[batch, 4]) {
    %0 = param "0.W" : f32[4, 3]
    %1 = constant f32[3] = [1, 0.5, -2]
    %2 = matmul(%x, %0) : f32[batch, 3] as "hint" @"origin"
    %3 = add(%2, %1) : f32[batch, 3]
    %4 = softmax(%3) {axis = 1} : f32[batch, 3]
    return "y" = %4
  }
}
)",
      R"(program {
  entry main(%x: f32[3], %c: bool[], %i: i64[]) {
    %y, %go, %at = while_loop(%x, %c, %i)
      body(%a: f32[3] as "a", %b: bool[] as "b", %j: i64[] as "j") {
        return %b
      }
      body(%a: f32[3] as "a", %b: bool[] as "b", %j: i64[] as "j") {
        %one = gather(%a, %j) {axis = 0} : f32[]
        %s = add(%a, %one) : f32[3]
        return %s, %b, %j
      } : f32[3], bool[], i64[]
    return "y" = %y
  }
}
)"};
  Seeds list;
  for (const std::string& text : programs)
    list.emplace_back(std::to_string(list.size()) + ".txt",
                      [text](const std::string& path) { std::ofstream(path) << text; });
  return list;
}

// A token out, twice, or another in its place.
std::string mutated(std::string_view bytes, Random& random) {
  if (random() % 4 == 0) return "";
  std::string text(bytes);
  for (uint64_t i = 0, changes = 1 + random() % 3; i < changes && !text.empty(); ++i) {
    const size_t at = random() % text.size();
    size_t begin = text.find_last_of(" \n(,[{", at), end = text.find_first_of(" \n),]}", at);
    begin = begin == std::string::npos ? 0 : begin + 1;
    end = end == std::string::npos || end < begin ? text.size() : end;
    const std::string token = text.substr(begin, end - begin);
    if (random() % 6 == 0)
      text.insert(begin, token + " ");
    else
      text.replace(begin, end - begin, random() % 5 == 0 ? "" : pick(random, words()));
  }
  return text;
}

void use(const std::string&, std::string_view text) {
  Program program = parse(text);
  for (auto& [name, variable] : program.variables) {
    const std::vector<int64_t> sizes = evaluate(variable.type.shape, {});
    if (element_count(sizes) <= kMostElements) variable.data = Array(variable.type.dtype, sizes);
  }
  require_param_contents(program, "none");
  run_everything(compile(program, drawn_options(text)));
}

}  // namespace

Target target() { return {seeds, mutated, use}; }

}  // namespace aicf::fuzz
