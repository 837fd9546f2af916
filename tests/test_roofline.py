"""The roofline model: every number of the lecture note, and its formulas against counted accesses.

Each test names the section of the lecture note (`004`) whose numbers it holds.
"""

from __future__ import annotations

import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cutlass_study import roofline
from cutlass_study.counting import count_no_reuse, count_tiled, small_integers
from cutlass_study.gpus import GpuLimits
from cutlass_study.occupancy import ctas_by_registers, ctas_by_shared_memory, occupancy
from cutlass_study.roofline import FP32, ElementTypes, Machine, Traffic, Work
from cutlass_study.waves import wave_count, wave_efficiency

ROOT = Path(__file__).resolve().parent.parent
KIB = 1024

LECTURE = Work(4096, 4096, 4096)
MACHINE = Machine(peak_tflops=20, bandwidth_gbs=1000)
SMALL = Work(4, 4, 4)
SMALL_TILE = (2, 2, 2)


def cube(extent: int) -> tuple[int, int, int]:
    return extent, extent, extent


def traffic_of(tile: int | None) -> Traffic:
    return roofline.tiled(LECTURE, cube(tile)) if tile else roofline.no_reuse(LECTURE)


def roof_of(tile: int | None):
    return roofline.roof(LECTURE.flops, traffic_of(tile), MACHINE)


def intensity(work: Work, traffic: Traffic) -> float:
    return work.flops / traffic.total_bytes


# --- 2 and 3: sizes, vector add -----------------------------------------------------------------


def test_matrix_sizes():  # 2.3
    assert LECTURE.output_write_bytes == 67_108_864 == 64 * KIB**2
    assert roofline.one_pass(LECTURE).total_bytes == 192 * KIB**2


def test_vector_add_has_a_twelfth():  # 3.2, 14.2 question 1
    for length in (1, 1000, 1 << 20):
        flops, traffic = roofline.vector_add(length)
        assert (flops, traffic.total_bytes) == (length, 12 * length)
        assert flops / traffic.total_bytes == pytest.approx(1 / 12)
        assert f"{flops / traffic.total_bytes:.5f}" == "0.08333"


def test_flops_of_a_product_counted_in_two_ways():  # 3.2 has 2N³−N², 7.1 has 2N³ and N²(2N−1)
    for extent in (4, 4096):
        work = Work(*cube(extent))
        assert work.flops == 2 * extent**3
        assert work.flops_without_first_addition == 2 * extent**3 - extent**2


# --- 4 and 5: the roofline ----------------------------------------------------------------------


def test_ridge():  # 4.1
    assert MACHINE.ridge_flop_per_byte == 20


@pytest.mark.parametrize("tile", [None, 32, 64, 128])
def test_ceiling_is_work_over_ideal_time(tile):  # 4.1: both forms of the bound agree
    roof = roof_of(tile)
    assert roof.ceiling_tflops == pytest.approx(LECTURE.flops / roof.ideal_ms / 1e9, rel=1e-14)
    assert roof.ideal_ms == max(roof.compute_ms, roof.memory_ms)


def test_memory_ceiling_is_linear_and_the_peak_level():  # 5.1, 5.2
    below, twice, beyond, far = (
        roofline.roof(intensity * 1000, Traffic(1000, 0), MACHINE) for intensity in (4, 8, 40, 80)
    )
    assert twice.memory_ceiling_tflops == 2 * below.memory_ceiling_tflops
    assert twice.ceiling_tflops / below.ceiling_tflops == 2  # slope 1 where both axes are logs
    assert beyond.ceiling_tflops == far.ceiling_tflops == 20


def test_less_traffic_in_the_compute_bound_part_saves_no_time():  # 5.2
    one_pass = roofline.roof(LECTURE.flops, roofline.one_pass(LECTURE), MACHINE)
    assert one_pass.ideal_ms == roof_of(128).ideal_ms


def test_the_ridge_itself_counts_as_compute_bound():  # 8.4 asks for I ≥ 20
    assert roofline.roof(20_000, Traffic(1000, 0), MACHINE).bound == "compute"
    assert roofline.roof(19_999, Traffic(1000, 0), MACHINE).bound == "memory"


