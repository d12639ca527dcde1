#!/usr/bin/env python3
"""Checks what the docs name against the tree: files and links, error codes, environment variables.

A path or source file in backticks, a test (`file::name`) and a link must exist, and so must a source file
that a comment of the C++ and CUDA sources names; an error code must stand in errors.def,
docs/environment.md must list exactly the variables that the code reads, docs/architecture/calls.md every
pass over calls, the pages of bench/ and examples/ every program there, docs/README.md every page of docs/,
and some text each file of bench/results/, which says of which commit, when, by what, on what and with
which versions. Measured figures, dates and files of results stand in docs/measurements/ alone. A page opens
with a paragraph. Exit 1 with one line per fault.
"""

import json
import lzma
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
ENVIRONMENT = "docs/environment.md"
CALL_RULES = "docs/architecture/calls.md"
RESULTS = "bench/results/"
MEASUREMENTS = "docs/measurements/"
CONTENTS = "docs/README.md"
LISTS_OF_PROGRAMS = ("bench/README.md", "examples/README.md")

# Where a path in the docs may begin; the folders of src/ and of the public headers go without their prefix.
ROOTS = ("", "src/", "include/")
TESTS = (*ROOTS, "python/tests/")
PATH = re.compile(r"`([\w.-]+(?:/[\w.-]+)+\.(?:cc|h|cuh|def|inc|py|sh|json|json\.xz|csv|csv\.xz|md|txt))`")
BARE = re.compile(r"`([\w-]+\.(?:cc|c|h|cuh|def|py|sh))`")
COMMENT = re.compile(r"//.*")
SOURCE = re.compile(r"(?<![\w./<*-])((?:[\w-]+/)*[\w-]+\.(?:cc|h|cuh|def|inc|py))\b")
LINK = re.compile(r"\]\(([^)#\s]+)[^)]*\)")
RESULT = re.compile(r"\b\w+_\d{4}-\d\d-\d\d\w*\.(?:json|csv)(?:\.xz)?\b")
# A test: a Python function in its file, or a GoogleTest.
TEST = re.compile(r"`([\w./-]+\.(?:py|cc))::([\w.]+)`")
CODE = re.compile(r"AICF-[UEI]\d{4}")
# What tells of a measurement: a figure with a unit of time or of a rate, a ratio of speeds, a day.
MEASURED = re.compile(
    r"\d\s?(?:µs|us|ms|[GT]B/s|[GT]F(?:LOP)?/s|MHz)\b|\d %? (?:faster|slower)|times (?:as fast|the speed)"
    r"|\b20\d\d-\d\d-\d\d\b"
)
DAY = re.compile(r"\b20\d\d-\d\d-\d\d\b")
FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
# Headers of libraries that the docs name.
FOREIGN = {"nvtx3/nvToolsExt.h", "dlpack.h"}

# How a variable is read: in C++ by a few functions, in Python from os.environ, in scripts as ${NAME:-value}.
READ = {
    (".cc", ".h"): re.compile(r'(?:getenv|_environment)\(\s*"(AICF_\w+)"'),
    (".py",): re.compile(r'(?:environ(?:\.get)?[\[(]|getenv\()\s*"(AICF_\w+)"'),
    (".sh",): re.compile(r"\$\{(AICF_\w+):-"),
}
CALL_RULE = re.compile(r"^CALL_RULE\(k\w+, (\w+), .*\)$", re.MULTILINE)
LISTED = re.compile(r"^\| ((?:`AICF_\w+`(?:, )?)+) \|", re.MULTILINE)
# A CMake option, and a variable that only a unit test makes up.
OPTIONS, UNLISTED = {"AICF_ENABLE_NVTX"}, {"AICF_TEST_COUNT"}


def tracked():
    listing = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return [name for name in listing.stdout.splitlines() if (ROOT / name).is_file()]


def check_manual(page, text):
    """What stands in a page of the manual and belongs to docs/measurements/."""
    for number, line in enumerate(FENCED.sub(lambda code: "\n" * code[0].count("\n"), text).splitlines(), 1):
        if (found := MEASURED.search(line) or RESULT.search(line)) is not None:
            yield f"{page}:{number}: '{found[0]}' is a measurement: it stands in {MEASUREMENTS}"


