#!/usr/bin/env python3
"""Makes multiply_add.txt and functions.txt, the exact reference values of float functions; needs mpmath from PyPI.

multiply_add.txt: bits of a, b, c and of a × b + c as exact fractions, rounded once to the nearest float, ties to even.
functions.txt: a function's name, the bits of its arguments as doubles, and of the nearest number to its exact value.
"""
import fractions
import itertools
import pathlib
import random
import struct

import mpmath

HERE = pathlib.Path(__file__).parent
F32, F64 = ("I", "f", 24, -149, 128), ("Q", "d", 53, -1074, 1024)
mpmath.mp.prec = 400


def number(bits, kind=F32):
    return struct.unpack("<" + kind[1], struct.pack("<" + kind[0], bits))[0]


def bits(value, kind):
    return struct.unpack("<" + kind[0], struct.pack("<" + kind[1], value))[0]


def rounded(exact, kind, zero=0.0):
    """The nearest number to a fraction, ties to even; `zero` is the sign that an exact zero has."""
    _, _, precision, least, most = kind
    if exact == 0:
        return zero
    size = abs(exact)
    power = size.numerator.bit_length() - size.denominator.bit_length()
    power -= size < fractions.Fraction(2) ** power
    unit = fractions.Fraction(2) ** max(power - precision + 1, least)
    size = round(size / unit) * unit
    value = float("inf") if size >= fractions.Fraction(2) ** most else float(size)
    return value if exact > 0 else -value


def multiply_add(source):
    """Random numbers, those that nearly cancel, and those that end near the middle between two floats."""
    finite = lambda low, high: source.getrandbits(1) << 31 | source.randint(low, high) << 23 | source.getrandbits(23)
    for round_ in range(500):
        yield finite(0, 254), finite(0, 254), finite(0, 254)
        yield finite(100, 150), finite(100, 150), finite(80, 180)
        a, b = finite(90, 160), finite(90, 160)
        product = number(a) * number(b)
        yield a, b, bits(-product, F32) ^ (round_ & 1)
        # (1 + d) (1 - d) falls short of 1 by so little that doubles lose it, and 1 is half the last bit of c: of a
        # normal float, and of one below the smallest normal float.
        d, sign = 2.0 ** -source.randint(17, 23), source.choice((1, -1))
        power, mantissa = source.randint(-40, 40), source.randint(1 << 23, (1 << 24) - 1)
        for power, mantissa in (power, mantissa), (-149, mantissa >> source.randint(2, 12)):
            factor = 2.0 ** (power // 2)
            half = source.choice((1, -1)) * (1 - d) * 2.0 ** (power - 1) / factor
            yield tuple(bits(value, F32) for value in ((1 + d) * factor, half, sign * mantissa * 2.0 ** power))
    # Zeros, the smallest numbers, ones, the greatest number, infinities.
    yield from itertools.product((0, 1 << 31, 1, 1 << 31 | 1, 0x3f800000, 0xbf800000, 0x7f7fffff, 0x7f800000,
                                  0xff800000), repeat=3)


def exact_multiply_add(a, b, c):
    a, b, c = map(number, (a, b, c))
    if any(value in (float("inf"), float("-inf")) for value in (a, b, c)):
        return a * b + c  # Doubles know infinities as floats do.
    exact = fractions.Fraction(a) * fractions.Fraction(b) + fractions.Fraction(c)
    return rounded(exact, F32, zero=a * b + c)


def fraction(value):
    sign, mantissa, exponent, _ = value._mpf_
    return fractions.Fraction(-int(mantissa) if sign else int(mantissa)) * fractions.Fraction(2) ** int(exponent)


def functions(source):
    """Arguments as the models use them: bases of rotary positions, angles, shares, slopes."""
    uniform = source.uniform
    for _ in range(100):
        yield "exp", F64, mpmath.exp, [uniform(-700, 700)]
        yield "exp2", F64, lambda x: mpmath.mpf(2) ** x, [uniform(-40, 4)]
        yield "log", F64, mpmath.log, [mpmath.e ** uniform(-40, 40)]
        yield "pow", F64, mpmath.power, [uniform(1, 2e6), uniform(0, 1)]
        yield "sin", F64, mpmath.sin, [uniform(0, 1) ** 4 * 1e6]
        yield "cos", F64, mpmath.cos, [uniform(0, 1) ** 4 * 1e6]
        yield "erfc", F64, mpmath.erfc, [uniform(-5, 5)]
        yield "logf", F32, mpmath.log, [uniform(1, 64)]
        yield "tanhf", F32, mpmath.tanh, [uniform(-9, 9)]


def main():
    source = random.Random(1)
    with open(HERE / "multiply_add.txt", "w") as out:
        for numbers in multiply_add(source):
            result = exact_multiply_add(*numbers)
            result = bits(result, F32) if result == result else 0x7fc00000  # One of the many.
            print(*(f"{word:08x}" for word in (*numbers, result)), file=out)
    with open(HERE / "functions.txt", "w") as out:
        for name, kind, function, arguments in functions(source):
            arguments = [number(bits(float(argument), kind), kind) for argument in arguments]
            result = rounded(fraction(function(*map(mpmath.mpf, arguments))), kind)
            arguments = [bits(argument, F64) for argument in arguments]
            print(name, *(f"{word:x}" for word in (*arguments, bits(result, kind))), file=out)


main()
