"""Numbers as people read them, written again from what pages say of themselves."""

import math
from fractions import Fraction

NONE = "\N{EN DASH}"


def share(value):
    tenths, rest = divmod(Fraction(abs(100 * value)) * 10, 1)
    return f"{math.copysign((tenths + (2 * rest >= 1)) / 10, value):z.1f}%"


def number(value):
    if value == int(value) or abs(value) >= 999.5:
        return f"{value:z,.0f}"
    return f"{value:z.3g}"


def nats(value):
    return f"{value:z.3f}"


def pace(seconds):
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else long(seconds)


def long(seconds):
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def known(value):
    return None if math.isnan(value) else value
