"""A table as CSV (all digits, machine column names) and as Markdown, LaTeX and Typst (readable).

The readable forms share `readable`: headings with units, rounded numbers, intervals in one cell.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from cutlass_study.csv_files import replace_files
from cutlass_study.views import pretty_shape

# Column (or its part before a suffix such as `_burst`, `_s3`, `_e1`) → heading, format.
_HEADINGS: tuple[tuple[str, str, str], ...] = (
    ("label", "configuration", ""),
    ("threadblock_shape", "tile", "shape"),
    ("warp_shape", "warp", "shape"),
    ("cluster_shape", "cluster", "shape"),
    ("epilogue_width", "epilogue width", ".0f"),
    ("source_c", "source C", ""),
    ("split_k", "split-K", ".0f"),
    ("stages", "S", ""),
    ("tflops", "TFLOPS", ".1f"),
    ("peak_share", "share of peak", ".1%"),
    ("ratio_to_cublas", "ratio to cuBLAS", ".4f"),
    ("ratio", "ratio", ".4f"),
    ("change_s3_to_s4", "change S=3 to S=4", "+.1%"),
    ("reference_tflops", "TFLOPS at width 4", ".1f"),
    ("tflops_cublas", "cuBLAS TFLOPS", ".1f"),
    ("tflops_cublas_lt", "cuBLASLt best TFLOPS", ".1f"),
    ("tflops_wmma", "WMMA TFLOPS", ".1f"),
    ("tflops_simt", "SIMT TFLOPS", ".1f"),
    ("tflops_wgmma", "WGMMA TFLOPS", ".1f"),
    ("tflops_sm80", "sm80 TFLOPS", ".1f"),
    ("tflops_sm90", "sm90 TFLOPS", ".1f"),
    ("cost_percent", "extra time [%]", "+.2f"),
    ("difference_percent", "difference [%]", "+.2f"),
    ("difference", "difference", "+.2%"),
    ("clock_difference", "clock difference", "+.2%"),
    ("rate_difference", "FLOP/clk/SM difference", "+.2%"),
    ("flop_per_clk_sm", "FLOP/clk/SM", ".0f"),
    ("tolerance", "tolerance", ".1%"),
    ("agree_share", "share", ".0%"),
    ("median_difference", "median difference", ".2%"),
    ("p95_difference", "95th percentile", ".2%"),
    ("median_clock_difference", "median clock difference", ".2%"),
    ("hours_later", "hours later", ".1f"),
    ("untimed_ms", "untimed [ms]", ".0f"),
    ("timed_ms", "timed [ms]", ".0f"),
    ("samples_in_10_s", "samples in 10 s", ".0f"),
    ("spread_percent", "spread of samples [%]", ".2f"),
    ("half_width_percent", "± of their median [%]", ".2f"),
    ("bias_percent", "bias [%]", "+.2f"),
    ("worst_bias_percent", "largest bias [%]", "+.2f"),
    ("largest_effect", "largest effect", ".2%"),
    ("smallest_adjusted_p", "smallest adjusted p", ".3f"),
    ("sm_clock_mhz", "SM clock [MHz]", ".0f"),
    ("power_w", "power [W]", ".0f"),
    ("smem_bytes", "shared memory [B]", ".0f"),
    ("spill_bytes", "spills [B]", ".0f"),
    ("ctas_per_sm", "CTAs/SM", ".0f"),
    ("occupancy", "occupancy", ".1%"),
    ("extent", "N", ".0f"),
    ("value", "value", ".4g"),
    ("low", "low", ".4g"),
    ("high", "high", ".4g"),
    ("not_measured", "not measured", ".0f"),
    ("kappa", "κ", ".2f"),
    ("asymptote_tflops", "asymptote [TFLOPS]", ".0f"),
    ("worst_error", "worst error", ".1%"),
    ("deepest_error", "error at the deepest S, held out", "+.1%"),
    ("in_sample_median", "median error in sample", ".1%"),
    ("held_out_tile_median", "median error, tile held out", ".1%"),
    ("held_out_tile_r2", "R², tile held out", ".3f"),
    ("held_out_n_median", "median error, N held out", ".1%"),
    ("held_out_n_r2", "R², N held out", ".3f"),
    ("held_out_n_extrapolated_median", "median error, extrapolated N", ".1%"),
    ("cycles_held_out_tile_median", "median error of cycles, tile held out", ".1%"),
    ("cycles_held_out_n_median", "median error of cycles, N held out", ".1%"),
    ("r2", "R²", ".3f"),
    ("regret", "regret", ".1%"),
    ("worst_regret", "worst regret", ".1%"),
    ("held_out_regret", "regret, N held out", ".1%"),
    ("lost", "speed lost", ".1%"),
)
_LATEX = {
    "\\": r"\textbackslash{}",
    "{": r"\{",
    "}": r"\}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "×": r"$\times$",
    "–": "--",
    "≥": r"$\geq$",
    "≤": r"$\leq$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "—": "---",
    **{sign: "\\" + sign for sign in "#$%&_"},
}
_LONG_TABLE_ROWS = 40


@dataclass(frozen=True)
class Table:
    """A table with the name of its files and a caption; `frame` has machine column names."""

    name: str
    frame: pd.DataFrame
    caption: str
    csv_only: tuple[str, ...] = ()  # columns that the readable forms leave out


def _describe(column: str) -> tuple[str, str]:
    """(heading, format) of a column; a suffix such as `_burst` or `_s3` is kept in words."""
    exact = {name: (heading, form) for name, heading, form in _HEADINGS}
    if column in exact:
        return exact[column]
    for name, heading, form in _HEADINGS:
        if column.startswith(f"{name}_"):
            suffix = column.removeprefix(f"{name}_").replace("_", " ")
            return f"{heading} {re.sub(r'^([se])([0-9]+|auto)', _axis, suffix)}", form
    return column.replace("_", " "), ""


def _axis(match: re.Match[str]) -> str:
    return f"{'S' if match[1] == 's' else 'width'}={match[2]}"


def _cell(value: Any, form: str) -> str:
    if value is None or value != value or value == "":
        return ""
    if form == "shape":
        return pretty_shape(str(value))
    if isinstance(value, float):
        return f"{value:{form or 'g'}}"
    return str(value)


def readable(frame: pd.DataFrame) -> pd.DataFrame:
    """Texts for people: headings, units, rounding; `…ratio`, `…low`, `…high` become one cell."""
    shown: dict[str, list[str]] = {}
    for column in frame.columns:
        if _is_bound(column, frame):
            continue
        heading, form = _describe(column)
        texts = [_cell(value, form) for value in frame[column]]
        low, high = (column.replace(_ratio_word(column), f"ratio_{end}") for end in ("low", "high"))
        if _ratio_word(column) and low in frame and high in frame:
            bounds = zip(frame[low], frame[high], strict=True)
            texts = [
                f"{text} [{a:{form}}, {b:{form}}]" if text and a == a and b == b else text
                for text, (a, b) in zip(texts, bounds, strict=True)
            ]
        shown[heading] = texts
    return pd.DataFrame(shown, dtype=object)


def _shown(table: Table) -> pd.DataFrame:
    return readable(table.frame.drop(columns=list(table.csv_only)))


def _ratio_word(column: str) -> str:
    if column.startswith("ratio_to_cublas"):
        return "ratio_to_cublas"
    return "ratio" if re.match(r"ratio(?!_(low|high))", column) else ""


def _is_bound(column: str, frame: pd.DataFrame) -> bool:
    match = re.match(r"ratio_(low|high)(.*)", column)
    if match is None:
        return False
    return f"ratio_to_cublas{match[2]}" in frame or f"ratio{match[2]}" in frame


def _is_number(texts: pd.Series[Any]) -> bool:
    return all(not text or text[0].isdigit() or text[0] in "+-" for text in texts) and bool(
        (texts != "").any()
    )


def _numeric(frame: pd.DataFrame) -> list[bool]:
    return [
        _is_number(frame[column]) and not frame[column].str.contains("×").any()
        for column in frame.columns
    ]


def to_csv(table: Table) -> str:
    """Header and rows, no comments; a value that was not measured is empty."""
    return table.frame.to_csv(index=False, lineterminator="\n")


def to_markdown(table: Table) -> str:
    """The caption and a pipe table."""
    frame = _shown(table)

    def line(cells: list[str]) -> str:
        escaped = (cell.replace("|", "\\|").replace("\n", " ") for cell in cells)
        return "| " + " | ".join(escaped) + " |"

    rule = ["---:" if number else "---" for number in _numeric(frame)]
    rows = [line([str(cell) for cell in row]) for row in frame.to_numpy().tolist()]
    return "\n".join([table.caption, "", line(list(frame.columns)), line(rule), *rows, ""])


def latex_text(text: str) -> str:
    """Text with LaTeX's special characters escaped."""
    return "".join(_LATEX.get(sign, sign) for sign in text)