def check_opening(page, text):
    """A page says first what it is for; a page of measurements when they were taken."""
    opening = (text.split("\n\n") + [""])[1]
    if opening[:1] in ("", "#", "|", "-", "`"):
        yield f"{page}: it does not open with a paragraph"
    if page.startswith(MEASUREMENTS) and page != MEASUREMENTS + "README.md" and not DAY.search(opening):
        yield f"{page}: it does not open with the day of its measurements"


def check_tests(page, text, files):
    """A test that a page names is in its file."""
    for path, name in sorted(set(TEST.findall(text))):
        source = next((start + path for start in TESTS if start + path in files), None)
        suite, _, case = name.rpartition(".")
        form = rf"^TEST(_F|_P)?\({suite}, {case}\)" if path.endswith(".cc") else rf"^def {name}\("
        if source is None or not re.search(form, (ROOT / source).read_text(encoding="utf-8"), re.MULTILINE):
            yield f"{page}: there is no test {path}::{name}"


def check_page(page, files, codes):
    text = (ROOT / page).read_text(encoding="utf-8")
    if page.startswith("docs/"):
        yield from check_opening(page, text)
        if not page.startswith(MEASUREMENTS):
            yield from check_manual(page, text)
    beside = str(Path(page).parent) + "/"
    for path in sorted(set(PATH.findall(text)) - FOREIGN):
        if not any(start + path in files for start in (*ROOTS, beside)):
            yield f"{page}: there is no {path}"
    for name in sorted(set(BARE.findall(text)) - {Path(file).name for file in files}):
        yield f"{page}: no file is called {name}"
    yield from check_tests(page, text, files)
    for link in sorted(set(LINK.findall(text))):
        if not link.startswith("http") and not (ROOT / page).parent.joinpath(link).exists():
            yield f"{page}: the link {link} leads nowhere"
    for code in sorted(set(CODE.findall(text)) - codes):
        yield f"{page}: no error has the code {code}"


def check_comments(name, text, files):
    """A source file that a comment names exists: by its path or the end of it, or by its name alone."""
    for number, line in enumerate(text.splitlines(), 1):
        comment = COMMENT.search(line)
        for path in SOURCE.findall(comment[0]) if comment else ():
            if path not in FOREIGN and not any(("/" + file).endswith("/" + path) for file in files):
                yield f"{name}:{number}: there is no {path}"


def variables_read(files):
    for name in files:
        for suffixes, pattern in READ.items():
            if name.endswith(suffixes) and not name.startswith("scripts/check_docs"):
                yield from pattern.findall((ROOT / name).read_text(encoding="utf-8", errors="replace"))


def check_variables(files):
    rows = LISTED.findall((ROOT / ENVIRONMENT).read_text(encoding="utf-8"))
    listed = {name for row in rows for name in re.findall(r"AICF_\w+", row)}
    read = set(variables_read(files)) - UNLISTED
    for name in sorted(read - listed):
        yield f"{ENVIRONMENT}: {name} is read and not listed"
    for name in sorted(listed - read - OPTIONS):
        yield f"{ENVIRONMENT}: {name} is listed and nothing reads it"


def check_call_rules():
    """Every rule over calls has its row in the page's table, in the order of the rules."""
    page = (ROOT / CALL_RULES).read_text(encoding="utf-8")
    rules = CALL_RULE.findall((ROOT / "src/calls/call_rules.def").read_text(encoding="utf-8"))
    if not rules:
        yield "src/calls/call_rules.def: no rule is found"
    rows = [name for name in re.findall(r"^\| `(\w+)` \|", page, re.MULTILINE) if name in rules]
    if rows != rules:
        yield f"{CALL_RULES}: its table has not the rules of call_rules.def in their order"


def check_programs(files):
    for page in LISTS_OF_PROGRAMS:
        named = set(BARE.findall((ROOT / page).read_text(encoding="utf-8")))
        beside = [Path(name) for name in files if Path(name).parent == Path(page).parent]
        for path in beside:
            if path.suffix in (".py", ".cc", ".c") and path.name not in named:
                yield f"{page}: {path.name} is not listed"


