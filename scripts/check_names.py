"""Checks that file-local names of a folder of C++ sources stay apart.

The files of a folder are compiled together (aicf_unity in cmake/AicfFlags.cmake). A name in an anonymous
namespace, or a static function, that two of them declare in the same named one would be ambiguous, or an
overload of one file would serve the other. One that a header of the folder declares in a nested namespace,
too, would be found first in every file that opens that namespace by `using namespace`."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
FOLDERS = ("src", "python/bindings", "tools")
# Compiled alone. A test and a source are never compiled together.
APART = re.compile(r"_(bench|isa)\.cc$")

NOISE = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"(\w*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])+\''
    r"|^[ \t]*#(?:\\\n|[^\n])*",
    re.DOTALL | re.MULTILINE,
)
TYPE = re.compile(r"\b(?:struct|class|enum(?: class)?|union)\s+(?:\[\[\w+\]\]\s*)?(\w+)|\busing\s+(\w+)\s*=")
VARIABLE = re.compile(
    r"^(?:static |inline |thread_local |const |constexpr )[^(]*?(\w+)\s*(?:\[[^\]]*\])*\s*$"
)
FUNCTION = re.compile(r"(?<![\w:])(\w+)\s*(?:<[^()]*>)?\s*\(")
WORDS = {"if", "for", "while", "switch", "return", "decltype", "alignas", "static_assert", "noexcept"}


def statements(text: str) -> list[tuple[str, list[str]]]:
    """The heads of the statements at namespace scope, each with its namespaces, "" for an anonymous one."""
    text = NOISE.sub(lambda m: " " if m[0][0] in "/#" else '""', text)
    found: list[tuple[str, list[str]]] = []
    scopes: list[str] = []  # of namespaces: their names
    depth = 0  # of braces inside a statement
    head = ""
    for token in re.findall(r"[{};]|[^{};]+", text):
        if token == "{":
            namespace = re.search(r"\bnamespace\s*([\w:]*)\s*$", head) if depth == 0 else None
            if namespace:
                scopes.append(namespace[1])
                head = ""
            else:
                if depth == 0:
                    found.append((head, scopes[:]))
                depth += 1
        elif token == "}":
            if depth:
                depth -= 1
            elif scopes:
                scopes.pop()
                head = ""
            if depth == 0 and not head.rstrip().endswith("="):
                head = ""
        elif token == ";":
            if depth == 0:
                if head.strip():
                    found.append((head, scopes[:]))
                head = ""
        elif depth == 0:
            head += token
    return found


def declared(head: str) -> str | None:
    head = re.sub(r"template\s*<[^;{}]*?>\s*(?=\w)", "", " ".join(head.split()), count=1)
    if not head or head.startswith(("using namespace", "extern", "friend", "namespace", "public", "private")):
        return None
    before = head.split("=")[0].strip()
    kind = TYPE.match(head)
    if kind:
        return kind[1] or kind[2]
    variable = VARIABLE.match(before)
    if variable:
        return variable[1]
    for function in FUNCTION.finditer(before):
        if function[1] not in WORDS and not function[1].isupper():
            return function[1]
    return None


def local_names(path: Path) -> set[tuple[str, str]]:
    """Each with the named namespaces that it is in."""
    names = set()
    for head, scopes in statements(path.read_text(encoding="utf-8")):
        if "" in scopes or head.lstrip().startswith("static "):
            name = declared(head)
            if name:
                names.add(("::".join(filter(None, scopes)), name))
    return names


OPENED = re.compile(r"^[ \t]*using namespace ([\w:]+);", re.MULTILINE)


def opened_names(folder: Path, opened: set[str]) -> dict[str, str]:
    """Names that headers of the folder declare in these namespaces, each with its header."""
    names: dict[str, str] = {}
    for path in sorted(folder.glob("*.h")):
        text = path.read_text(encoding="utf-8")
        innermost = re.findall(r"\bnamespace\s+([\w:]+)\s*\{", NOISE.sub(" ", text))
        if any(space.rsplit("::", 1)[-1] in opened for space in innermost):
            for head, _ in statements(text):
                if name := declared(head):
                    names.setdefault(name, path.name)
    return names


def main() -> int:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "--", *(f"{folder}/*.cc" for folder in FOLDERS)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    owners: dict[tuple[str, str, str], list[str]] = defaultdict(list)
    opened: dict[str, set[str]] = defaultdict(set)
    for name in sorted(set(listed)):
        path = ROOT / name
        if path.exists() and not APART.search(name):
            folder = str(Path(name).parent) + (" (tests)" if name.endswith("_test.cc") else "")
            for space, local in local_names(path):
                owners[folder, space, local].append(Path(name).name)
            for space in OPENED.findall(path.read_text(encoding="utf-8")):
                opened[folder].add(space.rsplit("::", 1)[-1])
    for folder, spaces in opened.items():
        names = opened_names(ROOT / folder, spaces)
        for (owner, _, local), files in owners.items():
            if owner == folder and local in names:
                files.append(names[local])
    failed = False
    for (folder, _, local), files in sorted(owners.items()):
        if len(files) > 1:
            failed = True
            where = f"{folder}: {local} is local to {', '.join(files)}"
            print(f"{where}; give each its own name, or share one", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