# --- 6: the 4×4 example by 2×2 tiles ------------------------------------------------------------


@pytest.fixture(scope="module")
def counted():
    return count_tiled(*small_integers(4, 4, 4), SMALL_TILE)


def test_block_of_64_by_8_by_64_threads():  # 6.1
    assert (64 * 64) // 64 == 8 * 8 == roofline.accumulators_per_thread((64, 64, 8), 64)
    step = roofline.step((64, 64, 8))
    assert step.read_bytes == (64 * 8 + 8 * 64) * 4


def test_one_k_step(counted):  # 6.2.1, 6.2.5, 13.1
    step = roofline.step(SMALL_TILE)
    assert (step.flops, step.read_bytes) == (16, 32)
    for one in counted.steps:
        assert (one.loaded_elements, one.flops) == (8, 16)


def test_a_loaded_element_is_used_by_a_row_or_a_column_of_outputs(counted):  # 6.2.1, 13.1
    assert roofline.uses_per_load(SMALL_TILE) == (2, 2)
    for one in counted.steps:
        assert (one.a_uses == 2).all()
        assert (one.b_uses == 2).all()


def test_one_output_tile(counted):  # 6.2.2, 6.2.5
    assert roofline.k_steps(SMALL, SMALL_TILE) == 2
    first = [one for one in counted.steps if (one.output_row, one.output_column) == (0, 0)]
    assert [one.first_k for one in first] == [0, 2]
    loaded = sum(one.loaded_elements for one in first)
    assert (loaded, loaded * 4, sum(one.flops for one in first)) == (16, 64, 32)
    tile = roofline.tiled(Work(2, 2, 4), SMALL_TILE)
    assert (tile.read_bytes, tile.write_bytes, tile.total_bytes) == (64, 16, 80)


def test_whole_4x4_by_tiles(counted):  # 6.2.3, 6.2.5, 13.1
    assert roofline.output_tiles(SMALL, SMALL_TILE) == 4
    traffic = roofline.tiled(SMALL, SMALL_TILE)
    assert (traffic.read_bytes, traffic.write_bytes, traffic.total_bytes) == (256, 64, 320)
    assert SMALL.flops == counted.flops == 128
    assert counted.traffic(FP32) == traffic
    assert (counted.input_elements, counted.output_writes.sum()) == (64, 16)
    assert counted.a_reads.size + counted.b_reads.size == 32  # distinct elements
    assert (counted.a_reads == 2).all()
    assert (counted.b_reads == 2).all()
    assert (counted.output_writes == 1).all()


def test_whole_4x4_without_reuse():  # 6.2.3, 6.2.4, 10.3
    traffic = roofline.no_reuse(SMALL)
    assert (traffic.read_bytes, traffic.write_bytes, traffic.total_bytes) == (512, 64, 576)
    counted = count_no_reuse(*small_integers(4, 4, 4))
    assert counted.traffic(FP32) == traffic
    assert (counted.input_elements, counted.flops) == (128, 128)
    assert (counted.a_reads == 4).all()
    assert (counted.b_reads == 4).all()


def test_4x4_compared():  # 6.2.5, 13.1
    before, after = roofline.no_reuse(SMALL), roofline.tiled(SMALL, SMALL_TILE)
    assert after.read_bytes * 2 == before.read_bytes
    assert after.write_bytes == before.write_bytes
    assert f"{after.total_bytes / before.total_bytes:.1%}" == "55.6%"
    assert f"{1 - after.total_bytes / before.total_bytes:.1%}" == "44.4%"
    assert before.total_bytes / after.total_bytes == 1.8
    assert f"{intensity(SMALL, before):.4f}" == "0.2222"
    assert f"{intensity(SMALL, before):.6f}" == "0.222222"
    assert intensity(SMALL, after) == 0.4


# --- 7 and 8: 4096³ -----------------------------------------------------------------------------


def test_work_and_compute_time():  # 7.1, 7.4, 8.2
    assert LECTURE.flops == 137_438_953_472
    assert roof_of(None).compute_ms == pytest.approx(6.8719476736, rel=1e-15)
    assert f"{LECTURE.flops / 1e9:.3f}" == "137.439"
    assert f"{LECTURE.flops / 1e9:.6f}" == "137.438953"