def check_contents(files):
    pages = {name for name in files if name.startswith("docs/") and name.endswith(".md")}
    measured = {name for name in pages if name.startswith(MEASUREMENTS)}
    for contents, listed in ((CONTENTS, pages - measured), (MEASUREMENTS + "README.md", measured)):
        linked = set(LINK.findall((ROOT / contents).read_text(encoding="utf-8")))
        for page in sorted(listed - {contents}):
            if page.removeprefix(str(Path(contents).parent) + "/") not in linked:
                yield f"{contents}: {page} is not listed"


# What a file of results says of itself, by the names for it that stand anywhere in it. Files of the days
# before this was asked list under "not_recorded" what nobody wrote down.
SAID = {"command": ("command", "what"), "machine": ("machine", "gpu"), "versions": ("versions", "peer")}
ASKED_SINCE = "2026-11-23"
LARGE_RESULT = 32 * 1024  # bytes; beyond, compressed


def members(value):
    if isinstance(value, dict):
        yield from value
    for part in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        yield from members(part)


def check_result(name, raw):
    """What is wrong with a JSON file of results."""
    if name.endswith(".xz"):
        raw = lzma.decompress(raw)
    elif len(raw) > LARGE_RESULT:
        yield f"{name}: larger than {LARGE_RESULT} bytes: compress it with xz -9"
    data = json.loads(raw)
    if not isinstance(data, dict) or data.get("schema") != 1:
        yield f'{name}: no "schema": 1'
        return
    if not re.fullmatch(r"[0-9a-f]{7,40}", str(data.get("commit", ""))):
        yield f"{name}: no commit"
    date = str(data.get("date", ""))
    if not re.fullmatch(r"\d{4}-\d\d-\d\d", date):
        yield f"{name}: no date"
    found, lost = set(members(data)), set(data.get("not_recorded", ()))
    if lost and date >= ASKED_SINCE:
        yield f"{name}: not_recorded: {', '.join(sorted(lost))}"
    for what, keys in SAID.items():
        if not found.intersection(keys) and what not in lost:
            yield f"{name}: no {what}"


def check_table(name, raw, origins):
    """What is wrong with a CSV file of results; `files` of a JSON file says of what commit each is."""
    if not name.endswith(".xz") and len(raw) > LARGE_RESULT:
        yield f"{name}: larger than {LARGE_RESULT} bytes: compress it with xz -9"
    if name.removeprefix(RESULTS) not in origins:
        yield f"{name}: no JSON file of {RESULTS} says where it comes from"


def check_results(files):
    origins = set()
    for name in files:
        if name.startswith(RESULTS) and name.endswith((".json", ".json.xz")):
            raw = (ROOT / name).read_bytes()
            yield from check_result(name, raw)
            if b'"files"' in raw:
                origins.update(json.loads(raw).get("files", ()))
    for name in files:
        if name.startswith(RESULTS) and name.endswith((".csv", ".csv.xz")):
            yield from check_table(name, (ROOT / name).read_bytes(), origins)
    texts = {
        name: (ROOT / name).read_text(encoding="utf-8")
        for name in files
        if name.endswith((".md", ".cc", ".cuh", ".py"))
    }
    held = {name.removeprefix(RESULTS) for name in files if name.startswith(RESULTS)}
    named = {name for text in texts.values() for name in RESULT.findall(text)}
    for page, text in sorted(texts.items()):
        for name in sorted(set(RESULT.findall(text)) - held):
            yield f"{page}: there is no {RESULTS}{name}"
    for name in sorted(held - named):
        yield f"{RESULTS}{name}: no text names it; git keeps what is no longer cited"


def main():
    files = tracked()
    table = (ROOT / "docs/errors.md").read_text(encoding="utf-8")  # generated from errors.def
    codes = set(re.findall(r"^\| (AICF-[UEI]\d{4}) ", table, re.MULTILINE))
    problems = [
        *check_variables(files),
        *check_call_rules(),
        *check_contents(files),
        *check_programs(files),
        *check_results(files),
    ]
    for page in sorted(name for name in files if name.endswith(".md")):
        problems += check_page(page, set(files), codes)
    sources = [name for name in files if name.endswith((".cc", ".h", ".cuh", ".def", ".inc"))]
    for name in sources:
        problems += check_comments(name, (ROOT / name).read_text(encoding="utf-8"), files)
    for problem in problems:
        print(problem, file=sys.stderr)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
