#!/usr/bin/env python3
"""Writes what is made from the op and error tables: aicf/ops.py (typed), docs/ops.md, docs/errors.md;
and aicf/_aicf.pyi, the stub of the extension.

The tables come from the built extension. `--check` writes nothing and exits 1 if a file is stale.
"""

from __future__ import annotations

import argparse
import importlib.util
import keyword
import sys
import sysconfig
import textwrap
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
WIDTH = 110
ATTR_TYPES = {
    "int": "int",
    "float": "float",
    "bool": "bool",
    "str": "str",
    "ints": "Sequence[int]",
    "floats": "Sequence[float]",
    "dtype": "str",
    "dims": "Sequence[int | str | Dim]",
}
Row = dict[str, Any]


def python_name(name: str) -> str:
    return f"{name}_" if keyword.iskeyword(name) else name


def parameters(row: Row) -> list[tuple[str, str, str]]:
    """(name, annotation, default) of each operand."""
    found = []
    for name, _, optional, variadic in row["operands"]:
        kind = "Sequence[TensorLike]" if variadic else "TensorLike"
        found.append((python_name(name), f"{kind} | None" if optional else kind, "None" if optional else ""))
    return found


def literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def attributes(row: Row) -> list[tuple[str, str, str]]:
    return [
        (python_name(name), ATTR_TYPES[kind], literal(default) if has_default else "")
        for name, kind, has_default, default in row["attributes"]
    ]


def argument(name: str, annotation: str, default: str) -> str:
    return f"{name}: {annotation}" + (f" = {default}" if default else "")


def signature(row: Row) -> str:
    parts = [argument(*parameter) for parameter in parameters(row)]
    keywords = [argument(*attribute) for attribute in attributes(row)]
    if keywords:
        parts += ["*", *keywords]
    result = (
        "SymTensor"
        if len(row["results"]) == 1
        else f"tuple[{', '.join(['SymTensor'] * len(row['results']))}]"
    )
    line = f"def {python_name(row['name'])}({', '.join(parts)}) -> {result}:"
    if len(line) <= WIDTH:
        return line
    inner = "".join(f"    {part},\n" for part in parts)
    return f"def {python_name(row['name'])}(\n{inner}) -> {result}:"


def type_line(row: Row) -> str:
    """ "x: T, bias: T (optional) -> T, with T: float"."""
    operands = ", ".join(
        f"{name}: {kind}{' (optional)' if optional else ''}{' (one or more)' if variadic else ''}"
        for name, kind, optional, variadic in row["operands"]
    )
    classes = ", ".join(f"{variable}: {cls}" for variable, cls in row["types"])
    results = ", ".join(result.replace("@", "the attribute ") for result in row["results"])
    return f"{operands or 'no operands'} → {results}" + (f"; {classes}" if classes else "")


def shape_line(row: Row) -> str:
    if "pointwise" in row["traits"]:
        return "operands broadcast as in numpy" if len(row["operands"]) > 1 else "as the operand"
    return {
        "same": "as the operand",
        "iota": "the attribute shape",
        "reduce": "without the axes, or 1 there if keepdims",
    }.get(row["shape_rule"], f"rule {row['shape_rule']}")


def docstring(row: Row) -> str:
    meaning = row["meaning"].strip()
    ending = "" if meaning.endswith(".") else "."
    lines = textwrap.wrap(meaning + ending, WIDTH - 8) or [""]
    lines += ["", *textwrap.wrap(f"Dtypes: {type_line(row)}.", WIDTH - 8), f"Shape: {shape_line(row)}."]
    return (
        '    """'
        + "\n".join(f"    {line}".rstrip() if i else line for i, line in enumerate(lines))
        + '\n    """\n'
    )


def body(row: Row) -> str:
    variadic = bool(row["operands"]) and row["operands"][-1][3]
    names = [name for name, _, _ in parameters(row)]
    if variadic:
        operands = f"[{', '.join([*names[:-1], f'*{names[-1]}'])}]"
    else:
        operands = f"[{', '.join(names)}]"
    attrs = ", ".join(f'"{name}": {python_name(name)}' for name, *_ in row["attributes"])
    call = f'apply("{row["name"]}", {operands}, {{{attrs}}})'
    text = call if len(row["results"]) > 1 else f"{call}[0]"
    if len(text) + 11 <= WIDTH:
        return f"    return {text}\n"
    index = "" if len(row["results"]) > 1 else "[0]"
    pairs = "".join(f'            "{name}": {python_name(name)},\n' for name, *_ in row["attributes"])
    arguments = f'        "{row["name"]}",\n        {operands},\n        {{\n{pairs}        }},\n'
    return f"    return apply(\n{arguments}    ){index}\n"


def public(rows: list[Row]) -> list[Row]:
    """Ops with bodies are made by the importers and passes, not by hand."""
    return [row for row in rows if "has_body" not in row["traits"]]


HEADER = '''"""Every op of the IR as a function on traced values. Made by scripts/generate.py from ops.def.

Operands are traced values, params, real arrays (they become constants) or numbers. Negative axes count
from the end. Errors: bad_operand_count, bad_dtype, bad_attribute, bad_shape. docs/ops.md is the same list as
a table.
"""
'''


