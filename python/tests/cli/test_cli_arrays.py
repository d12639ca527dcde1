"""Arrays in files: every .npy and .npz that NumPy writes is read right or refused with a code."""

from __future__ import annotations

import io
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx.parser
import pytest
from cli_program import Cli

VALUES = np.arange(24, dtype=np.float64).reshape(2, 3, 4) - 7.5


@pytest.fixture
def identity(cli: Cli) -> Callable[[str, str], None]:
    """Writes id.onnx, which gives its input x back."""

    def write(element: str, shape: str) -> None:
        text = (
            f'<ir_version: 8, opset_import: ["": 17]> g ({element}{shape} x) => ({element}{shape} y)'
            " { y = Identity(x) }"
        )
        (cli.folder / "id.onnx").write_bytes(onnx.parser.parse_model(text).SerializeToString())

    return write


def given_back(cli: Cli, file: str) -> np.ndarray:
    cli.run("run", "id.onnx", "--input", file, "--output-dir", "out")
    return np.load(cli.folder / "out" / "y.npy")


def npy(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


class Pipe(io.BytesIO):
    def seekable(self) -> bool:
        return False

    def seek(self, *_: int) -> int:
        raise OSError

    def tell(self) -> int:
        raise OSError


def archive(
    path: Path, members: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED, **kind: bool
) -> None:
    """`force_zip64` as numpy.savez gives it; `streamed` as to a pipe: sizes stand behind the data."""
    whole = Pipe() if kind.get("streamed") else io.BytesIO()
    with zipfile.ZipFile(whole, "w", method) as file:
        for name, content in members:
            with file.open(name, "w", force_zip64=kind.get("force_zip64", False)) as member:
                member.write(content)
    path.write_bytes(whole.getvalue())


ELEMENTS = {
    "double": "f8", "float": "f4", "float16": "f2", "int64": "i8", "int32": "i4", "int16": "i2",
    "int8": "i1", "uint8": "u1", "bool": "?",
}  # fmt: skip


@pytest.mark.parametrize("element", ELEMENTS)
def test_every_element_type_and_order_is_read(
    cli: Cli, identity: Callable[[str, str], None], element: str
) -> None:
    identity(element, "[2, 3, 4]")
    values = (VALUES % 2 if element == "bool" else abs(VALUES)).astype(ELEMENTS[element])
    forms = {
        "plain": values,
        "fortran": np.asfortranarray(values),
        "big": values.astype(values.dtype.newbyteorder(">")),
        "big_fortran": np.asfortranarray(values.astype(values.dtype.newbyteorder(">"))),
    }
    for name, array in forms.items():
        np.save(cli.folder / f"{name}.npy", array)
        np.savez(cli.folder / f"{name}.npz", x=array)
        np.savez_compressed(cli.folder / f"{name}_c.npz", x=array)
        for file in (f"x={name}.npy", f"{name}.npz", f"{name}_c.npz"):
            np.testing.assert_array_equal(given_back(cli, file), values, err_msg=file)


@pytest.mark.parametrize("kind", ["force_zip64", "streamed", "plain"])
@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_archives_are_read_however_they_were_written(
    cli: Cli, identity: Callable[[str, str], None], kind: str, method: int
) -> None:
    identity("double", "[2, 3, 4]")
    archive(cli.folder / "a.npz", [("x.npy", npy(VALUES))], method, **{kind: True})
    np.testing.assert_array_equal(given_back(cli, "a.npz"), VALUES)
    whole = (cli.folder / "a.npz").read_bytes()
    (cli.folder / "behind.npz").write_bytes(b"#!/bin/sh\n" + whole)  # self-extracting, say
    np.testing.assert_array_equal(given_back(cli, "behind.npz"), VALUES)


def header(text: str, data: bytes = bytes(8), version: int = 1) -> bytes:
    length = struct.pack("<H" if version == 1 else "<I", len(text))
    return b"\x93NUMPY" + bytes([version, 0]) + length + text.encode() + data


SOUND = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }\n"


def test_a_header_is_read_as_the_python_literal_that_it_is(
    cli: Cli, identity: Callable[[str, str], None]
) -> None:
    identity("float", "[2]")
    for text in (
        SOUND,
        "{'shape': (2,), 'fortran_order': False, 'descr': '<f4'}",
        '{ "descr" : "<f4" , "fortran_order":False,"shape":( 2 , )}   \n',
        "{'descr': '<f4', 'fortran_order': False, 'shape': (2L,)}",  # Python 2's
    ):
        for version in (1, 2, 3):
            (cli.folder / "h.npy").write_bytes(header(text, struct.pack("<2f", 3, 4), version))
            assert given_back(cli, "x=h.npy").tolist() == [3, 4], text


