// Sentence embeddings in C++ alone: `embed_sentence minilm.aicf "a sentence" ["another"]`. Takes the artifact
// that `make demo` leaves in build/demo; tokens come from the vocabulary inside it. Prints the first numbers
// of each embedding, and with two sentences their cosine similarity.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <map>
#include <stdexcept>
#include <string>
#include <vector>

#include <aicf/aicf.h>

#include "wordpiece.h"

namespace {

constexpr size_t kMaxTokens = 256;  // the length this model was trained to read
constexpr size_t kShown = 6;

std::string vocabulary_of(const aicf::Model& model) {
  const auto found = model.metadata().find("vocabulary");
  if (found != model.metadata().end()) return found->second;
  throw std::invalid_argument(
      "the artifact has no metadata `vocabulary`: is it the one that `make demo` writes?");
}

class Embedder {
 public:
  explicit Embedder(const std::string& path)
      : exe_(aicf::Executable::load(path)), tokenizer_(vocabulary_of(exe_.model())) {
    // The artifact is compiled for a range of lengths; shorter sentences are padded with masked tokens.
    const auto sizes = exe_.model().sizes();
    if (const auto range = sizes.find("sequence"); range != sizes.end()) {
      min_tokens_ = static_cast<size_t>(range->second.lo);
      max_tokens_ = std::min(kMaxTokens, static_cast<size_t>(range->second.hi));
    }
  }

  aicf::Tensor operator()(const std::string& sentence) {
    std::vector<int64_t> ids = tokenizer_.encode(sentence, max_tokens_);
    std::vector<int64_t> mask(ids.size(), 1);
    const size_t length = std::max(ids.size(), min_tokens_);
    ids.resize(length, 0);
    mask.resize(length, 0);
    const std::vector<int64_t> types(length, 0), sizes{1, static_cast<int64_t>(length)};
    const std::map<std::string, aicf::TensorView> inputs{{"input_ids", {ids.data(), sizes}},
                                                         {"attention_mask", {mask.data(), sizes}},
                                                         {"token_type_ids", {types.data(), sizes}}};
    return exe_.run(inputs).at("sentence_embedding");
  }

 private:
  aicf::Executable exe_;
  aicf_examples::WordPiece tokenizer_;
  size_t min_tokens_ = 1, max_tokens_ = kMaxTokens;
};

void print_start(const std::string& sentence, const aicf::Tensor& embedding) {
  std::printf("%s\n  %lld numbers:", sentence.c_str(), static_cast<long long>(embedding.count()));
  for (size_t i = 0; i < std::min(kShown, static_cast<size_t>(embedding.count())); ++i)
    std::printf(" %.6f", embedding.as<float>()[i]);
  std::printf(" …\n");
}

double cosine(const aicf::Tensor& a, const aicf::Tensor& b) {
  double ab = 0, aa = 0, bb = 0;
  for (int64_t i = 0; i < a.count(); ++i) {
    const double x = a.as<float>()[i], y = b.as<float>()[i];
    ab += x * y;
    aa += x * x;
    bb += y * y;
  }
  return ab / std::sqrt(aa * bb);
}

int run(int argc, char** argv) {
  Embedder embed(argv[1]);
  std::vector<aicf::Tensor> embeddings;
  for (int i = 2; i < argc; ++i) {
    embeddings.push_back(embed(argv[i]));
    print_start(argv[i], embeddings.back());
  }
  if (embeddings.size() == 2) std::printf("cosine similarity: %.6f\n", cosine(embeddings[0], embeddings[1]));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3 || argc > 4) {
    std::fprintf(stderr, "usage: embed_sentence MODEL.aicf \"a sentence\" [\"another\"]\n");
    return 2;
  }
  try {
    return run(argc, argv);
  } catch (const aicf::EnvironmentError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 3;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 2;
  }
}
