"""Places of C++ sources that a mutation operator can change, found in clang's syntax tree.

Operators: a comparison flips, a bound moves by one, a term of a sum, product or condition drops, a guard
goes. A mutant is an expression that equals the original unless its switch (mutant.h) is on.
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from clang.cindex import Cursor, CursorKind, Index, SourceRange, TranslationUnit, TypeKind
from site_record import Site

FLIPPED = {"<": "<=", "<=": "<", ">": ">=", ">=": ">", "==": "!=", "!=": "=="}
DROPPED = {"+", "-", "*", "&&", "||"}
OPERATORS = ("comparison", "bound", "term", "guard")
# Calls that throw unless what they are told holds.
CHECKS = re.compile(r"(check|require)(_\w+)?$")
INTEGERS = {
    TypeKind.INT, TypeKind.UINT, TypeKind.LONG, TypeKind.ULONG, TypeKind.LONGLONG, TypeKind.ULONGLONG,
    TypeKind.SHORT, TypeKind.USHORT, TypeKind.SCHAR, TypeKind.UCHAR, TypeKind.CHAR_S,
}  # fmt: skip
ARITHMETIC = INTEGERS | {TypeKind.FLOAT, TypeKind.DOUBLE, TypeKind.BOOL}
NOT_ENTERED = {CursorKind.STATIC_ASSERT, CursorKind.CASE_STMT, CursorKind.TEMPLATE_TEMPLATE_PARAMETER}
LEAVING = {CursorKind.RETURN_STMT, CursorKind.CXX_THROW_EXPR, CursorKind.CONTINUE_STMT, CursorKind.BREAK_STMT}


def of_file(path: Path, root: Path, arguments: list[str]) -> list[Site]:
    """All sites of one file; headers are parsed as if they were sources."""
    unit = Index.create().parse(str(path), ["-x", "c++", *arguments], options=TranslationUnit.PARSE_NONE)
    text = path.read_bytes()
    return sorted(set(_Finder(str(path.relative_to(root)), path, text).walk(unit.cursor)))


class _Finder:
    def __init__(self, name: str, path: Path, text: bytes) -> None:
        self.name, self.path, self.text = name, str(path), text

    def walk(self, cursor: Cursor, inside: bool = False) -> Iterator[Site]:
        for child in cursor.get_children():
            if not inside and (child.location.file is None or child.location.file.name != self.path):
                continue
            if child.kind in NOT_ENTERED or self._constant(child):
                continue
            here = inside or child.kind == CursorKind.COMPOUND_STMT
            if here:
                yield from self._sites(child)
            yield from self.walk(child, here)

    def _constant(self, cursor: Cursor) -> bool:
        """Whether the compiler evaluates it: a mutant there would never run."""
        if cursor.kind == CursorKind.VAR_DECL:
            return b"constexpr" in self.text[cursor.extent.start.offset : cursor.location.offset]
        if cursor.kind == CursorKind.IF_STMT:
            return self.text[cursor.extent.start.offset :].startswith(b"if constexpr")
        return False

    def _source(self, extent: SourceRange) -> str | None:
        if extent.start.file is None or extent.start.file.name != self.path:
            return None
        return self.text[extent.start.offset : extent.end.offset].decode()

    def _site(self, cursor: Cursor, extent: SourceRange, operator: str, mutated: str, shown: str) -> Site:
        return Site(self.name, extent.start.offset, extent.end.offset, extent.start.line, operator,
                    self._source(extent) or "", mutated, shown)  # fmt: skip

    def _sites(self, cursor: Cursor) -> Iterator[Site]:
        if cursor.kind == CursorKind.BINARY_OPERATOR:
            yield from self._binary(cursor)
        elif cursor.kind == CursorKind.CALL_EXPR and cursor.spelling in ("operator==", "operator!="):
            if source := self._source(cursor.extent):
                yield self._site(
                    cursor, cursor.extent, "comparison", f"(({source}) != {{on}})", f"!({source})"
                )
        elif cursor.kind == CursorKind.CALL_EXPR and CHECKS.match(cursor.spelling):
            if (source := self._source(cursor.extent)) and cursor.type.kind == TypeKind.VOID:
                yield self._site(cursor, cursor.extent, "guard", f"({{on}} ? void() : {source})", "")
        elif cursor.kind == CursorKind.IF_STMT:
            yield from self._guard(cursor)

    def _binary(self, cursor: Cursor) -> Iterator[Site]:
        children = list(cursor.get_children())
        if len(children) != 2:
            return
        left, right = (self._source(child.extent) for child in children)
        whole = self._source(cursor.extent)
        if not left or not right or not whole or not whole.startswith(left) or not whole.endswith(right):
            return
        sign = whole[len(left) : len(whole) - len(right)].strip()
        kinds = [child.type.get_canonical().kind for child in children]
        if sign in FLIPPED:
            shown = f"{left} {FLIPPED[sign]} {right}"
            yield self._site(cursor, cursor.extent, "comparison", f"({{on}} ? ({shown}) : ({whole}))", shown)
            if sign not in ("==", "!=") and all(kind in INTEGERS for kind in kinds):
                for step in ("+ 1", "- 1"):
                    shown = f"{left} {sign} ({right}) {step}"
                    yield self._site(
                        cursor, cursor.extent, "bound", f"({{on}} ? ({shown}) : ({whole}))", shown
                    )
        elif sign in DROPPED and all(kind in ARITHMETIC for kind in kinds):
            both = sign in ("&&", "||")
            for kept in (left, right) if both else (left,):
                # As a condition has it: of an optional and a bool C++ would make an optional.
                put = f"static_cast<bool>({kept})" if both else f"({kept})"
                yield self._site(cursor, cursor.extent, "term", f"({{on}} ? {put} : ({whole}))", kept)

    def _guard(self, cursor: Cursor) -> Iterator[Site]:
        children = list(cursor.get_children())
        if len(children) != 2 or children[0].kind in (CursorKind.DECL_STMT, CursorKind.VAR_DECL):
            return
        condition, then = children
        last = then
        if then.kind == CursorKind.COMPOUND_STMT:
            statements = list(then.get_children())
            if not statements:
                return
            last = statements[-1]
        while last.kind == CursorKind.UNEXPOSED_EXPR:  # ExprWithCleanups around throw
            (last,) = list(last.get_children())[:1] or (then,)
            if last is then:
                return
        source = self._source(condition.extent)
        if last.kind in LEAVING and source:
            yield self._site(
                cursor, condition.extent, "guard", f"(({source}) && !{{on}})", f"without: if ({source})"
            )


def weight(text: str) -> int:
    """About how many sites a file has, without parsing it."""
    return len(re.findall(r"[<>=!]=| [<>] | [-+*] | && | \|\| |\bif \(", text))


def draw(
    files: list[Path], count: int, engine: random.Random, find: Callable[[Path], list[Site]]
) -> list[Site]:
    """`count` sites that do not overlap: a file by its weight, then the operator, so that rare ones
    count as much, then the place. Only drawn files are parsed."""
    weights = [weight(path.read_text()) for path in files]
    known: dict[Path, list[Site]] = {}
    drawn: list[Site] = []
    for _ in range(20 * count):
        if len(drawn) == count:
            break
        (path,) = engine.choices(files, weights)
        if path not in known:
            known[path] = find(path)
        operators = sorted({site.operator for site in known[path]})
        if not operators:
            continue
        operator = engine.choice(operators)
        site = engine.choice([site for site in known[path] if site.operator == operator])
        known[path] = [other for other in known[path] if other.end <= site.start or site.end <= other.start]
        drawn.append(site)
    return drawn
