"""Special functions by their series, asymptotic forms and identities (Abramowitz & Stegun 1964, cited as AS),
in f64
with one rounding at the end. Loops have a fixed number of terms, chosen for an error below that of f32."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import ops
from ...symtensor import SymTensor
from ..call import Call, Decompose
from .table import rule

__all__ = ["digamma", "polygamma"]

_HALF_LOG_TWO_PI = 0.5 * math.log(2 * math.pi)
Function = Callable[[Call, SymTensor], SymTensor]


def _add(names: str, function: Function) -> None:
    def special(c: Call, x: Any) -> SymTensor:
        wide = function(c, c.cast(x, "f64"))
        return wide if c.dtype == "f64" else ops.cast(wide, dtype=c.dtype)

    rule(*names.split())(special)


def _polynomial(x: SymTensor, coefficients: Sequence[float]) -> SymTensor:
    """Horner's rule, the highest power first."""
    total = x * 0.0 + coefficients[0]
    for coefficient in coefficients[1:]:
        total = total * x + coefficient
    return total


# --- error function and its relatives


def _erfcx_positive(x: SymTensor) -> SymTensor:
    """e^(x^2) erfc(x) for x >= 2 by its continued fraction, AS 7.1.14."""
    tail = x
    for k in range(40, 0, -1):
        tail = x + (k / 2) / tail
    return 1.0 / (tail * math.sqrt(math.pi))


def _erfcx(c: Call, x: SymTensor) -> SymTensor:
    near = ops.exp(x * x) * (1.0 - ops.erf(x))
    return ops.select(x > 2.0, _erfcx_positive(ops.max(x, c.number(2, "f64"))), near)


def _erfc(c: Call, x: SymTensor) -> SymTensor:
    far = ops.exp(-(x * x)) * _erfcx_positive(ops.max(x, c.number(2, "f64")))
    return ops.select(x > 2.0, far, 1.0 - ops.erf(x))


def _erfinv(c: Call, y: SymTensor) -> SymTensor:
    """Winitzki's estimate, then Newton steps on erf; near 1 on log erfc."""
    a = 0.147
    magnitude = ops.abs(y)
    log = ops.log1p(-(magnitude * magnitude))
    first = log * 0.5 + 2 / (math.pi * a)
    x = ops.sqrt(ops.sqrt(first * first - log / a) - first)
    for _ in range(4):
        rest = ops.select(x > 2.0, (1.0 - magnitude) - _erfc(c, x), ops.erf(x) * -1.0 + magnitude)
        step = ops.select(x > 2.0, -rest, rest) * (math.sqrt(math.pi) / 2) * ops.exp(x * x)
        x = x + ops.select(ops.is_nan(step), c.number(0, "f64"), step)
    edge = ops.select(magnitude == 1.0, c.number(math.inf, "f64"), c.number(math.nan, "f64"))
    x = ops.select(magnitude < 1.0, x, edge)
    return ops.select(y < 0.0, -x, x)


def _ndtri(c: Call, p: SymTensor) -> SymTensor:
    """Of p below 1/2: -sqrt(2) erfinv(1 - 2 p)."""
    return _erfinv(c, p * 2.0 - 1.0) * math.sqrt(2)


_add("erfc prims.erfc special_erfc", _erfc)
_add("special_erfcx prims.erfcx", _erfcx)
_add("erfinv prims.erf_inv special_erfinv", _erfinv)
_add("special_ndtri prims.ndtri", _ndtri)


# --- gamma function


def _lgamma(c: Call, x: SymTensor) -> SymTensor:
    """Stirling's series (AS 6.1.41) from 10 on, by the recurrence; reflection below 1/2 (AS 6.1.17)."""
    reflected = x < 0.5
    z = ops.select(reflected, 1.0 - x, x)
    product, shifted = z * 0.0 + 1.0, z
    for _ in range(10):
        low = shifted < 10.0
        product = ops.select(low, product * shifted, product)
        shifted = ops.select(low, shifted + 1.0, shifted)
    inverse = 1.0 / shifted
    square = inverse * inverse
    series = _polynomial(square, [1 / 1188, -1 / 1680, 1 / 1260, -1 / 360, 1 / 12]) * inverse
    value = (shifted - 0.5) * ops.log(shifted) - shifted + _HALF_LOG_TWO_PI + series - ops.log(product)
    value = ops.select(z == math.inf, z, value)
    sine = ops.abs(ops.sin((x - ops.floor(x)) * math.pi))
    mirrored = math.log(math.pi) - ops.log(sine) - value
    pole = ops.bit_and(x <= 0.0, x == ops.floor(x))
    result = ops.select(reflected, mirrored, value)
    return ops.select(ops.bit_or(pole, ops.is_inf(x)), c.number(math.inf, "f64"), result)


