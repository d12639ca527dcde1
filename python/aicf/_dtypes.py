"""Element types by class, under our names (src/base/dtypes.def)."""

__all__ = ["FLOATS", "INTS", "is_float", "is_int"]

FLOATS = ("f64", "f32", "f16", "bf16")
INTS = ("i64", "i32", "i16", "i8", "u8")


def is_float(dtype: str) -> bool:
    return dtype in FLOATS


def is_int(dtype: str) -> bool:
    return dtype in INTS
