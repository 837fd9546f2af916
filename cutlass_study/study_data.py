"""Reading a published folder: the one way in which tables, figures, audit and paper get data.

Needs no GPU, no compiler and no CUDA library.
"""

from __future__ import annotations

import csv
import gzip
import math
import os
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, get_args

import pandas as pd

from cutlass_study.columns import FLOAT_COLUMNS, INTEGER_COLUMNS, identity_from_values
from cutlass_study.conditions import WITHOUT
from cutlass_study.config import UsageError, shown
from cutlass_study.device_file import read_device_file
from cutlass_study.records import (
    IDENTITY_COLUMNS,
    NEWER_COLUMNS,
    RESULT_COLUMNS,
    SAMPLE_COLUMNS,
    DeviceRecord,
    Outcome,
    Regime,
    Sample,
)

DEVICE_FILE, RESULTS_FILE, SAMPLES_FILE = "device.json", "results.csv", "samples.csv.gz"
RESULT_KEY = ("name", "arch", "distribution", "seed", "regime", "condition")
_AGAIN = "export the folder again with sweep.py or experiment.py"
_NEVER_EMPTY = frozenset(
    ("name", "family", "arch", "m", "n", "k", "seed", "outcome", "round", "launches")
)
_TFLOPS_TOLERANCE = 1e-3  # times and TFLOPS are written to six digits or more
_MAY_BE_NEGATIVE = frozenset(("alpha", "beta", "temperature_c"))
_NEVER_ZERO = frozenset(("ratio_to_cublas", "sm_clock_mhz", "flop_per_clk_sm"))
_MAY_BE_INFINITE = frozenset(("max_abs_error", "max_rel_error"))
_NAMED = 5  # absent columns that a message names
_LARGEST = 2**63 - 1  # a whole number that fits into 64 bits


class DataError(UsageError):
    """A published folder can't be used as it is; the message is one sentence fit to print."""


@dataclass(frozen=True, slots=True, eq=False)
class StudyData:
    """A published folder. `device` is None for records from compiling alone.

    Columns are records.RESULT_COLUMNS and SAMPLE_COLUMNS: texts as str with "" for absent, whole
    numbers as Int64, others as float64 with NaN for absent. `summary` is device.json as it is.
    """

    directory: Path
    device: DeviceRecord | None
    complete: bool
    summary: dict[str, Any]
    results: pd.DataFrame
    samples: pd.DataFrame

    @property
    def name(self) -> str:
        return readable(self.directory.name)

    @property
    def experiment(self) -> str:
        """The experiment whose records these are; empty for a sweep's."""
        return str(self.summary.get("experiment", ""))

    @property
    def ceilings(self) -> dict[str, dict[str, Any]]:
        """The card's own peaks by name, as device.json has them; empty where none were recorded."""
        return {ceiling["name"]: ceiling for ceiling in self.summary.get("ceilings", [])}

    @property
    def mma_rate(self) -> float | None:
        """FLOP/clk/SM of the card's `mma.sync` with FP32 accumulators in a loop of nothing else."""
        return self.ceilings.get("mma_f32", {}).get("flop_per_clk_sm")

    @property
    def commands(self) -> list[str]:
        """The script and arguments of every run that made these records."""
        script = "experiment.py" if self.experiment else "sweep.py"
        return [" ".join([script, *run["arguments"]]) for run in self.summary.get("runs", [])]

    def samples_of(
        self,
        name: str,
        regime: Regime,
        *,
        distribution: str = "uniform",
        seed: int | None = None,
        condition: str = "",
    ) -> list[Sample]:
        """Samples of one row as records, for `stats`; `seed` None takes any."""
        places = _places(self).get((name, regime, distribution, condition), [])
        frame = self.samples.iloc[places]
        return sample_records(frame if seed is None else frame[frame["seed"] == seed])


