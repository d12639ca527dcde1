// A library in place of libnvrtc.so.13 whose machine code of a unit is the text that it was given: the
// options, the text, and a hash of every header that the text includes, comments and spaces left out.
// Compiled with it (AICF_CUDA_PATH), an artifact shows all that code generation wrote
// (scripts/same_artifacts.py), on a machine without CUDA and in a moment.
#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <map>
#include <set>
#include <string>

#define AICF_EXPORT extern "C" __attribute__((visibility("default")))

namespace {

struct FakeProgram {
  std::string source, image;
  std::map<std::string, std::string> headers;
};

// Without comments, and with one space for every run of them.
std::string bare(const std::string& text) {
  std::string result;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text.compare(i, 2, "//") == 0) {
      i = text.find('\n', i);
    } else if (text.compare(i, 2, "/*") == 0) {
      i = text.find("*/", i);
      if (i != std::string::npos) ++i;
    } else {
      const bool space = std::isspace(static_cast<unsigned char>(text[i])) != 0;
      if (!space || (!result.empty() && result.back() != ' ')) result += space ? ' ' : text[i];
      continue;
    }
    if (i == std::string::npos) break;
    if (!result.empty() && result.back() != ' ') result += ' ';
  }
  return result;
}

std::string hash_of(const std::string& text) {  // FNV-1a
  uint64_t hash = 0xcbf29ce484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char name[17];
  std::snprintf(name, sizeof(name), "%016llx", static_cast<unsigned long long>(hash));
  return name;
}

// The headers that a text includes, and what these include.
void add_headers(const FakeProgram& program, const std::string& text, std::set<std::string>& names) {
  constexpr char kInclude[] = "#include \"";
  for (size_t at = text.find(kInclude); at != std::string::npos; at = text.find(kInclude, at + 1)) {
    const size_t begin = at + std::strlen(kInclude);
    const auto header = program.headers.find(text.substr(begin, text.find('"', begin) - begin));
    if (header != program.headers.end() && names.insert(header->first).second)
      add_headers(program, header->second, names);
  }
}

}  // namespace

AICF_EXPORT const char* nvrtcGetErrorString(int) { return "the stand-in for NVRTC does not fail"; }

AICF_EXPORT int nvrtcVersion(int* major, int* minor) {
  *major = 13, *minor = 0;
  return 0;
}

AICF_EXPORT int nvrtcCreateProgram(FakeProgram** program, const char* source, const char*, int headers,
                                   const char* const* texts, const char* const* names) {
  *program = new FakeProgram{source, {}, {}};
  for (int i = 0; i < headers; ++i) (*program)->headers[names[i]] = texts[i];
  return 0;
}

AICF_EXPORT int nvrtcDestroyProgram(FakeProgram** program) {
  delete *program;
  return 0;
}

AICF_EXPORT int nvrtcCompileProgram(FakeProgram* program, int options, const char* const* list) {
  program->image = "//";
  for (int i = 0; i < options; ++i) program->image += std::string(" ") + list[i];
  program->image += "\n" + program->source + "\n";
  std::set<std::string> names;
  add_headers(*program, program->source, names);
  for (const std::string& name : names)
    program->image += "// " + name + " " + hash_of(bare(program->headers.at(name))) + "\n";
  return 0;
}

AICF_EXPORT int nvrtcGetProgramLogSize(FakeProgram*, size_t* size) {
  *size = 0;
  return 0;
}
AICF_EXPORT int nvrtcGetProgramLog(FakeProgram*, char*) { return 0; }

AICF_EXPORT int nvrtcGetCUBINSize(const FakeProgram* program, size_t* size) {
  *size = program->image.size();
  return 0;
}
AICF_EXPORT int nvrtcGetCUBIN(const FakeProgram* program, char* image) {
  std::memcpy(image, program->image.data(), program->image.size());
  return 0;
}
AICF_EXPORT int nvrtcGetPTXSize(const FakeProgram* program, size_t* size) {
  return nvrtcGetCUBINSize(program, size);
}
AICF_EXPORT int nvrtcGetPTX(const FakeProgram* program, char* image) { return nvrtcGetCUBIN(program, image); }