def digamma(c: Call, x: SymTensor) -> SymTensor:
    """AS 6.3.18 from 10 on, reached by the recurrence; reflection below 0 (AS 6.3.7). At 0 ∓inf, at other
    poles NaN.
    """
    reflected = x < 0.0
    z = ops.select(reflected, 1.0 - x, x)
    total, shifted = z * 0.0, z
    for _ in range(10):
        low = shifted < 10.0
        total = ops.select(low, total - 1.0 / shifted, total)
        shifted = ops.select(low, shifted + 1.0, shifted)
    square = 1.0 / (shifted * shifted)
    series = _polynomial(square, [-1 / 132, 1 / 240, -1 / 252, 1 / 120, -1 / 12]) * square
    value = total + ops.log(shifted) - 0.5 / shifted + series
    angle = (x - ops.floor(x)) * math.pi
    mirrored = value - math.pi * (ops.cos(angle) / ops.sin(angle))
    result = ops.select(reflected, mirrored, value)
    pole = ops.bit_and(x < 0.0, x == ops.floor(x))
    result = ops.select(pole, c.number(math.nan, "f64"), result)
    return ops.select(x == 0.0, -1.0 / x, result)


_BERNOULLI = [1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6, -3617 / 510]


def _zeta(c: Call, s: SymTensor, q: SymTensor) -> SymTensor:
    """Hurwitz: sum over (q + k)^-s, with the tail by Euler and Maclaurin (AS 23.2.3) after 12 terms."""
    terms = 12
    total = ops.pow(q, -s)
    for k in range(1, terms):
        total = total + ops.pow(q + float(k), -s)
    edge = q + float(terms)
    power = ops.pow(edge, -s)
    total = total + edge * power / (s - 1.0) + power * 0.5
    factor, factorial = s, 2.0
    for i, bernoulli in enumerate(_BERNOULLI):
        total = total + factor * (bernoulli / factorial) * power * ops.pow(
            edge, c.number(-(2 * i + 1), "f64")
        )
        factor = factor * (s + float(2 * i + 1)) * (s + float(2 * i + 2))
        factorial *= (2 * i + 3) * (2 * i + 4)
    total = ops.select(s == 1.0, c.number(math.inf, "f64"), total)
    whole = q == ops.floor(q)
    below = q <= 0.0
    wrong = ops.bit_or(s < 1.0, ops.bit_and(below, ops.bit_and(ops.logical_not(whole), s != ops.floor(s))))
    total = ops.select(wrong, c.number(math.nan, "f64"), total)
    return ops.select(ops.bit_and(ops.bit_and(below, whole), s > 1.0), c.number(math.inf, "f64"), total)


@rule("special_zeta", "prims.zeta", "special_zeta.other_scalar", "special_zeta.self_scalar")
def _zeta_rule(c: Call, s: Any, q: Any) -> SymTensor:
    return c.cast(_zeta(c, c.cast(s, "f64"), c.cast(q, "f64")))


@rule("polygamma", "special_polygamma")
def _polygamma_rule(c: Call, n: int, x: Any) -> SymTensor:
    return c.cast(polygamma(c, n, c.cast(x, "f64")))


def polygamma(c: Call, n: int, x: SymTensor) -> SymTensor:
    """(-1)^(n+1) n! zeta(n + 1, x), AS 6.4.10."""
    if n == 0:
        return digamma(c, x)
    scale = (-1.0) ** (n + 1) * math.factorial(n)
    return _zeta(c, c.number(n + 1, "f64"), x) * scale


_add("lgamma prims.lgamma special_gammaln", _lgamma)
_add("digamma prims.digamma special_digamma special_psi", digamma)


# --- Bessel functions


def _series(x: SymTensor, order: int, sign: float, terms: int) -> SymTensor:
    """sum over (sign x^2/4)^k / (k! (k + order)!) (x/2)^order, AS 9.1.10 and 9.6.10."""
    square = x * x * (0.25 * sign)
    coefficients = [1 / (math.factorial(k) * math.factorial(k + order)) for k in range(terms)]
    total = _polynomial(square, coefficients[::-1])
    return total * x * 0.5 if order == 1 else total


def _hankel(order: int, count: int) -> list[float]:
    """a_k of AS 9.2.5: product of (4 order^2 - (2 i - 1)^2) / (8 i)."""
    values = [1.0]
    for i in range(1, count):
        values.append(values[-1] * (4 * order * order - (2 * i - 1) ** 2) / (8 * i))
    return values