@lru_cache(maxsize=16)  # every comparison asks
def _places(data: StudyData) -> dict[Any, Any]:
    """Positions in `samples` by what `samples_of` is asked for."""
    keys = ["name", "regime", "distribution", "condition"]
    return data.samples.groupby(keys, sort=False).indices


def sample_records(frame: pd.DataFrame) -> list[Sample]:
    """Rows of a samples frame as records, in their order."""
    fields = list(Sample.__dataclass_fields__)
    return [
        Sample(**{field: _plain(value) for field, value in zip(fields, row, strict=True)})
        for row in frame[fields].itertuples(index=False)
    ]


def load(directory: Path | str) -> StudyData:
    """Read and check a published folder, measured or static.

    Raises DataError for a missing folder or file, missing columns, a torn or empty file, a time
    that can't be one, a row that stands twice or contradicts itself, samples of no row, and results
    of two devices.
    """
    try:
        directory = Path(directory).resolve()
        is_file, is_folder = directory.is_file(), directory.is_dir()
    except OSError as error:  # a folder above it can't be entered
        raise DataError(
            f"'{directory}' can't be read ({error.strerror or error}); make it readable"
        ) from error
    if is_file:
        raise DataError(
            f"'{directory}' is a file, not a data folder; give the folder that sweep.py wrote, "
            f"such as '{directory.parent}'"
        )
    if not is_folder:
        raise DataError(f"data folder '{directory}' does not exist; give one that sweep.py wrote")
    results = _frame(directory / RESULTS_FILE, RESULT_COLUMNS)
    _check_results(results, directory / RESULTS_FILE)
    summary: dict[str, Any] = {}
    device = None
    if (directory / DEVICE_FILE).exists():
        summary, device = _device(directory / DEVICE_FILE)
    measured = results["time_ms"].notna().any()
    samples_file = directory / SAMPLES_FILE
    if samples_file.exists():
        samples = _frame(samples_file, SAMPLE_COLUMNS)
        _check_samples(samples, samples_file)
    else:
        samples = _typed([], SAMPLE_COLUMNS, samples_file)
    _check_sample_names(samples, results, samples_file)
    if device is None and (measured or len(samples)):
        raise _missing(directory / DEVICE_FILE, "measured results need it")
    if device is not None and not samples_file.exists():
        raise _missing(samples_file, "measured results need it")
    if device is not None:
        _check_one_device(device, results, samples, directory)
    experiment = summary.get("experiment", "")
    if experiment in WITHOUT and (results["condition"] != "").any():
        raise DataError(
            f"'{directory}' has rows under conditions, which the experiment {experiment} knows "
            f"none of, so that its {DEVICE_FILE} is not its own; {_AGAIN}"
        )
    complete = bool(summary.get("complete", True))
    return StudyData(directory, device, complete, summary, results, samples)


def _missing(path: Path, why: str) -> DataError:
    return DataError(f"'{path}' is missing: {why}; {_AGAIN}")


def _device(path: Path) -> tuple[dict[str, Any], DeviceRecord]:
    try:
        return read_device_file(path)
    except OSError as error:
        raise DataError(f"'{path}' can't be read ({error.strerror or error})") from error
    except ValueError as error:
        raise DataError(f"'{path}' {error}; {_AGAIN}") from error


def _frame(path: Path, columns: Sequence[str]) -> pd.DataFrame:
    lines = _lines(path)
    if not lines:
        raise DataError(f"'{path}' is empty; {_AGAIN}")
    header = lines[0]
    newer = [column for column in NEWER_COLUMNS if column in columns and column not in header]
    absent = [column for column in columns if column not in (*header, *newer)]
    if absent:
        more = f" and {len(absent) - _NAMED} more" if len(absent) > _NAMED else ""
        names = ", ".join(absent[:_NAMED]) + more
        raise DataError(f"'{path}' lacks the columns {names}; {_AGAIN}")
    twice = sorted({column for column in header if header.count(column) > 1})
    if twice:
        raise DataError(f"'{path}' has the columns {', '.join(twice)} twice; {_AGAIN}")
    for number, line in enumerate(lines, start=1):
        if len(line) != len(header):
            raise DataError(
                f"row {number} of '{path}' has {len(line)} fields instead of {len(header)}: the "
                f"file was cut short or edited; {_AGAIN}"
            )
    frame = _typed(lines[1:], header, path)
    for column in newer:
        frame[column] = pd.Series("", index=frame.index, dtype="str")
    return frame


