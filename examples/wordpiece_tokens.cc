// Prints the WordPiece ids of sentences: `wordpiece_tokens VOCAB.txt [MAX_TOKENS] < sentences`. Sentences end
// with a NUL byte, so that they may hold line breaks; ids come out one sentence a line.
#include <cstddef>
#include <exception>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>

#include "wordpiece.h"

namespace {

int run(const char* vocabulary_path, size_t max_tokens) {
  std::ifstream file(vocabulary_path, std::ios::binary);
  if (!file) {
    std::cerr << "cannot read " << vocabulary_path << "\n";
    return 2;
  }
  const std::string vocabulary{std::istreambuf_iterator<char>(file), {}};
  const aicf_examples::WordPiece tokenizer(vocabulary);
  for (std::string sentence; std::getline(std::cin, sentence, '\0');) {
    for (const int64_t id : tokenizer.encode(sentence, max_tokens)) std::cout << id << ' ';
    std::cout << '\n';
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2 || argc > 3) {
    std::cerr << "usage: wordpiece_tokens VOCAB.txt [MAX_TOKENS] < sentences, each ended by a NUL byte\n";
    return 2;
  }
  try {
    const unsigned long limit = argc == 3 ? std::stoul(argv[2]) : 256;
    if (limit < 2) throw std::invalid_argument("MAX_TOKENS is less than 2");
    return run(argv[1], limit);
  } catch (const std::exception& error) {
    std::cerr << "wordpiece_tokens: " << error.what() << "\n";
    return 2;
  }
}
