"""Numbers as people read them, written again from what pages say of themselves."""

import math

NONE = "\N{EN DASH}"


def share(value: float) -> str:
    return f"{100 * value:.1f}%"


def number(value: float) -> str:
    if value == int(value) or abs(value) >= 1000:
        return f"{value:z,.0f}"
    return f"{value:z.3g}"


def nats(value: float) -> str:
    return f"{value:z.3f}"


def pace(seconds: float) -> str:
    return f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s" if seconds < 60 else long(seconds)


def long(seconds: float) -> str:
    whole = round(seconds)
    return f"{whole} s" if whole < 60 else f"{whole // 60} min {whole % 60:02d} s"


def known(value: float) -> float | None:
    return None if math.isnan(value) else value
