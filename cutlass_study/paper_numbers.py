"""How the paper prints numbers. What is absent stays `None`, and its sentence is left out."""

from __future__ import annotations

import math
from itertools import count, islice, product
from string import ascii_uppercase
from typing import Any

import pandas as pd


def letters(amount: int) -> list[str]:
    """A, B … Z, AA, AB …: what stands for so many runs."""
    endless = (word for length in count(1) for word in product(ascii_uppercase, repeat=length))
    return ["".join(word) for word in islice(endless, amount)]


def number(value: Any, digits: int) -> str | None:
    """A rounded number as text, or `None` for an absent one."""
    if value is None or pd.isna(value) or not math.isfinite(value):
        return None
    return f"{value:.{digits}f}"


def ratio_percent(ratio: Any, digits: int = 1) -> str | None:
    """A ratio as signed percent: 1.013 → `+1.3 %`."""
    if ratio is None or pd.isna(ratio):
        return None
    percent = round(100 * (float(ratio) - 1), digits)
    sign = "+" if percent > 0 else "−" if percent < 0 else ""
    return f"{sign}{abs(percent):.{digits}f} %"


def ratio_interval(low: Any, high: Any) -> str | None:
    """An interval of ratios as percent."""
    if low is None or pd.isna(low) or pd.isna(high):
        return None
    return f"{ratio_percent(low, 2)} to {ratio_percent(high, 2)}"
