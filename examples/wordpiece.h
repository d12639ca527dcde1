// WordPiece tokens of BERT uncased, as the models' own tokenizer makes them. Takes a vocabulary (one token a
// line, the line number is the id) and UTF-8 sentences; gives token ids with [CLS] in front and [SEP] behind.
// The text is cleaned, ideographs stand alone, accents and case go, words end at spaces and punctuation, and
// each word is cut greedily into the longest vocabulary entries, continued ones marked by ##. Bytes that are
// not UTF-8 are dropped. Includes nothing but the standard library.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "wordpiece_tables.h"

namespace aicf_examples {

inline constexpr char32_t kInvalid = 0xFFFD;  // the replacement character, which the normalizer drops

// Decodes one character and removes its bytes from `text`, which is not empty; kInvalid for a byte that
// starts none.
inline char32_t next_character(std::string_view& text) {
  const auto byte = [&](size_t i) { return static_cast<unsigned char>(text[i]); };
  const unsigned char lead = byte(0);
  const size_t length = lead < 0x80   ? 1
                        : lead < 0xC2 ? 0
                        : lead < 0xE0 ? 2
                        : lead < 0xF0 ? 3
                        : lead < 0xF5 ? 4
                                      : 0;
  char32_t code = length <= 1 ? lead : lead & (0x7Fu >> length);
  bool valid = length != 0 && length <= text.size();
  for (size_t i = 1; valid && i < length; ++i) {
    valid = (byte(i) & 0xC0) == 0x80;
    code = (code << 6) | (byte(i) & 0x3F);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  const bool surrogate = code >= 0xD800 && code < 0xE000;
  valid = valid && !overlong && !surrogate && code < 0x110000;
  text.remove_prefix(valid ? length : 1);
  return valid ? code : kInvalid;
}

inline void append_utf8(std::string& out, char32_t code) {
  const auto put = [&](char32_t byte) { out.push_back(static_cast<char>(byte)); };
  if (code < 0x80) return put(code);
  if (code < 0x800) {
    put(0xC0 | (code >> 6));
  } else if (code < 0x10000) {
    put(0xE0 | (code >> 12));
    put(0x80 | ((code >> 6) & 0x3F));
  } else {
    put(0xF0 | (code >> 18));
    put(0x80 | ((code >> 12) & 0x3F));
    put(0x80 | ((code >> 6) & 0x3F));
  }
  put(0x80 | (code & 0x3F));
}

// The row of a sorted table of ranges that holds `code`, or nullptr.
template <typename Row>
const Row* find_range(std::span<const Row> table, char32_t code) {
  const auto after = std::upper_bound(table.begin(), table.end(), code,
                                      [](char32_t value, const Row& row) { return value < row.first; });
  if (after == table.begin()) return nullptr;
  const Row& row = *std::prev(after);
  return code <= row.last ? &row : nullptr;
}

inline bool in_ranges(std::span<const CodeRange> table, char32_t code) {
  return find_range(table, code) != nullptr;
}

// Decomposition of a Hangul syllable into two or three letters (The Unicode Standard, section 3.12).
inline void append_hangul(std::u32string& out, char32_t syllable) {
  constexpr char32_t kVowels = 21, kTails = 28;
  const char32_t index = syllable - 0xAC00;
  out.push_back(0x1100 + index / (kVowels * kTails));
  out.push_back(0x1161 + index / kTails % kVowels);
  if (index % kTails != 0) out.push_back(0x11A7 + index % kTails);
}

// Appends the character without accents and in lower case.
inline void append_folded(std::u32string& out, char32_t code) {
  if (code >= 0xAC00 && code < 0xD7A4) return append_hangul(out, code);
  const auto* many = std::lower_bound(std::begin(kFoldsToMany), std::end(kFoldsToMany), code,
                                      [](const FoldMany& row, char32_t value) { return row.from < value; });
  if (many != std::end(kFoldsToMany) && many->from == code) {
    out.append(many->to, many->to[2] == 0 ? 2 : 3);
    return;
  }
  const FoldRange* range = find_range(std::span<const FoldRange>(kFolds), code);
  const bool folds = range && (code - range->first) % static_cast<char32_t>(range->step) == 0;
  out.push_back(folds ? static_cast<char32_t>(static_cast<int32_t>(code) + range->delta) : code);
}

inline std::u32string normalized(std::string_view text) {
  std::u32string out;
  while (!text.empty()) {
    const char32_t code = next_character(text);
    if (in_ranges(kDropped, code)) continue;
    if (in_ranges(kSpaces, code)) {
      out.push_back(U' ');
    } else if (in_ranges(kIdeographs, code)) {
      out.push_back(U' ');
      append_folded(out, code);
      out.push_back(U' ');
    } else {
      append_folded(out, code);
    }
  }
  return out;
}

// Words between spaces; every punctuation character is a word of its own.
inline std::vector<std::u32string> split_words(const std::u32string& text) {
  std::vector<std::u32string> words;
  bool open = false;
  for (const char32_t code : text) {
    const bool alone = in_ranges(kPunctuation, code);
    if (code == U' ') {
      open = false;
      continue;
    }
    if (!open || alone) words.emplace_back();
    words.back().push_back(code);
    open = !alone;
  }
  return words;
}

class WordPiece {
 public:
  // Throws std::invalid_argument if one of the five special tokens is missing.
  explicit WordPiece(std::string_view vocabulary) {
    for (int64_t id = 0; !vocabulary.empty(); ++id) {
      const size_t end = std::min(vocabulary.find('\n'), vocabulary.size());
      ids_.emplace(vocabulary.substr(0, end), id);
      vocabulary.remove_prefix(std::min(end + 1, vocabulary.size()));
    }
    for (const std::string_view token : kSpecials) special_id(token);
    unknown_ = special_id("[UNK]");
  }

  // At most `max_tokens` ids, [CLS] and [SEP] included; `max_tokens` is at least 2.
  std::vector<int64_t> encode(std::string_view sentence, size_t max_tokens = 256) const {
    std::vector<int64_t> out{special_id("[CLS]")};
    while (!sentence.empty()) {
      const auto [position, token] = first_special(sentence);
      append_text(out, sentence.substr(0, position));
      if (!token.empty()) out.push_back(special_id(token));
      sentence.remove_prefix(position + token.size());
    }
    out.resize(std::min(out.size(), max_tokens - 1));
    out.push_back(special_id("[SEP]"));
    return out;
  }

 private:
  struct Hash {
    using is_transparent = void;
    size_t operator()(std::string_view text) const { return std::hash<std::string_view>{}(text); }
  };

  static constexpr std::string_view kSpecials[] = {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  static constexpr size_t kMaxWordCharacters = 100;  // longer words are one [UNK]

  int64_t special_id(std::string_view token) const {
    const auto found = ids_.find(token);
    if (found != ids_.end()) return found->second;
    throw std::invalid_argument("the vocabulary has no token " + std::string(token));
  }

  // Special tokens written out in the text keep their meaning; they are looked for before normalization.
  static std::pair<size_t, std::string_view> first_special(std::string_view text) {
    std::pair<size_t, std::string_view> first{text.size(), {}};
    for (const std::string_view token : kSpecials) {
      const size_t position = text.find(token);
      if (position < first.first) first = {position, token};
    }
    return first;
  }

  void append_text(std::vector<int64_t>& out, std::string_view text) const {
    for (const std::u32string& word : split_words(normalized(text))) append_word(out, word);
  }

  // Greedy longest match (Wu et al. 2016, arXiv:1609.08144); a word with a part that has no match is one
  // [UNK].
  void append_word(std::vector<int64_t>& out, const std::u32string& word) const {
    const size_t before = out.size();
    if (word.size() > kMaxWordCharacters) return out.push_back(unknown_);
    for (size_t start = 0; start < word.size();) {
      const auto [id, length] = longest_match(std::u32string_view(word).substr(start), start > 0);
      if (length == 0) {
        out.resize(before);
        return out.push_back(unknown_);
      }
      out.push_back(id);
      start += length;
    }
  }

  // Id and length in characters of the longest entry that `text` starts with; length 0 if there is none.
  std::pair<int64_t, size_t> longest_match(std::u32string_view text, bool continued) const {
    std::string piece = continued ? "##" : "";
    std::vector<size_t> ends;
    for (const char32_t code : text) {
      append_utf8(piece, code);
      ends.push_back(piece.size());
    }
    for (size_t length = ends.size(); length > 0; --length) {
      const auto found = ids_.find(std::string_view(piece).substr(0, ends[length - 1]));
      if (found != ids_.end()) return {found->second, length};
    }
    return {unknown_, 0};
  }

  std::unordered_map<std::string, int64_t, Hash, std::equal_to<>> ids_;
  int64_t unknown_ = 0;
};

}  // namespace aicf_examples
