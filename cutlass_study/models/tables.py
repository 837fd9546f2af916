"""Tables of the models: pure functions of a `ModelReport`."""

from __future__ import annotations

import pandas as pd

from cutlass_study.models.document import DOCUMENT_CTAS
from cutlass_study.models.evaluation import HeldOut
from cutlass_study.models.report import PHYSICAL, ModelReport, ModelResult
from cutlass_study.table_formats import Table
from cutlass_study.views import NothingToShow

_HELD_OUT_NOTE = (
    "Errors are |predicted/measured - 1| of TFLOPS; R² as it comes out, also below 0. Held out: "
    "every tile, then every N, is predicted by a fit that never saw it; "
    "the smallest and largest N are then extrapolated."
)


def document_depth_model(report: ModelReport) -> Table:
    """What the primary document's three numbers imply, with their rounding."""
    model, (printed, true) = report.document, report.occupancy_caps
    rows = [
        ("kappa", model.kappa, model.kappa_low, model.kappa_high),
        ("asymptote [TFLOPS]", model.asymptote_tflops, model.asymptote_low, model.asymptote_high),
        ("prediction at S=2 [TFLOPS]", model.s2_tflops, model.s2_low, model.s2_high),
        ("gamma(4) needed", printed.gamma_s4_needed, None, None),
        (
            f"exponent p, CTAs {DOCUMENT_CTAS[3]} → {DOCUMENT_CTAS[4]} as printed",
            printed.exponent, None, None,
        ),
        (f"exponent p, CTAs {true.ctas_s3} → {true.ctas_s4} in truth", true.exponent, None, None),
        ("error at S=4 with true CTAs", true.error_s4, None, None),
    ]  # fmt: skip
    frame = pd.DataFrame(rows, columns=["quantity", "value", "low", "high"])
    caption = (
        "The primary document's S/(S+κ) from its own numbers: 31.9 TFLOPS at S=3, 31.1 at S=4, "
        "13.8 % over-prediction there; low and high span their rounding."
    )
    return Table("model_document", frame, caption)


def depth_fits(report: ModelReport) -> Table:
    """S/(S+κ) fitted per tile; what was refused is counted in the caption."""
    shown = [curve for curve in report.depth if curve.free_parameters == 2 and curve.with_s2]
    if not shown:
        raise NothingToShow("no tile was measured to fit S/(S+κ) to")
    frame = pd.DataFrame(
        {
            "family": curve.family,
            "threadblock_shape": curve.tile,
            "depths": ", ".join(map(str, curve.stages)),
            "kappa": curve.kappa,
            "kappa_low": curve.kappa_low,
            "kappa_high": curve.kappa_high,
            "asymptote_tflops": curve.asymptote,
            "worst_error": curve.worst_error,
            "r2": curve.r2,
            "deepest_error": curve.deepest_error,
            "refusal": curve.refusal,
        }
        for curve in shown
    )
    others = [curve for curve in report.depth if curve not in shown]
    pools = " ".join(_pool_sentence(report, family) for family in report.rows)
    caption = (
        "S/(S+κ) per tile (two free parameters), its other axes as in its fastest kernel. For "
        "sm80, S=2 is a different main loop, so that the fit joins two kernels by one curve. κ at "
        "50, its bound: speed grows in proportion to S or faster. An empty error at the deepest S: "
        "the shallower ones grow faster than S, which no κ of 0 or more can follow. "
        f"{sum(curve.kappa is None for curve in others)} of {len(others)} fits with γ(S) or "
        "without S=2 are refused: as many parameters as points, or CTAs per SM that do not vary. "
        f"{pools}"
    )
    return Table("model_depth", _filled(frame), caption)


def _filled(frame: pd.DataFrame) -> pd.DataFrame:
    return frame.loc[:, [bool((frame[c].notna() & (frame[c] != "")).any()) for c in frame]]


def _pool_sentence(report: ModelReport, family: str) -> str:
    pool = report.pools[family]
    if pool.kappa is None:
        return f"One κ for all {family} tiles: {pool.refusal}."
    exponent = (
        "no tile's CTAs per SM vary, so p is unknown"
        if pool.exponent is None
        else f"p = {pool.exponent:.2f} [{pool.exponent_low:.2f}, {pool.exponent_high:.2f}]"
    )
    return (
        f"One κ for all {family} tiles ({pool.rows} rows, {pool.free_parameters} parameters): "
        f"κ = {pool.kappa:.2f} [{pool.kappa_low:.2f}, {pool.kappa_high:.2f}], {exponent}; median "
        f"error at a held-out tile's deepest S {_median(pool.deepest_errors):.1%}, "
        f"saying that nothing changes {_median(pool.null_errors):.1%}."
    )