def to_latex(table: Table) -> str:
    """A booktabs `table`, or a `longtable` when it does not fit a page."""
    frame = _shown(table)
    columns = "".join("r" if number else "l" for number in _numeric(frame))

    def line(cells: list[Any]) -> str:
        return " & ".join(latex_text(str(cell)) for cell in cells) + r" \\"

    head = [r"\toprule", line(list(frame.columns)), r"\midrule"]
    body = [line(row) for row in frame.to_numpy().tolist()]
    caption = rf"\caption{{{latex_text(table.caption)}}}\label{{tab:{table.name}}}"
    if len(frame) > _LONG_TABLE_ROWS:
        top = [rf"\begin{{longtable}}{{{columns}}}", caption + r" \\", *head, r"\endhead"]
        return "\n".join([*top, *body, r"\bottomrule", r"\end{longtable}", ""])
    top = [r"\begin{table}", r"\centering", caption, rf"\begin{{tabular}}{{{columns}}}", *head]
    return "\n".join([*top, *body, r"\bottomrule", r"\end{tabular}", r"\end{table}", ""])


def typst_text(text: str) -> str:
    """A Typst string literal: nothing in it is markup."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def to_typst(table: Table) -> str:
    """A bare `#table(…)` to include in a document, which adds the caption and may break pages."""
    frame = _shown(table)
    aligns = ", ".join("right" if number else "left" for number in _numeric(frame))

    def line(cells: list[Any]) -> str:
        return ", ".join(typst_text(str(cell)) for cell in cells)

    for column, is_number in zip(frame.columns, _numeric(frame), strict=True):
        if is_number:
            frame[column] = frame[column].replace("", "–")
    rows = [f"  {line(row)}," for row in frame.to_numpy().tolist()]
    thick, thin = "  table.hline(stroke: 0.8pt),", "  table.hline(stroke: 0.4pt),"
    head = [
        "#table(",
        f"  columns: {len(frame.columns)},",
        f"  align: ({aligns},),",
        thick,
        f"  table.header({line(list(frame.columns))}),",
        thin,
    ]
    return "\n".join([*head, *rows, thick, ")", ""])


WRITERS: dict[str, Callable[[Table], str]] = {
    "csv": to_csv,
    "md": to_markdown,
    "tex": to_latex,
    "typ": to_typst,
}


def save(table: Table, folder: Path) -> tuple[Path, ...]:
    """Write the table in every format of `WRITERS`, none by half; returns the paths."""
    files = {
        f"{table.name}.{suffix}": write(table).encode("utf-8") for suffix, write in WRITERS.items()
    }
    replace_files(folder, files)
    return tuple(folder / name for name in files)