def _lines(path: Path) -> list[list[str]]:
    try:
        if path.suffix == ".gz":
            with gzip.open(path, "rt", encoding="utf-8-sig", newline="") as file:
                return [line for line in csv.reader(file) if line]
        with path.open(encoding="utf-8-sig", newline="") as file:
            return [line for line in csv.reader(file) if line]
    except FileNotFoundError:
        raise _missing(path, "every data folder has it") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise DataError(f"'{path}' is cut short or damaged ({error}); {_AGAIN}") from error
    except OSError as error:
        raise DataError(f"'{path}' can't be read ({error.strerror or error})") from error
    except (UnicodeDecodeError, csv.Error) as error:
        raise DataError(f"'{path}' can't be read ({error}); {_AGAIN}") from error


def _typed(lines: list[list[str]], columns: Sequence[str], path: Path) -> pd.DataFrame:
    frame: dict[str, pd.Series[Any]] = {}
    for index, column in enumerate(columns):
        texts = [line[index] for line in lines]
        if column in _NEVER_EMPTY and "" in texts:
            raise DataError(f"row {texts.index('') + 2} of '{path}' has no {column}; {_AGAIN}")
        if column not in INTEGER_COLUMNS and column not in FLOAT_COLUMNS:
            frame[column] = pd.Series(texts, dtype="str")
            continue
        numbers = [_number(text, column, path, row) for row, text in enumerate(texts, start=2)]
        kind = "Int64" if column in INTEGER_COLUMNS else "float64"
        frame[column] = pd.Series(numbers, dtype=kind)
    return pd.DataFrame(frame)


def readable(path: Path | str) -> str:
    """A path as text that can be printed and stored, whatever bytes its names are made of."""
    return os.fsencode(Path(path).as_posix()).decode("utf-8", "replace")


def _number(text: str, column: str, path: Path, row: int) -> float | None:
    """None for an empty text; DataError for what is no number, or no possible value."""
    if text == "":
        return None
    try:
        number = int(text) if column in INTEGER_COLUMNS else float(text)
        why = _why_impossible(number, column)
    except ValueError:
        why = ", no number"
    if why:
        raise DataError(f"row {row} of '{path}' has {column} '{shown(text)}'{why}; {_AGAIN}")
    return number


def _why_impossible(number: float, column: str) -> str:
    if number < 0 and column not in _MAY_BE_NEGATIVE:
        return ": it can't be negative"
    if number == 0 and column in _NEVER_ZERO:
        return ": it can't be 0"
    if number > 1 and column == "occupancy":
        return ": it can't be above 1"
    possible = number <= _LARGEST or (math.isinf(number) and column in _MAY_BE_INFINITE)
    return "" if possible else ": no measurement gives that"


def _check_results(results: pd.DataFrame, path: Path) -> None:
    _check_words(results["outcome"], get_args(Outcome), path)
    _check_words(results["regime"], ("", *get_args(Regime)), path)
    twice = results.duplicated(list(RESULT_KEY))
    if twice.any():
        row = results[twice].iloc[0]
        raise DataError(
            f"'{path}' has {row['name']} ({row['regime'] or 'no regime'}) twice: results of two "
            "devices or sweeps must not be joined into one file"
        )
    empty = (results["outcome"] == "ok") & (results["regime"] != "") & results["time_ms"].isna()
    zero = results["time_ms"] == 0
    if (empty | zero).any():
        name = results.loc[empty | zero, "name"].iloc[0]
        raise DataError(f"'{path}' has {name} as measured, but without a time above 0; {_AGAIN}")
    _check_tflops(results, path)
    _check_identities(results, path)


