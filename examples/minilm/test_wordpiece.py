"""examples/wordpiece.h against the `tokenizers` library: the same ids for real, hostile and random text."""

from __future__ import annotations

import os
import random
import shutil
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from tokenizers import Tokenizer

from examples.minilm.package import model_file
from examples.minilm.tokenizer import write_vocab

EXAMPLES = Path(__file__).resolve().parents[1]
NO_LIMIT = 1 << 30

NASTY = [
    "",
    " ",
    "\t\r\n \v\f",
    "\u00a0\u2003\u3000x\u200b\u200d\ufeff\u2028y\u0085z",
    "Hello,world!!!...--(a)[b]{c}<d>",
    "don't can’t “quoted” «guillemets» ¿qué? ¡no! … — –",
    "$5.00 + 10% = £5,50 ~ `x` ^ _snake_case_ a|b\\c/d",
    "Ünïcödé ÀÉÎÕÜ ñ ç ø ß ẞ Ł İstanbul ıI Ǆ ﬁ ﬀ Ⅷ ㎏ ½",
    "e\u0301 a\u0308\u0304 \u0301 \u0301alone e\u0301\u0301\u0301",
    "Việt Nam đường phố Ắ ỡ ự",
    "ΑΒΓ άέήίόύώ ΐ ΰ ὕ ᾧ ΣΊΣΥΦΟΣ ;",
    "Привет МИР ёЁ йЙ Їжак",
    "中文字符 混合mixed漢字text豈更",
    "日本語ひらがなガギグ カタカナ ﾊﾝｶｸ が",
    "한국어 문장 각 가 힣 ㄱ ᄀ",
    "हिन्दी क़ বাংলা ো தமிழ் ไทย ລາວ မြန်မာ",
    "עברית שָׁלוֹם العَرَبِيَّة ١٢٣",
    "👍🏽 👨‍👩‍👧 🥰 ☃️ © ™ ✓",
    "[CLS] [SEP] [MASK] [PAD] [UNK] [cls] [MASK]ing x[MASK]y [[MASK]] [MASK [unused0] ##ing ## #",
    "a" * 99,
    "a" * 100,
    "a" * 101,
    "é" * 100,
    "é" * 101,
    "中" * 150,
    "x" * 300 + " tail",
    "supercalifragilisticexpialidocious antidisestablishmentarianism",
    "\ufffd\ufffdword\ufffd",
    "\U0001d15e\U0001d160\U0001d400\U00010400\U0002f800\U0010ffff\ue000\U000e0001",
    "http://example.org/a?b=c&d=e#f user@example.com 192.168.0.1 2:41:07",
    "line one\nline two\r\nline three",
]

Encode = Callable[[Sequence[str | bytes], int], list[list[int]]]


@pytest.fixture(scope="module")
def cpp_encode(tmp_path_factory: pytest.TempPathFactory) -> Encode:
    """Builds the small program and returns a function that runs it on sentences without NUL."""
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "a C++20 compiler is needed to test examples/wordpiece.h"
    folder = tmp_path_factory.mktemp("wordpiece")
    program, vocabulary = folder / "wordpiece_tokens", write_vocab(folder / "vocab.txt")
    source = EXAMPLES / "wordpiece_tokens.cc"
    subprocess.run(
        [compiler, "-std=c++20", "-O2", "-Wall", "-Wextra", "-Werror", source, "-o", program], check=True
    )

    def encode(sentences: Sequence[str | bytes], limit: int = NO_LIMIT) -> list[list[int]]:
        records = [s.encode() if isinstance(s, str) else s for s in sentences]
        assert not any(b"\0" in record for record in records)
        text = b"".join(record + b"\0" for record in records)
        finished = subprocess.run(
            [program, vocabulary, str(limit)], input=text, stdout=subprocess.PIPE, check=True
        )
        return [[int(word) for word in line.split()] for line in finished.stdout.decode().splitlines()]

    return encode


def reference(limit: int = NO_LIMIT) -> Tokenizer:
    tokenizer = Tokenizer.from_file(str(model_file("tokenizer.json")))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    if limit != NO_LIMIT:
        tokenizer.enable_truncation(limit)
    return tokenizer


def check(encode: Encode, sentences: Sequence[str], limit: int = NO_LIMIT) -> None:
    expected = [encoding.ids for encoding in reference(limit).encode_batch(list(sentences))]
    actual = encode(sentences, limit)
    assert len(actual) == len(expected)
    for sentence, want, got in zip(sentences, expected, actual, strict=True):
        assert got == want, f"{sentence!r}"


def test_sentences_of_the_demo(cpp_encode: Encode) -> None:
    check(cpp_encode, (EXAMPLES / "minilm" / "sentences.txt").read_text(encoding="utf-8").splitlines())


@pytest.mark.parametrize("limit", [2, 3, 16, 256, NO_LIMIT])
def test_nasty_strings(cpp_encode: Encode, limit: int) -> None:
    check(cpp_encode, NASTY, limit)


def test_every_character(cpp_encode: Encode) -> None:
    """Each code point inside a word and alone; a few hundred to a sentence keep the test short."""
    characters = [chr(code) for code in range(1, 0x110000) if not 0xD800 <= code < 0xE000]
    groups = [characters[start : start + 256] for start in range(0, len(characters), 256)]
    check(cpp_encode, [" ".join(f"a{c}b {c}" for c in group) for group in groups])


def test_random_strings(cpp_encode: Encode) -> None:
    rng = random.Random(20)
    alphabet = list("abcXYZ 019.,-'\u0301é中가ß\t") + [
        "the",
        "ing",
        "##",
        "[MASK]",
        "İ",
        "が",
        "👍",
        "\u00ad",
    ]
    check(cpp_encode, ["".join(rng.choices(alphabet, k=rng.randrange(60))) for _ in range(5000)])


def test_bytes_that_are_not_utf8_are_dropped(cpp_encode: Encode) -> None:
    broken = [
        b"caf\xe9 au lait",
        b"\xff\xfeword\x80",
        b"cut \xe4\xb8",
        b"overlong \xc0\xaf \xe0\x80\xaf \xf0\x80\x80\xaf",
        b"surrogate \xed\xa0\x80 beyond \xf4\x90\x80\x80 x",
    ]
    assert cpp_encode(broken, NO_LIMIT) == cpp_encode([b.decode(errors="ignore") for b in broken], NO_LIMIT)