def _median(values: tuple[float, ...]) -> float:
    return float(pd.Series(values, dtype=float).median())


def _clean(value: float) -> float:
    """Without the dust that a fit leaves at a lower bound of 0."""
    return 0.0 if abs(value) < 1e-9 else value


def parameters(report: ModelReport) -> Table:
    """The physical model's numbers with 95 % intervals."""
    records = [
        {
            "family": result.family,
            "parameter": one.name,
            "value": _clean(one.value),
            "low": _clean(one.low),
            "high": _clean(one.high),
            "unit": one.unit,
            "at_bound": "yes" if one.at_bound else "",
            "meaning": one.meaning,
        }
        for result in report.results
        for one in result.parameters
    ]
    if not records:
        raise NothingToShow("the physical model was not fitted with intervals")
    caption = (
        "Parameters of the physical model (cycles, then delivered clock) with 95 % intervals from "
        "a bootstrap over whole tiles. Tensor rates, DRAM rate and L2 size are not fitted: they "
        "are the card's own, measured or queried."
    )
    return Table("model_parameters", pd.DataFrame(records), caption)


def errors(report: ModelReport) -> Table:
    """Every model's in-sample and held-out errors and regret side by side."""
    records = [_error_record(result) for result in report.results]
    records.append(_outside_record(report))
    caption = (
        f"Models side by side. {_HELD_OUT_NOTE} Regret: speed lost by running the model's "
        "favourite among the measured configurations of the family, mean over problems. "
        "The physical model's clock is predicted; cycles alone are judged at the measured clock. "
        + " ".join(report.notes)
    )
    return Table("model_errors", pd.DataFrame(records), caption)


def _error_record(result: ModelResult) -> dict[str, object]:
    record: dict[str, object] = {
        "family": result.family,
        "model": result.model,
        "rows": result.rows,
        "free_parameters": result.free_parameters,
    }
    if result.in_sample is None:
        return record | {"refusal": result.refusal}
    record |= {"in_sample_median": result.in_sample.median, "r2": result.in_sample.r2}
    for one in result.held_out:
        record |= _held_out_record(one)
    for one in result.held_out_at_measured_clock:
        record[f"cycles_held_out_{one.axis.lower()}_median"] = one.errors.median
    record |= {"regret": result.mean_regret, "worst_regret": result.worst_regret}
    if result.held_out_regrets:
        lost = [regret.lost for regret in result.held_out_regrets]
        record["held_out_regret"] = sum(lost) / len(lost)
    return record


def _held_out_record(one: HeldOut) -> dict[str, object]:
    name = f"held_out_{one.axis.lower()}"
    record: dict[str, object] = {f"{name}_median": one.errors.median, f"{name}_r2": one.errors.r2}
    if one.extrapolated_errors:
        record[f"{name}_extrapolated_median"] = one.extrapolated_errors.median
    return record


def _outside_record(report: ModelReport) -> dict[str, object]:
    asked = report.heuristics
    record: dict[str, object] = {
        "family": asked.family,
        "model": f"nvidia-matmul-heuristics {asked.version}".strip(),
        "refusal": asked.reason,
    }
    if asked.regrets:
        lost = [regret.lost for regret in asked.regrets]
        record |= {"regret": asked.mean_regret, "worst_regret": max(lost)}
    return record


def regret(report: ModelReport) -> Table:
    """What each model would have run for each problem, and what that costs."""
    records = []
    for result in report.results:
        for held, found in ((False, result.regrets), (True, result.held_out_regrets)):
            if held and result.model != PHYSICAL:
                continue
            records += [
                {
                    "family": result.family,
                    "problem": one.problem,
                    "model": result.model + (", N held out" if held else ""),
                    "configurations": one.configurations,
                    "favourite": one.favourite or "(several)",
                    "lost": one.lost,
                    "extrapolated": "yes" if one.extrapolated else "",
                }
                for one in found
            ]
    records += [
        {
            "family": report.heuristics.family,
            "problem": one.problem,
            "model": "nvidia-matmul-heuristics",
            "configurations": one.configurations,
            "favourite": one.favourite,
            "lost": one.lost,
            "extrapolated": "",
        }
        for one in report.heuristics.regrets
    ]
    if not records:
        raise NothingToShow("no problem was measured with two configurations")
    skipped = report.heuristics.unmapped
    caption = (
        "Speed lost by running each model's favourite. Where a model cannot tell configurations "
        "apart, the mean over them. "
        + (f"None of nvidia-matmul-heuristics' suggestions was measured at {', '.join(skipped)}."
           if skipped else report.heuristics.reason)
    )  # fmt: skip
    return Table("model_regret", pd.DataFrame(records), caption)


ALL = (document_depth_model, depth_fits, parameters, errors, regret)