def _check_tflops(results: pd.DataFrame, path: Path) -> None:
    """TFLOPS are 2·m·n·k over the time, so that one can't be edited without the other."""
    flop = (
        2.0 * results["m"].astype(float) * results["n"].astype(float) * results["k"].astype(float)
    )
    expected = flop / results["time_ms"] / 1e9
    wrong = (results["tflops"] - expected).abs() > _TFLOPS_TOLERANCE * expected
    wrong |= results["tflops"].notna() & results["time_ms"].isna()
    if wrong.any():
        row = int(wrong.to_numpy().argmax())
        raise DataError(
            f"row {row + 2} of '{path}' has {results['tflops'].iloc[row]:g} TFLOPS, but its time "
            f"and M, N, K give {expected.iloc[row]:g}; {_AGAIN}"
        )


def _check_identities(results: pd.DataFrame, path: Path) -> None:
    """Each row's fields make a configuration and a problem, and its name is theirs."""
    values = results[list(IDENTITY_COLUMNS)].astype(object)
    for number, row in enumerate(values.where(values.notna(), None).to_dict("records"), start=2):
        try:
            name = identity_from_values({str(key): value for key, value in row.items()}).name
        except (ValueError, TypeError) as error:
            raise DataError(
                f"row {number} of '{path}' ({row['name']}) is no configuration of the study "
                f"({error}); {_AGAIN}"
            ) from error
        if name != row["name"]:
            raise DataError(
                f"row {number} of '{path}' is named {row['name']}, but its fields are those of "
                f"{name}; {_AGAIN}"
            )


def _check_samples(samples: pd.DataFrame, path: Path) -> None:
    _check_words(samples["regime"], get_args(Regime), path)
    bad = samples["time_ms"].isna() | ((samples["time_ms"] == 0) & (samples["rejected"] == ""))
    if bad.any():
        row = int(bad.to_numpy().argmax()) + 2
        raise DataError(f"row {row} of '{path}' has no time above 0 and was not rejected; {_AGAIN}")
    if (samples["launches"] < 1).any():
        row = int((samples["launches"] < 1).to_numpy().argmax()) + 2
        raise DataError(f"row {row} of '{path}' has launches 0, so nothing was timed; {_AGAIN}")


def _check_sample_names(samples: pd.DataFrame, results: pd.DataFrame, path: Path) -> None:
    unknown = ~samples["name"].isin(results["name"])
    if unknown.any():
        row = int(unknown.to_numpy().argmax())
        raise DataError(
            f"row {row + 2} of '{path}' is of {samples['name'].iloc[row]}, which {RESULTS_FILE} "
            f"does not have; {_AGAIN}"
        )


def _check_words(column: pd.Series[Any], allowed: Sequence[str], path: Path) -> None:
    unknown = column[~column.isin(allowed)]
    if len(unknown):
        raise DataError(
            f"row {unknown.index[0] + 2} of '{path}' has {column.name} '{unknown.iloc[0]}', which "
            f"is none of {', '.join(word for word in allowed if word)}; {_AGAIN}"
        )


def _check_one_device(
    device: DeviceRecord, results: pd.DataFrame, samples: pd.DataFrame, directory: Path
) -> None:
    arches = {device.arch, *results["arch"], *samples["arch"]}
    if len({arch.rstrip("af") for arch in arches}) > 1:  # sm_90 and sm_90a are one chip
        raise DataError(
            f"'{directory}' mixes results of two devices: {', '.join(sorted(arches))}, while its "
            f"{DEVICE_FILE} is of {device.name} ({device.arch}); keep one folder per device"
        )


def _plain(value: Any) -> Any:
    if pd.isna(value):
        return None
    return value.item() if hasattr(value, "item") else value