HEADERS = {
    "no key": ("{'descr': '<f4', 'fortran_order': False}", "AICF-U0300"),
    "a key twice": (SOUND.replace("}", "'descr': '<f4'}"), "AICF-U0300"),
    "another key": (SOUND.replace("}", "'shapes': (2,)}"), "AICF-U0300"),
    "keys inside a value": ("{'descr': \"<f4', 'fortran_order': False, 'shape': (2,)\"}", "AICF-U0302"),
    "no tuple": (SOUND.replace("(2,)", "(2)"), "AICF-U0300"),
    "negative": (SOUND.replace("(2,)", "(-2,)"), "AICF-U0300"),
    "too large for the file": (SOUND.replace("(2,)", "(3,)"), "AICF-U0300"),
    "more elements than numbers": (SOUND.replace("(2,)", "(4294967296, 4294967296)"), "AICF-U0300"),
    "a size beyond 64 bits": (SOUND.replace("(2,)", "(99999999999999999999,)"), "AICF-U0300"),
    "text behind it": (SOUND.strip() + "]", "AICF-U0300"),
    "not closed": ("{'descr': '<f4', 'fortran_order': False, 'shape': (2,", "AICF-U0300"),
    "rank 33": (SOUND.replace("(2,)", "(" + "1, " * 33 + ")"), "AICF-U0300"),
    "structured": (SOUND.replace("'<f4'", "[('a', '<f4'), ('b', '<i4')]"), "AICF-U0302"),
    "objects": (SOUND.replace("<f4", "|O"), "AICF-U0302"),
    "complex": (SOUND.replace("<f4", "<c8"), "AICF-U0302"),
    "strings": (SOUND.replace("<f4", "<U4"), "AICF-U0302"),
    "16-bit unsigned": (SOUND.replace("<f4", "<u2"), "AICF-U0302"),
    "dates": (SOUND.replace("<f4", "<M8[ns]"), "AICF-U0302"),
    "long doubles": (SOUND.replace("<f4", "<f16"), "AICF-U0302"),
}


@pytest.mark.parametrize("fault", HEADERS)
def test_a_header_that_says_something_else_is_refused(
    cli: Cli, identity: Callable[[str, str], None], fault: str
) -> None:
    identity("float", "[2]")
    text, code = HEADERS[fault]
    (cli.folder / "h.npy").write_bytes(header(text))
    archive(cli.folder / "h.npz", [("x.npy", header(text))])
    for file in ("x=h.npy", "h.npz"):
        error = cli.json("run", "id.onnx", "--input", file, code=2)["error"]
        assert error["code"] == code and "h.np" in error["value"], error


def patched(content: bytes, signature: bytes, at: int, value: bytes) -> bytes:
    start = content.rindex(signature) + at
    return content[:start] + value + content[start + len(value) :]


def bomb(folder: Path, claimed: int) -> bytes:
    """A member of a few bytes that says it holds `claimed` in its directory, local header and array."""
    array = npy(VALUES).replace(b"(2, 3, 4), }", f"({claimed // 8},), }}".encode().ljust(12))
    archive(folder / "b.npz", [("x.npy", array)])
    content = (folder / "b.npz").read_bytes()
    size = struct.pack("<I", min(claimed, 0xFFFFFFFE))
    return patched(patched(content, b"PK\x01\x02", 24, size), b"PK\x03\x04", 22, size)


def zeros_beyond_the_array(folder: Path) -> bytes:
    archive(folder / "b.npz", [("x.npy", npy(VALUES) + bytes(1 << 24))])
    return (folder / "b.npz").read_bytes()


def overlapping(folder: Path) -> bytes:
    """Two names of one member's bytes."""
    archive(folder / "b.npz", [("x.npy", npy(np.zeros(1 << 12)))], zipfile.ZIP_STORED)
    content = (folder / "b.npz").read_bytes()
    start, end = content.index(b"PK\x01\x02"), content.index(b"PK\x05\x06")
    entry = content[start:end]
    other = entry.replace(b"x.npy", b"z.npy")
    tail = bytearray(content[end:])
    struct.pack_into("<HH", tail, 8, 2, 2)
    struct.pack_into("<I", tail, 12, 2 * len(entry))
    local = patched(content[:start], b"PK\x03\x04", 30, b"x.npy")
    return local + entry + other + bytes(tail)


def stored(folder: Path) -> bytes:
    archive(folder / "s.npz", [("x.npy", npy(VALUES))], zipfile.ZIP_STORED)
    return (folder / "s.npz").read_bytes()


def deflated(folder: Path) -> bytes:
    archive(folder / "s.npz", [("x.npy", npy(VALUES))])
    return (folder / "s.npz").read_bytes()