def _scaled_i(c: Call, x: SymTensor, order: int) -> SymTensor:
    """e^-|x| I(x): the series up to 16, AS 9.7.1 beyond."""
    magnitude = ops.abs(x)
    near = _series(ops.min(magnitude, c.number(16, "f64")), order, 1.0, 48) * ops.exp(-magnitude)
    far_x = ops.max(magnitude, c.number(16, "f64"))
    signs = [a * (-1) ** k for k, a in enumerate(_hankel(order, 10))]
    far = _polynomial(1.0 / far_x, signs[::-1]) / ops.sqrt(far_x * (2 * math.pi))
    result = ops.select(magnitude <= 16.0, near, far)
    return ops.select(x < 0.0, -result, result) if order == 1 else result


def _unscaled_i(order: int) -> Function:
    return lambda c, x: _scaled_i(c, x, order) * ops.exp(ops.abs(x))


def _j(order: int) -> Function:
    """The series up to 12; beyond, Hankel's form AS 9.2.5."""

    def bessel(c: Call, x: SymTensor) -> SymTensor:
        magnitude = ops.abs(x)
        near = _series(ops.min(magnitude, c.number(12, "f64")), order, -1.0, 40)
        far_x = ops.max(magnitude, c.number(12, "f64"))
        a = _hankel(order, 12)
        inverse = 1.0 / far_x
        square = inverse * inverse
        p = _polynomial(square, [a[k] * (-1) ** (k // 2) for k in range(0, 12, 2)][::-1])
        q = _polynomial(square, [a[k] * (-1) ** (k // 2) for k in range(1, 12, 2)][::-1]) * inverse
        angle = far_x - (order / 2 + 0.25) * math.pi
        far = ops.sqrt(inverse * (2 / math.pi)) * (p * ops.cos(angle) - q * ops.sin(angle))
        result = ops.select(magnitude <= 12.0, near, far)
        return ops.select(x < 0.0, -result, result) if order == 1 else result

    return bessel


def _spherical_j0(c: Call, x: SymTensor) -> SymTensor:
    """sin(x) / x."""
    safe = ops.select(x == 0.0, c.number(1, "f64"), x)
    value = ops.select(x == 0.0, c.number(1, "f64"), ops.sin(safe) / safe)
    return ops.select(ops.is_inf(x), c.number(0, "f64"), value)


_add("special_i0e prims.bessel_i0e", lambda c, x: _scaled_i(c, x, 0))
_add("special_i1e prims.bessel_i1e", lambda c, x: _scaled_i(c, x, 1))
_add("i0 special_i0 prims.bessel_i0 special_modified_bessel_i0", _unscaled_i(0))
_add("special_i1 prims.bessel_i1 special_modified_bessel_i1", _unscaled_i(1))
_add("special_bessel_j0 prims.bessel_j0", _j(0))
_add("special_bessel_j1 prims.bessel_j1", _j(1))
_add("special_spherical_bessel_j0 prims.spherical_bessel_j0", _spherical_j0)


# --- parts of numbers


@rule("hypot", "prims.hypot")
def _hypot(c: Call, x: Any, y: Any) -> SymTensor:
    """Scaled by the larger one, so that squares do not overflow."""
    x, y = ops.abs(c.cast(x)), ops.abs(c.cast(y))
    large, small = ops.max(x, y), ops.min(x, y)
    ratio = small / large
    value = ops.select(large == 0.0, large, large * ops.sqrt(ratio * ratio + 1.0))
    infinite = ops.bit_or(ops.is_inf(x), ops.is_inf(y))
    return ops.select(infinite, c.number(math.inf, c.dtype), value)


@rule("angle")
def _angle(c: Call, x: Any) -> SymTensor:
    x = c.cast(x)
    return ops.select(ops.is_nan(x), x, ops.select(x < 0.0, c.number(math.pi, c.dtype), c.number(0, c.dtype)))


@rule("frexp.Tensor", "prims.frexp")
def _frexp(c: Call, x: Any) -> tuple[SymTensor, SymTensor]:
    """x = mantissa 2^exponent with a mantissa in [1/2, 1)."""
    if x.dtype == "f64":
        raise Decompose("frexp of f64")
    magnitude = ops.abs(ops.cast(x, dtype="f64"))
    plain = ops.bit_and(magnitude > 0.0, magnitude < math.inf)
    safe = ops.select(plain, magnitude, c.number(0.5, "f64"))
    exponent = ops.floor(ops.log(safe) / math.log(2)) + 1.0
    mantissa = safe * ops.pow(c.number(2, "f64"), -exponent)
    over, under = mantissa >= 1.0, mantissa < 0.5
    shift = ops.select(over, c.number(1, "f64"), ops.select(under, c.number(-1, "f64"), c.number(0, "f64")))
    exponent = exponent + shift
    mantissa = ops.cast(safe * ops.pow(c.number(2, "f64"), -exponent), dtype=x.dtype)
    mantissa = ops.select(x < 0.0, -mantissa, mantissa)
    exponent = ops.select(plain, exponent, c.number(0, "f64"))
    return ops.select(plain, mantissa, x), ops.cast(exponent, dtype="i32")