def test_no_reuse_in_full():  # 7.2, 7.3, 7.4
    traffic = roofline.no_reuse(LECTURE)
    assert traffic == Traffic(549_755_813_888, 67_108_864)
    assert traffic.total_bytes == 549_822_922_752
    assert roof_of(None).memory_ms == pytest.approx(549.822922752, rel=1e-15)
    closed_form = 1 / (4 + 2 / 4096)
    assert roof_of(None).intensity_flop_per_byte == pytest.approx(closed_form, rel=1e-15)
    assert f"{traffic.total_bytes / 1e9:.3f}" == "549.823"


@pytest.mark.parametrize(
    ("tile", "tiles", "steps"), [(32, 16384, 128), (64, 4096, 64), (128, 1024, 32)]
)
def test_tile_counts(tile, tiles, steps):  # 8.1
    assert roofline.output_tiles(LECTURE, cube(tile)) == tiles
    assert roofline.k_steps(LECTURE, cube(tile)) == steps
    assert roofline.uses_per_load(cube(tile)) == (tile, tile)
    assert traffic_of(tile).read_bytes == tiles * steps * 8 * tile**2
    closed_form = 4096 * tile / (4 * 4096 + 2 * tile)
    assert intensity(LECTURE, traffic_of(tile)) == pytest.approx(closed_form, rel=1e-15)


TABLE_8_2 = [
    (None, 549_755_813_888, 549_822_922_752, "549.822923", "0.249969"),
    (32, 17_179_869_184, 17_246_978_048, "17.246978", "7.968872"),
    (64, 8_589_934_592, 8_657_043_456, "8.657043", "15.875969"),
    (128, 4_294_967_296, 4_362_076_160, "4.362076", "31.507692"),
]
TABLE_8_3 = [
    (None, "549.822923", "0.249969", "549.822923", "memory", "1.000"),
    (32, "17.246978", "7.968872", "17.246978", "memory", "31.879"),
    (64, "8.657043", "15.875969", "8.657043", "memory", "63.512"),
    (128, "4.362076", "20.000000", "6.871948", "compute", "80.010"),
]


@pytest.mark.parametrize(("tile", "read", "total", "gigabytes", "flop_per_byte"), TABLE_8_2)
def test_traffic_table(tile, read, total, gigabytes, flop_per_byte):  # 8.2, 13.2
    traffic = traffic_of(tile)
    assert traffic == Traffic(read, 67_108_864)
    assert traffic.total_bytes == total
    assert f"{total / 1e9:.6f}" == gigabytes
    assert f"{roof_of(tile).intensity_flop_per_byte:.6f}" == flop_per_byte


@pytest.mark.parametrize(("tile", "memory", "ceiling", "ideal", "bound", "speedup"), TABLE_8_3)
def test_roofline_table(tile, memory, ceiling, ideal, bound, speedup):  # 7.3, 8.3, 13.2, 5.1
    roof = roof_of(tile)
    assert f"{roof.compute_ms:.6f}" == "6.871948"
    assert f"{roof.memory_ms:.6f}" == memory
    assert f"{roof.ceiling_tflops:.6f}" == ceiling
    assert f"{roof.ideal_ms:.6f}" == ideal
    assert roof.bound == bound
    assert f"{roof_of(None).ideal_ms / roof.ideal_ms:.3f}" == speedup


def test_from_64_to_128():  # 8.3, 13.2, 14.2 question 2
    assert f"{roof_of(128).memory_ceiling_tflops:.6f}" == "31.507692"
    assert f"{roof_of(64).ideal_ms / roof_of(128).ideal_ms:.3f}" == "1.260"
    assert traffic_of(64).read_bytes == 2 * traffic_of(128).read_bytes


def test_doubling_the_tile_nearly_doubles_the_intensity():  # 8.1
    for tile in (32, 64):
        ratio = intensity(LECTURE, traffic_of(2 * tile)) / intensity(LECTURE, traffic_of(tile))
        assert 1.98 < ratio < 2
        assert intensity(LECTURE, traffic_of(tile)) == pytest.approx(tile / 4, rel=0.01)