def twice(folder: Path, *names: str) -> bytes:
    with pytest.warns(UserWarning) if names[0] == names[1] else pytest.MonkeyPatch.context():
        archive(folder / "t.npz", [(name, npy(VALUES)) for name in names])
    return (folder / "t.npz").read_bytes()


def other_method(folder: Path, method: int) -> bytes:
    archive(folder / "m.npz", [("x.npy", npy(VALUES))], method)
    return (folder / "m.npz").read_bytes()


ARCHIVES: dict[str, Callable[[Path], bytes]] = {
    "empty file": lambda _: b"",
    "no archive": lambda _: b"PK" + bytes(100),
    "cut in the data": lambda f: deflated(f)[:60],
    "cut in the directory": lambda f: deflated(f)[:-30],
    "cut at its front": lambda f: deflated(f)[40:],
    "a byte of the data": lambda f: patched(deflated(f), b"PK\x01\x02", -20, b"\xff\xff"),
    "a byte of stored data": lambda f: patched(stored(f), b"PK\x01\x02", -20, b"\xff\xff"),
    "another checksum": lambda f: patched(
        patched(stored(f), b"PK\x01\x02", 16, bytes(4)), b"PK\x03\x04", 14, bytes(4)
    ),
    "the directory elsewhere": lambda f: patched(deflated(f), b"PK\x05\x06", 16, b"\xff\xff\xff\x7f"),
    "more members than there are": lambda f: patched(deflated(f), b"PK\x05\x06", 8, b"\x09\x00\x09\x00"),
    "more compressed bytes than there are": lambda f: patched(
        deflated(f), b"PK\x01\x02", 20, b"\xff\xff\xff\x7f"
    ),
    "encrypted": lambda f: patched(patched(stored(f), b"PK\x01\x02", 8, b"\x01"), b"PK\x03\x04", 6, b"\x01"),
    "bzip2": lambda f: other_method(f, zipfile.ZIP_BZIP2),
    "lzma": lambda f: other_method(f, zipfile.ZIP_LZMA),
    "a bomb": lambda f: bomb(f, 1 << 31),
    "a bomb of 4 GB": lambda f: bomb(f, 0xFFFFFFF8),
    "zeros beyond the array": zeros_beyond_the_array,
    "members that overlap": overlapping,
    "a name twice": lambda f: twice(f, "x.npy", "x.npy"),
    "a name with and without its ending": lambda f: twice(f, "x.npy", "x"),
    "no array": lambda f: (archive(f / "n.npz", [("x.npy", b"text")]), (f / "n.npz").read_bytes())[1],
}


@pytest.mark.parametrize("fault", ARCHIVES)
def test_an_archive_that_is_not_sound_is_refused(
    cli: Cli, identity: Callable[[str, str], None], fault: str
) -> None:
    """Within a quarter of a gigabyte: what a file claims to hold is not allocated."""
    identity("double", "[2, 3, 4]")
    (cli.folder / "bad.npz").write_bytes(ARCHIVES[fault](cli.folder))
    error = cli.json("run", "id.onnx", "--input", "bad.npz", code=2, AICF_MAX_MEMORY="256M")["error"]
    assert error["code"] == "AICF-U0300" and "bad.npz" in error["value"], error
    if fault in ("bzip2", "lzma", "encrypted"):
        assert "numpy.savez" in error["remedy"]


def test_zeros_that_compress_well_are_no_bomb(cli: Cli, identity: Callable[[str, str], None]) -> None:
    identity("uint8", "[n]")
    np.savez_compressed(cli.folder / "zeros.npz", x=np.zeros(1 << 24, np.uint8))
    assert (cli.folder / "zeros.npz").stat().st_size < 1 << 15
    words = ("run", "id.onnx", "--dim", "n=16777216", "--input", "zeros.npz")
    assert cli.json(*words)["outputs"][0]["shape"] == [1 << 24]


def test_what_is_no_truth_value_is_read_as_true(cli: Cli, identity: Callable[[str, str], None]) -> None:
    identity("bool", "[4]")
    text = SOUND.replace("<f4", "|b1").replace("(2,)", "(4,)")
    (cli.folder / "b.npy").write_bytes(header(text, bytes([0, 1, 2, 255])))
    assert given_back(cli, "x=b.npy").view(np.uint8).tolist() == [0, 1, 1, 1]


def test_a_stored_checksum_is_checked(cli: Cli, identity: Callable[[str, str], None]) -> None:
    identity("double", "[2, 3, 4]")
    content = bytearray(stored(cli.folder))
    at = content.index(npy(VALUES)[-8:])
    content[at] ^= 1
    assert zlib.crc32(npy(VALUES)) == struct.unpack_from("<I", content, 14)[0]
    (cli.folder / "bad.npz").write_bytes(content)
    assert cli.json("run", "id.onnx", "--input", "bad.npz", code=2)["error"]["code"] == "AICF-U0300"