GUESSES = """

# What other libraries call an op.
_ELSEWHERE = {
    "cat": "concat",
    "clip": "clamp",
    "expand": "broadcast_to",
    "flip": "reverse",
    "logsumexp": "reduce_logsumexp",
    "maximum": "max",
    "mean": "reduce_mean",
    "minimum": "min",
    "multiply": "mul",
    "permute": "transpose",
    "prod": "reduce_prod",
    "scaled_dot_product_attention": "attention",
    "split": "slice",
    "sum": "reduce_sum",
    "swish": "silu",
    "take": "gather",
    "topk": "top_k",
    "where": "select",
}


def __getattr__(name: str) -> Any:
    known = _ELSEWHERE.get(name) or next(iter(get_close_matches(name, __all__, 1)), None)
    hint = f"; did you mean {known!r}?" if known else ""
    raise AttributeError(f"aicf.ops has no op {name!r}{hint}", name=name)
"""


def all_list(rows: list[Row]) -> str:
    names = sorted(python_name(row["name"]) for row in public(rows))
    return "__all__ = [\n" + "".join(f'    "{name}",\n' for name in names) + "]\n"


IMPORTS = """
from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches
from typing import Any

from ._aicf import Dim
from ._apply import apply
from .symtensor import SymTensor

"""


def ops_module(rows: list[Row]) -> str:
    functions = "".join(f"\n\n{signature(row)}\n{docstring(row)}{body(row)}" for row in public(rows))
    return HEADER + IMPORTS + all_list(rows) + "\nTensorLike = Any\n" + functions + GUESSES


def ops_page(rows: list[Row]) -> str:
    lines = [
        "# Ops",
        "",
        "Every op of the IR: operands, attributes, meaning, derivative. For users of `aicf.ops` and the",
        "C++ `Builder`, and for readers of a printed program.",
        "",
        "Pointwise ops broadcast as numpy does. `T` is a dtype that the operands share; its class follows.",
        "The derivative column gives the gradients of the operands from dy, the result's, before sums over",
        "broadcast axes. Traits: *pointwise* and *reduction* ops fuse, a *composite* has a decomposition, a",
        "*view* moves no data, *exact* and *stepwise* say where halves are rounded",
        "([precision.md](precision.md)).",
        "",
        "Generated by `scripts/generate.py` from `src/ir/ops.def` and `src/autodiff/derivatives.def`; do",
        "not edit.",
        "",
        "| op | operands → results | attributes | traits | meaning | derivative |",
        "|---|---|---|---|---|---|",
    ]
    for row in rows:
        attrs = ", ".join(
            f"{name}: {kind}" + (f" = {default!r}" if has_default else "")
            for name, kind, has_default, default in row["attributes"]
        )
        traits = ", ".join(row["traits"])
        texts = row["meaning"], row["derivative"]
        cells = (f"`{row['name']}`", type_line(row), attrs, traits, *texts)
        lines.append("| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |")
    return "\n".join(lines) + "\n"


def errors_page(rows: list[tuple[str, str, str, str]]) -> str:
    lines = [
        "# Errors",
        "",
        "Every error code, with its kind and name. For users who met one, and for programs that react to",
        "one.",
        "",
        "An error has a code, the op, the value, what was expected and found, and a remedy in the words of",
        "the caller: flags on the command line, arguments in Python, fields in C++. Codes are stable.",
        "",
        "| kind | who can mend it | exit code | Python | C++ | C |",
        "|---|---|---|---|---|---|",
        "| user | you: the model, an input or an option | 2; 1 for a check that failed | `aicf.UserError` "
        "| `aicf::UserError` | `AICF_USER_ERROR` |",
        "| environment | who runs the machine: memory, files, devices | 3 | `aicf.EnvError` "
        "| `aicf::EnvironmentError` | `AICF_ENVIRONMENT_ERROR` |",
        "| internal | we: please report it | 4 | `aicf.InternalError` | `aicf::InternalError` "
        "| `AICF_INTERNAL_ERROR` |",
        "",
        "All derive from `aicf.Error` and `aicf::Error`. Generated by `scripts/generate.py` from",
        "`src/base/errors.def`; do not edit.",
        "",
        "| code | kind | name | meaning |",
        "|---|---|---|---|",
    ]
    lines += [f"| {code} | {kind} | `{name}` | {meaning} |" for code, kind, name, meaning in rows]
    return "\n".join(lines) + "\n"


def load_extension() -> Any:
    """The built aicf._aicf without its package, which imports a file made here."""
    found = sorted((ROOT / "python/aicf").glob(f"_aicf*{sysconfig.get_config_var('EXT_SUFFIX')}"))
    if not found:
        sys.exit("the extension is not built for this Python: run `make build`")
    spec = importlib.util.spec_from_file_location("aicf._aicf", found[0])
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def extension_stub(extension: Any) -> str:
    from nanobind.stubgen import StubGen

    generator = StubGen(extension)
    generator.put(extension)
    head = "# Generated by scripts/generate.py from the extension.\n"
    return head + generator.get() + "\n__version__: str\n"


def generated() -> dict[Path, str]:
    extension = load_extension()
    ops = extension.op_table()
    return {
        ROOT / "python/aicf/ops.py": ops_module(ops),
        ROOT / "python/aicf/_aicf.pyi": extension_stub(extension),
        ROOT / "docs/ops.md": ops_page(ops),
        ROOT / "docs/errors.md": errors_page(extension.error_table()),
    }


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true", help="only compare; exit 1 if a file is stale")
    check = parser.parse_args().check
    stale = [
        (path, text)
        for path, text in generated().items()
        if not path.exists() or path.read_text("utf-8") != text
    ]
    for path, text in stale:
        print(f"{'stale' if check else 'written'}: {path.relative_to(ROOT)}", file=sys.stderr)
        if not check:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
    if check and stale:
        print("run `make generate`", file=sys.stderr)
    return 1 if check and stale else 0


if __name__ == "__main__":
    sys.exit(main())