def test_smallest_compute_bound_tile():  # 8.4
    edge = roofline.compute_bound_tile(LECTURE, MACHINE)
    assert edge == pytest.approx(float(Fraction(327_680, 4056)), rel=1e-14)
    assert edge == pytest.approx(80 * 4096 / (4096 - 40), rel=1e-14)
    assert f"{edge:.3f}" == "80.789"
    without_writes = Work(4096, 4096, 4096, ElementTypes(4, 4, 0))
    assert roofline.compute_bound_tile(without_writes, MACHINE) == pytest.approx(80)
    assert [tile for tile in (32, 64, 128) if roof_of(tile).bound == "compute"] == [128]


def test_smallest_whole_tile_is_82_not_81():  # beyond 8.4: 51 passes at T=81, 50 at T=82
    assert roofline.compute_bound_whole_tile(LECTURE, MACHINE) == 82
    assert [roof_of(tile).bound for tile in (80, 81, 82)] == ["memory", "memory", "compute"]


def test_one_pass():  # 8.5
    traffic = roofline.one_pass(LECTURE)
    assert traffic.total_bytes == 12 * 4096**2 == 201_326_592
    assert f"{intensity(LECTURE, traffic):.3f}" == "682.667"
    assert intensity(LECTURE, traffic) == pytest.approx(4096 / 6, rel=1e-15)


def test_code_of_section_10_1():  # 10.1: tile=1 is no reuse
    for tile in (1, 32, 64, 128):
        total = 8 * 4096**3 // tile + 4 * 4096**2
        assert traffic_of(None if tile == 1 else tile).total_bytes == total
    assert traffic_of(1) == traffic_of(None)


def test_summary_numbers():  # 15.2
    assert [f"{traffic_of(t).total_bytes / 1e9:.3f}" for t in (None, 32, 64, 128)] == [
        "549.823",
        "17.247",
        "8.657",
        "4.362",
    ]
    assert [f"{roof_of(t).ideal_ms:.3f}" for t in (None, 32, 64, 128)] == [
        "549.823",
        "17.247",
        "8.657",
        "6.872",
    ]


# --- 9: on-chip space, occupancy ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("tile", "operand", "inputs", "total"),
    [(32, 4, 8, 12), (64, 16, 32, 48), (128, 64, 128, 192)],
)
def test_buffers(tile, operand, inputs, total):  # 9.1, 13.2
    """Sizes in KiB; the partial sums take as much as one operand."""
    single, double = (roofline.buffers(cube(tile), copies=copies) for copies in (1, 2))
    assert (single.a_bytes, single.b_bytes) == (operand * KIB, operand * KIB)
    assert single.input_bytes == inputs * KIB == 8 * tile**2
    assert single.accumulator_bytes == operand * KIB == 4 * tile**2
    assert single.total_bytes == total * KIB
    assert double.input_bytes == 16 * tile**2  # 16, 64, 256 KiB
    assert double.accumulator_bytes == single.accumulator_bytes


def test_least_state_without_reuse():  # 9.1
    state = roofline.buffers((1, 1, 1))
    assert (state.a_bytes, state.b_bytes, state.input_bytes) == (4, 4, 8)
    assert (state.accumulator_bytes, state.total_bytes) == (4, 12)


def test_doubling_the_tile_takes_four_times_the_space():  # 9.2.6, 13.2, 15.3
    for tile in (32, 64):
        small, large = roofline.buffers(cube(tile)), roofline.buffers(cube(2 * tile))
        assert large.input_bytes == 4 * small.input_bytes
        assert large.accumulator_bytes == 4 * small.accumulator_bytes
        assert traffic_of(tile).read_bytes == 2 * traffic_of(2 * tile).read_bytes


# The made-up SM of section 9.2.3: no reserve, no fine allocation units.
LECTURE_SM = GpuLimits("sm_80", 96 * KIB, 96 * KIB, 64, 16, smem_reserved_per_block=0)


