"""The verdict on D and the inputs, emulated in numpy: `test_gpu.py` compares the GPU with these."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_study.config import GemmProblem
from cutlass_study.records import Distribution
from cutlass_study.verify import SAFETY, UNIT_ROUNDOFF, error_factor
from tests.emulation import compare, draw, operands, splitmix64, stream_seed


def inputs(m: int, n: int, k: int, seed: int = 1) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """A[m,k] and B[k,n] as FP16 values in FP32, and their product in FP64."""
    a, b = operands(GemmProblem(m, n, k, layout="nn"), "uniform", seed)
    wide_a, wide_b = a.astype(np.float64), b.astype(np.float64)
    return a.astype(np.float32), b.astype(np.float32), wide_a @ wide_b


def truncate(x: np.ndarray) -> np.ndarray:
    """FP64 to FP32 towards zero, as tensor cores round their sums."""
    near = x.astype(np.float32)
    too_large = np.abs(near.astype(np.float64)) > np.abs(x)
    return np.where(too_large, np.nextafter(near, np.float32(0)), near)


def accumulate(a: np.ndarray, b: np.ndarray, *, step: int) -> np.ndarray:
    """FP32 accumulation, `step` exact products at a time, every sum truncated: a harsh GEMM."""
    total = np.zeros((a.shape[0], b.shape[1]), np.float32)
    for k in range(0, a.shape[1], step):
        part = a[:, k : k + step].astype(np.float64) @ b[k : k + step].astype(np.float64)
        total = truncate(total.astype(np.float64) + part)
    return total


# --- the bound -----------------------------------------------------------------------------


def test_the_bound_grows_with_the_root_of_k() -> None:
    assert error_factor(1) == SAFETY * UNIT_ROUNDOFF
    for k in (8, 1000, 8192):
        assert error_factor(4 * k) == pytest.approx(2 * error_factor(k))


@pytest.mark.parametrize("k", [8, 96, 1000, 16384])
def test_honest_fp32_accumulation_passes(k: int) -> None:
    """C3: the same tolerance must not reject a right kernel at large K."""
    a, b, product = inputs(8, 24, k)
    for step in (8, 16):
        assert compare(accumulate(a, b, step=step), product, a, b).violations == 0
    assert compare(product.astype(np.float32), product, a, b).violations == 0


def test_all_positive_inputs_pass_too() -> None:
    """Truncation then errs in one direction only; the norms grow with the sums."""
    rng = np.random.default_rng(3)
    a, b = (
        rng.uniform(0, 1, s).astype(np.float16).astype(np.float32) for s in ((8, 4096), (4096, 8))
    )
    product = a.astype(np.float64) @ b.astype(np.float64)
    assert compare(accumulate(a, b, step=16), product, a, b).violations == 0


@pytest.mark.parametrize("k", [8, 96, 1000, 8192])
@pytest.mark.parametrize("lost", [0, -1])
def test_a_missing_product_is_detected(k: int, lost: int) -> None:
    """A kernel that skips one k (a wrong predicate at the edge) must never pass."""
    a, b, product = inputs(32, 48, k)
    short = product - np.outer(a[:, lost], b[lost]).astype(np.float64)
    found = compare(short.astype(np.float32), product, a, b)
    assert found.violations > 32 * 48 / 4
    assert found.non_finite == 0


@pytest.mark.parametrize("k", [64, 1000])
def test_fp16_accumulation_is_detected(k: int) -> None:
    """C2: a kernel that accumulates in FP16 is wrong, however plausible its numbers look."""
    a, b, product = inputs(16, 16, k)
    total = np.zeros((16, 16), np.float16)
    for i in range(k):
        total = (total.astype(np.float32) + np.outer(a[:, i], b[i])).astype(np.float16)
    assert compare(total.astype(np.float32), product, a, b).violations > 128


def test_swapped_operands_are_detected() -> None:
    """C5: transposed garbage."""
    a, b, product = inputs(64, 64, 32)
    assert compare(product.T.astype(np.float32), product, a, b).violations > 64 * 60


# --- C1: NaN -------------------------------------------------------------------------------


@pytest.mark.parametrize("half", [False, True])
@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_one_element_that_is_not_finite_fails_and_is_located(half: bool, bad: float) -> None:
    a, b, product = inputs(16, 24, 64)
    d = product.astype(np.float16 if half else np.float32)
    d[3, 5] = bad
    found = compare(d, product, a, b)
    assert (found.violations, found.non_finite, found.first) == (1, 1, (3, 5))
    d[:] = bad
    assert compare(d, product, a, b).violations == 16 * 24


# --- C2: FP16 output -----------------------------------------------------------------------


def ones(k: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    a, b = np.ones((2, k), np.float32), np.ones((k, 3), np.float32)
    return a, b, np.full((2, 3), float(k))


@pytest.mark.parametrize(
    ("k", "right", "overflows"), [(65504, 65504.0, 0), (65520, math.inf, 6), (65536, math.inf, 6)]
)
def test_overflow_of_fp16_is_right_and_counted(k: int, right: float, overflows: int) -> None:
    a, b, product = ones(k)
    with np.errstate(over="ignore"):
        d = product.astype(np.float16)
    assert (d == right).all()
    found = compare(d, product, a, b)
    assert (found.violations, found.overflows) == (0, overflows)
    with np.errstate(over="ignore"):
        assert compare(-d, product, a, b).violations == 6, "infinity of the wrong sign"
    assert compare(np.full((2, 3), math.nan, np.float16), product, a, b).violations == 6
    single = product.astype(np.float32)
    assert compare(single, product, a, b).violations == 0
    assert compare(np.full_like(single, math.inf), product, a, b).violations == 6


def test_a_stalled_fp16_accumulator_is_wrong() -> None:
    """2048 + 1 is 2048 in FP16, so K=4096 stalls at 2048."""
    a, b, product = ones(4096)
    assert compare(product.astype(np.float16), product, a, b).violations == 0
    assert compare(np.full((2, 3), 2048, np.float16), product, a, b).violations == 6


@pytest.mark.parametrize("k", [1000, 16384])
def test_rounding_to_fp16_passes_whatever_the_size(k: int) -> None:
    """C3: half an ulp of FP16 is 1 between 2048 and 4096."""
    a, b, product = inputs(16, 16, k)
    for scale in (1.0, 30.0):
        d = (scale * product).astype(np.float16)
        assert compare(d, scale * product, np.float32(scale) * a, b).violations == 0


# --- inputs --------------------------------------------------------------------------------


def test_splitmix64_is_the_published_generator() -> None:
    """Outputs of the reference implementation for seeds 0 and 1234567."""
    index = np.arange(3, dtype=np.uint64)
    assert [int(x) for x in splitmix64(0, index)][:2] == [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4]
    assert [int(x) for x in splitmix64(1234567, index)] == [
        6457827717110365317, 3203168211198807973, 9817491932198370423,
    ]  # fmt: skip


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6), st.integers(0, 2))
def test_streams_of_operands_stay_in_64_bits_and_differ(seed: int, number: int, part: int) -> None:
    value = stream_seed(seed, number, part)
    assert 0 <= value < 2**64
    assert value != stream_seed(seed, number + 1, part)


@pytest.mark.parametrize(
    ("distribution", "low", "high", "spread"),
    [("uniform", -1, 1, 3**-0.5), ("integers", -2, 2, 2**0.5), ("normal", -6, 6, 1)],
)
def test_distributions_have_their_range_and_spread(
    distribution: Distribution, low: float, high: float, spread: float
) -> None:
    values = draw(distribution, splitmix64(9, np.arange(200_000, dtype=np.uint64)))
    assert values.dtype == np.float32
    assert values.min() >= low
    assert values.max() <= high
    assert values.mean() == pytest.approx(0, abs=0.01)
    assert values.std() == pytest.approx(spread, rel=0.01)


def test_padding_is_zero_and_layouts_hold_other_shapes() -> None:
    a, b = operands(GemmProblem(5, 6, 7, layout="nn", lda=8), "uniform", 0)
    assert a.shape == (5, 8)
    assert b.shape == (7, 6)
    assert (a[:, 7:] == 0).all()
    packed, transposed = operands(GemmProblem(5, 6, 7), "uniform", 0)
    assert (packed == a[:, :7]).all(), "padding moves no value"
    assert transposed.shape == (6, 7)
