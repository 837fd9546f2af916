"""Which CUTLASS kernels an experiment takes: the best recorded on this GPU, or named by hand."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from cutlass_study.columns import identity_from_values
from cutlass_study.config import Family, GemmConfig, UsageError
from cutlass_study.presets import PRESETS, preset
from cutlass_study.space import sm80, sm90
from cutlass_study.study_data import DataError, StudyData, load

FALLBACK_SM80 = (sm80((256, 128, 32), 4), sm80((256, 128, 32), 3), sm80((128, 128, 32), 3))
FALLBACK_SM90 = (sm90((128, 256, 64), None),)


def recorded(folders: Sequence[Path], device_name: str) -> StudyData | None:
    """The first of the folders that holds a sweep's records of this kind of GPU."""
    for folder in folders:
        try:
            data = load(folder)
        except DataError:
            continue
        if data.device is not None and data.device.name == device_name and not data.experiment:
            return data
    return None


def _ranked(data: StudyData, family: Family, extent: int) -> list[GemmConfig]:
    """Configurations of a family, best first, at the recorded square size nearest to `extent`."""
    rows = data.results
    rows = rows[(rows["outcome"] == "ok") & (rows["family"] == family)]
    rows = rows[(rows["m"] == rows["n"]) & (rows["n"] == rows["k"]) & (rows["layout"] == "tn")]
    rows = rows[(rows["output"] == "f32") & (rows["beta"] == 0) & (rows["condition"] == "")]
    rows = rows[(rows["distribution"] == "uniform") & (rows["source_c"] != "float")]
    if "burst" in set(rows["regime"]):
        rows = rows[rows["regime"] == "burst"]
    rows = rows[rows["tflops"].notna() & rows["ratio_to_cublas"].notna()]
    if rows.empty:
        return []
    nearest = min(rows["n"].unique(), key=lambda n: (abs(int(n) - extent), -int(n)))
    rows = rows[rows["n"] == nearest].sort_values("ratio_to_cublas", ascending=False, kind="stable")
    records = rows.astype(object).where(rows.notna(), None).to_dict("records")
    return [identity_from_values({str(k): v for k, v in row.items()}).config for row in records]


def best(
    data: StudyData | None, family: Family, arch: str, extent: int, count: int = 1
) -> list[GemmConfig]:
    """The `count` best kernels of a family on record, filled up from a list made beforehand.

    Empty for `sm90` where the GPU has no TMA and WGMMA.
    """
    if family == "sm90" and arch != "sm_90a":
        return []
    found = _ranked(data, family, extent) if data is not None else []
    fallback = FALLBACK_SM90 if family == "sm90" else FALLBACK_SM80
    return list(dict.fromkeys((*found, *fallback)))[:count]


def named(name: str, data: StudyData | None, arch: str) -> GemmConfig:
    """The configuration that `--list` prints under this name; raises `UsageError` for another."""
    wanted = name.partition("__")[0]
    known = {entry.config for chosen in PRESETS for entry in preset(chosen, arch)}
    known |= {*FALLBACK_SM80, *FALLBACK_SM90}
    if data is not None:
        known |= {*_ranked(data, "sm80", 8192), *_ranked(data, "sm90", 8192)}
    for config in known:
        if config.name == wanted and config.family != "cublas":
            return config
    raise UsageError(
        f"configuration '{name}' is in no preset and not on record; give a name as "
        "sweep.py --list prints it, but not cuBLAS's"
    )