def test_occupancy_falls_from_3_blocks_to_1():  # 9.2.2, 9.2.3
    assert 16_384 // 256 == 64  # registers per thread
    assert ctas_by_shared_memory(32 * KIB, LECTURE_SM) == 3
    assert ctas_by_registers(64, 256, LECTURE_SM) == 4
    assert LECTURE_SM.warps_per_sm // 8 == 2048 // 256 == 8
    before = occupancy(64, 32 * KIB, 256, LECTURE_SM)
    assert (before.ctas_per_sm, before.occupancy, before.limiter) == (3, 0.375, "shared memory")
    after = occupancy(64, 64 * KIB, 256, LECTURE_SM)
    assert (after.ctas_per_sm, after.occupancy, after.limiter) == (1, 0.125, "shared memory")


def test_whole_blocks_only():  # 9.2.1, 9.2.2
    hundred = GpuLimits("sm_80", 100 * KIB, 100 * KIB, 64, 16, smem_reserved_per_block=0)
    assert 100 / 32 == 3.125
    assert ctas_by_shared_memory(32 * KIB, hundred) == 3
    assert 256 // 32 == 8  # warps of a block
    assert 32 / 64 == 0.5  # occupancy of 32 resident warps


@pytest.mark.parametrize(
    ("tile", "outputs", "each"), [(32, 1024, 4), (64, 4096, 16), (128, 16_384, 64)]
)
def test_partial_sums_per_thread(tile, outputs, each):  # 9.3, 11.1
    assert tile * tile == outputs
    assert roofline.accumulators_per_thread(cube(tile), 256) == each


@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 300), st.integers(1, 300))
def test_the_k_tile_cancels(m, n, k, other_k):  # 9.4
    expected = m * n / (2 * (m + n))
    assert roofline.step((m, n, k)).flops == 2 * m * n * k
    assert roofline.step((m, n, k)).read_bytes == 4 * k * (m + n)
    assert roofline.step((m, n, k)).input_intensity_flop_per_byte == pytest.approx(expected)
    work = Work(1000, 900, 800)
    assert roofline.tiled(work, (m, n, k)) == roofline.tiled(work, (m, n, other_k))


@pytest.mark.parametrize(
    ("depth", "buffer", "flops", "steps"), [(32, 16, 262_144, 128), (64, 32, 524_288, 64)]
)
def test_exercise_3(depth, buffer, flops, steps):  # 12 problem 3, 13.3
    tile = (64, 64, depth)
    assert roofline.buffers(tile).input_bytes == buffer * KIB == 512 * depth
    assert roofline.buffers(tile).accumulator_bytes == 16 * KIB
    assert roofline.step(tile).flops == flops
    assert roofline.k_steps(LECTURE, tile) == steps
    assert steps * roofline.step(tile).read_bytes == 2_097_152
    one_tile = roofline.tiled(Work(64, 64, 4096), tile)
    assert one_tile == Traffic(2_097_152, 16_384)
    assert roofline.tiled(LECTURE, tile) == traffic_of(64)


# --- 10: formulas against counted accesses ------------------------------------------------------


@pytest.mark.parametrize("extent", [2, 4, 8])
def test_the_documents_own_check(extent):  # 10.3: N = 2, 4, 8 and every tile that divides
    a, b = small_integers(*cube(extent))
    work = Work(*cube(extent))
    plain = count_no_reuse(a, b)
    assert plain.traffic(FP32) == roofline.no_reuse(work)
    assert plain.flops == work.flops
    for tile in (size for size in range(1, extent + 1) if extent % size == 0):
        counted = count_tiled(a, b, cube(tile))
        assert (counted.product == a @ b).all()
        assert counted.traffic(FP32) == roofline.tiled(work, cube(tile))
        assert counted.flops == work.flops


extents = st.integers(1, 6)
tile_extents = st.integers(1, 8)


@settings(max_examples=120, deadline=None)
@given(
    st.tuples(extents, extents, extents),
    st.tuples(tile_extents, tile_extents, tile_extents),
    st.integers(0, 2**32 - 1),
)
def test_counting_confirms_the_formulas_for_any_shape(shape, tile, seed):
    m, n, k = shape
    types = ElementTypes(2, 4, 8)
    work = Work(m, n, k, types)
    a, b = small_integers(m, n, k, seed)
    counted, plain = count_tiled(a, b, tile), count_no_reuse(a, b)
    assert (counted.product == a @ b).all()
    assert (plain.product == a @ b).all()
    assert counted.traffic(types) == roofline.tiled(work, tile)
    assert plain.traffic(types) == roofline.no_reuse(work)
    assert counted.flops == plain.flops == work.flops
    assert (counted.output_writes == 1).all()  # never a partial sum
    assert len(counted.steps) == roofline.output_tiles(work, tile) * roofline.k_steps(work, tile)
    least, most = roofline.one_pass(work), roofline.no_reuse(work)
    assert least.total_bytes <= counted.traffic(types).total_bytes <= most.total_bytes


def test_one_tile_over_everything_is_one_pass():
    counted = count_tiled(*small_integers(3, 5, 7), (8, 8, 2))
    assert counted.traffic(FP32) == roofline.one_pass(Work(3, 5, 7))
    assert np.unique(counted.a_reads).tolist() == np.unique(counted.b_reads).tolist() == [1]


# --- beyond the lecture -------------------------------------------------------------------------


def test_c_is_traffic_only_where_it_is_read():  # case C8
    plain, with_c = Work(8, 16, 4), Work(8, 16, 4, reads_c=True)
    for model in (roofline.no_reuse, roofline.one_pass):
        assert model(with_c).read_bytes - model(plain).read_bytes == 8 * 16 * 4
        assert model(with_c).write_bytes == model(plain).write_bytes


@settings(max_examples=200)
@given(
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.integers(1, 5000),
    st.sampled_from([FP32, ElementTypes(2, 4, 4), ElementTypes(2, 4, 2)]),
    st.floats(0.5, 500),
)
def test_compute_bound_tile_is_the_edge(m, n, k, types, ridge):
    work, machine = Work(m, n, k, types), Machine(ridge, 1000)
    edge = roofline.compute_bound_tile(work, machine)
    whole = roofline.compute_bound_whole_tile(work, machine)
    if edge is None:
        least = roofline.roof(work.flops, roofline.one_pass(work), machine)
        assert least.memory_ms > least.compute_ms * (1 - 1e-9)
        assert whole is None
        return
    assert whole is not None
    assert edge <= whole + 1e-9
    assert whole <= max(m, n)
    tiles = [(extent, extent, 1) for extent in (whole, whole - 1) if extent]
    roofs = [roofline.roof(work.flops, roofline.tiled(work, tile), machine) for tile in tiles]
    assert roofs[0].compute_ms >= roofs[0].memory_ms * (1 - 1e-9)
    assert all(roof.bound == "memory" for roof in roofs[1:])


def test_a_narrow_gemm_is_memory_bound_with_any_tile():
    assert roofline.compute_bound_tile(Work(4096, 8, 4096), MACHINE) is None
    assert roofline.compute_bound_whole_tile(Work(4096, 8, 4096), MACHINE) is None


def test_wave_quantization():  # design, section 8
    tiles = roofline.output_tiles(LECTURE, (128, 128, 32))
    assert tiles == 1024
    assert wave_count(tiles, 132) == 8
    assert f"{wave_efficiency(tiles, 132):.2%}" == "96.97%"
    assert wave_efficiency(132 * 2 * 3, 132, 2) == 1
    assert wave_efficiency(133, 132) == pytest.approx(133 / 264)
    with pytest.raises(ValueError, match="at least 1"):
        wave_count(0, 132)


@given(st.integers(1, 10**6), st.integers(1, 200), st.integers(1, 32))
def test_waves_hold_every_tile_and_none_is_empty(tiles, sm_count, ctas_per_sm):
    places = sm_count * ctas_per_sm
    waves = wave_count(tiles, sm_count, ctas_per_sm)
    assert (waves - 1) * places < tiles <= waves * places
    assert 0 < wave_efficiency(tiles, sm_count, ctas_per_sm) <= 1


def test_the_model_imports_neither_pandas_nor_what_measures():
    code = (
        "import sys; from cutlass_study import roofline, counting, waves, roofline_rows, "
        "roofline_formats; bad = [m for m in sys.modules if m.split('.')[0] in ('cuda', 'pandas', "
        "'pynvml', 'nvmath', 'cutlass_library', 'matplotlib')]; sys.exit(', '.join(bad) or 0)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
