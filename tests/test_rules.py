"""Legality of sm80 kernels: every verdict below was taken from the compiler, not from the rules.

"Wrong" kernels compile from CUTLASS alone; that they load, read or store a part of their tile was
seen by running CUTLASS's own iterators for all threads of a CTA on the host.
"""

from __future__ import annotations

import pytest

from cutlass_study import sm80_resources
from cutlass_study.config import GemmConfig, GemmProblem, parse_shape
from cutlass_study.gpus import limits_of
from cutlass_study.rules import SM80_RULES, sm80_reason
from cutlass_study.sm80_resources import sm80_smem_bytes
from cutlass_study.space import sm80, square
from cutlass_study.thread_maps import LoadMap, store_map_covers

HOPPER, ADA = limits_of("sm_90a"), limits_of("sm_89")

# tile, warp tile, stages, epilogue width, alignment, layout, output
FEASIBLE = """
    64x16x32   64x16x32   2 4 2 tn f32
    16x64x64   16x32x32   2 4 8 tn f16
    64x16x32   64x16x32   3 1 8 nn f32
    32x32x32   16x16x32   3 1 8 tn f32
    32x32x32   16x16x32   3 2 8 tn f32
    32x32x32   16x16x32   3 4 8 tn f32
    32x32x32   16x16x32   3 4 8 tn f16
    32x64x64   32x64x32   2 8 1 nn f16
    64x64x32   64x8x32    3 1 8 tn f32
    64x64x32   32x32x32   2 4 1 tn f32
    64x32x64   16x16x64   2 1 8 tn f32
    32x64x64   32x16x64   5 4 8 tn f32
    64x32x32   32x32x32   3 4 8 nn f32
    64x32x64   32x32x64   2 4 8 nn f32
    32x128x64  32x32x64   2 2 1 tn f32
    128x32x64  64x32x32   5 2 4 nn f32
    64x128x64  64x32x64   2 8 1 tn f16
    128x64x32  32x32x32   6 2 2 nn f32
    128x96x64  64x48x64   4 1 4 tn f16
    96x128x32  48x64x32   3 4 8 tn f32
    64x256x32  32x64x32   3 4 8 nn f16
    128x128x64 64x64x64   4 1 2 nn f16
    128x256x32 64x32x32   2 8 1 tn f16
    128x256x32 16x128x32  5 2 8 nn f16
    256x128x32 16x128x32  2 4 8 tn f32
"""

REFUSED = {
    "warp_divides_tile": """
        48x64x64   32x64x64  6 8 4 nn f16
        80x64x64   32x64x64  5 4 8 tn f32
        128x64x32  48x64x32  3 2 8 tn f16
        160x128x32 64x64x32  3 4 8 tn f32
    """,
    # wrong: 16x8 instructions are dropped, or ldmatrix leaves columns out
    "instruction_divides_warp": """
        24x16x64  24x16x64 4 4 8 tn f32
        32x48x32  32x24x32 4 4 8 tn f32
        64x64x64  8x64x64  5 4 8 nn f32
        64x64x32  64x8x32  3 1 8 nn f32
        48x128x64 24x64x64 2 2 8 tn f16
    """,
    "k_tile": """
        64x64x128 64x64x128 3 2 2 nn f32
        16x128x96 16x64x96  3 2 8 tn f16
    """,
    "two_warp_k_steps": """
        32x64x32  32x64x16 3 2 4 tn f32
        64x128x32 64x64x16 2 1 4 nn f32
        128x128x16 64x64x16 3 4 8 tn f32
    """,
    "thread_count": "256x256x64 32x32x64 2 1 4 nn f32",
    # these compile, with thousands of bytes of spills or more registers than an SM has
    "accumulator_registers": """
        64x128x32  64x128x32 4 1 2 nn f32
        128x128x32 128x64x32 2 4 2 tn f32
        256x256x64 32x128x32 3 1 2 tn f32
    """,
    "shared_memory": "128x256x64 64x32x64 5 4 2 tn f32",
    # the first two do not compile; the others are wrong: a warp starts at a column it can't read
    "row_major_b": """
        32x96x32   32x48x32  3 1 4 nn f32
        96x96x32   48x48x32  5 2 8 nn f32
        64x64x64   64x16x32  3 1 8 nn f32
        64x32x32   32x16x32  3 4 8 nn f32
        64x192x32  64x48x32  6 1 8 nn f32
        256x128x32 128x16x32 2 2 8 nn f32
    """,
    # the last two do not compile; the others are wrong: rows of A or B are not loaded
    "load_thread_map": """
        192x128x64 64x64x64 4 4 4 tn f16
        96x320x32  32x64x32 2 1 2 tn f32
        48x64x32   16x64x32 2 1 1 tn f32
        320x64x32  64x64x32 2 1 8 nn f16
        144x128x64 48x32x64 3 2 8 nn f32
        192x48x32  32x16x32 4 4 8 tn f16
        64x32x32   32x8x32  3 1 8 tn f32
    """,
    "load_predicates": """
        48x64x64  48x64x64  2 2 1 tn f32
        64x128x64 64x64x64  2 4 1 nn f32
        256x32x32 128x32x32 2 4 1 tn f32
    """,
    # the first three do not compile; the others are wrong: columns or rows of D are not stored
    "epilogue_thread_map": """
        16x16x64  16x16x32  2 4 1 tn f32
        32x32x32  16x16x32  3 8 8 tn f16
        64x64x32  32x16x32  3 8 8 tn f16
        32x96x64  32x48x32  6 2 8 tn f32
        96x48x32  48x48x32  2 2 8 tn f32
        192x96x32 64x48x32  4 2 8 tn f16
        256x96x32 128x48x32 3 2 8 tn f32
    """,
    # wrong: half of the columns trade places
    "mixed_epilogue": """
        32x128x32 32x128x32 3 8 8 tn f16
        48x128x32 48x128x32 6 8 8 tn f16
        16x256x32 16x128x32 2 8 4 nn f16
    """,
    "cp_async_width": """
        128x128x64 64x64x32 6 2 1 nn f32
        256x128x32 128x32x32 4 4 1 tn f32
    """,
}
RULES = {rule.__name__: rule for rule in SM80_RULES}


def case(line: str) -> tuple[GemmConfig, GemmProblem]:
    tile, warp, stages, width, alignment, layout, output = line.split()
    config = sm80(
        parse_shape(tile, "tile"),
        int(stages),
        int(width),
        warp=parse_shape(warp, "warp"),
        alignment=int(alignment),
    )
    return config, GemmProblem(8192, 8192, 8192, layout, output)  # type: ignore[arg-type]


def lines(table: str) -> list[str]:
    return [" ".join(line.split()) for line in table.strip().splitlines()]


REFUSED_LINES = [(rule, line) for rule, table in REFUSED.items() for line in lines(table)]


@pytest.mark.parametrize("line", lines(FEASIBLE))
def test_a_kernel_that_compiles_and_covers_its_tile_is_feasible(line: str) -> None:
    assert sm80_reason(*case(line), HOPPER) is None


@pytest.mark.parametrize(("rule", "line"), REFUSED_LINES)
def test_a_kernel_that_fails_is_refused_by_the_rule_it_breaks(rule: str, line: str) -> None:
    config, problem = case(line)
    reason = RULES[rule](config, problem, HOPPER)
    assert reason
    assert sm80_reason(config, problem, HOPPER) == reason
    assert any(character.isdigit() for character in reason), "a reason states the numbers"


def test_every_rule_has_a_verified_case() -> None:
    of_devices_and_problems = {
        "sm80_arch", "epilogue_access", "operand_alignment", "k_alignment", "output_alignment",
        "split_k_slices", "grid_rows",
    }  # fmt: skip
    assert set(REFUSED) | of_devices_and_problems == set(RULES)


# F1 and F2: the limit counts the larger of main loop and epilogue, in bytes of the device.
@pytest.mark.parametrize(
    ("tile", "stages", "smem_bytes", "fits_ada"),
    [
        ((256, 128, 64), 2, 98304, True),
        ((256, 128, 64), 3, 147456, False),
        ((256, 128, 64), 4, 196608, False),
        ((128, 128, 32), 2, 32768, True),
        ((128, 128, 32), 3, 49152, True),
        ((128, 128, 32), 4, 65536, True),
        ((128, 128, 64), 3, 98304, True),
        ((128, 128, 64), 4, 131072, False),
        ((256, 128, 32), 2, 49152, True),
        ((256, 128, 32), 3, 73728, True),
        ((256, 128, 32), 4, 98304, True),
    ],
)
def test_shared_memory_decides_at_the_byte(
    tile: tuple[int, int, int], stages: int, smem_bytes: int, fits_ada: bool
) -> None:
    config, problem = sm80(tile, stages), square(8192)
    assert sm80_smem_bytes(config, problem) == smem_bytes
    assert sm80_reason(config, problem, HOPPER) is None
    reason = sm80_reason(config, problem, ADA)
    if fits_ada:
        assert reason is None
    else:
        assert reason == f"needs {smem_bytes} B of shared memory, limit 101376 B"


def test_epilogue_memory_is_not_added_but_can_be_the_larger() -> None:
    usual, tall = sm80((128, 128, 32), 2, 4), sm80((256, 128, 32), 2, 4, warp=(16, 128, 32))
    assert sm80_resources.epilogue_bytes(usual, square(8192)) == 17408
    assert sm80_smem_bytes(usual, square(8192)) == sm80_resources.mainloop_bytes(usual)
    assert sm80_smem_bytes(tall, square(8192)) == 139264  # main loop: 49152
    assert sm80_resources.epilogue_bytes(sm80((128, 128, 32), 2, 1), square(8192)) == 8704


# F3 and F4: leading dimensions are what must be multiples of the access widths.
@pytest.mark.parametrize(
    ("shape", "alignment", "width", "output", "fine"),
    [
        ((4097, 4097, 4097), 8, 8, "f16", False),
        ((4096, 4100, 4096), 8, 8, "f16", False),
        ((4100, 4100, 4100), 4, 4, "f32", True),
        ((4098, 4098, 4098), 4, 4, "f32", False),
        ((4098, 4098, 4098), 2, 2, "f32", True),
        ((4097, 4097, 4097), 2, 2, "f32", False),
        ((4097, 4096, 4096), 8, 4, "f32", True),
        ((4096, 4097, 4096), 8, 4, "f32", False),
        ((4096, 4097, 4096), 8, 1, "f32", True),
        ((4096, 4096, 4097), 8, 4, "f32", False),
    ],
)
def test_alignment_of_the_problem(
    shape: tuple[int, int, int], alignment: int, width: int, output: str, fine: bool
) -> None:
    config = sm80((128, 128, 32), 3, width, alignment=alignment)
    problem = GemmProblem(*shape, output=output)  # type: ignore[arg-type]
    reason = sm80_reason(config, problem, ADA)
    assert (reason is None) == fine
    assert reason is None or "is not a multiple of" in reason


def test_a_padded_leading_dimension_does_not_make_an_odd_k_loadable() -> None:
    """On a GPU such a kernel ends in a misaligned address: K's residue comes first."""
    config = sm80((128, 128, 32), 3)
    padded = GemmProblem(4096, 4096, 4097, layout="nn", lda=4104)
    assert "K=4097 is not a multiple of alignment 8" in str(sm80_reason(config, padded, ADA))
    assert sm80_reason(config, GemmProblem(4096, 4096, 4096, lda=4104), ADA) is None
    reason = sm80_reason(config, GemmProblem(4096, 4096, 4097, lda=4104), ADA)
    assert reason == (
        "leading dimension 4097 of B is not a multiple of alignment 8; use alignment 1 with S=2"
    )


def test_stores_end_at_16_bytes() -> None:
    wide = sm80((128, 128, 32), 3, 16)
    assert "limit 16" in str(sm80_reason(wide, GemmProblem(64, 64, 64, output="f16"), ADA))
    assert "limit 16" in str(sm80_reason(sm80((128, 128, 32), 3, 8), square(64), ADA))
    assert sm80_reason(sm80((128, 128, 32), 3, 8), GemmProblem(64, 64, 64, output="f16"), ADA) is (
        None
    )


def test_split_k_needs_a_tile_a_slice_and_fp32_sums() -> None:
    config = sm80((128, 128, 32), 3, split_k=4)
    assert sm80_reason(config, GemmProblem(128, 128, 128), ADA) is None
    assert "exceeds the 3 K tiles" in str(sm80_reason(config, GemmProblem(128, 128, 96), ADA))
    assert "FP16" in str(sm80_reason(config, GemmProblem(128, 128, 128, output="f16"), ADA))


@pytest.mark.parametrize("warps", range(1, 17))
@pytest.mark.parametrize("rows", [32, 64, 96, 128, 192, 256])
def test_a_load_map_covers_when_simulated_threads_do(warps: int, rows: int) -> None:
    """`initial_offset` of PitchLinearWarpRakedThreadMap, thread by thread, for a crosswise tile."""
    for vectors in (4, 8):
        load = LoadMap(vectors, rows, vectors, warps)
        accesses = rows // load.access_rows
        down = min(warps, accesses)
        if warps // down > 1:  # no vectors are left for a second warp beside the first
            assert not load.covers
            continue
        each = accesses // down
        loaded = [
            (warp // (warps // down) * each + iteration) * load.access_rows + lane // vectors
            for warp in range(warps)
            for lane in range(0, 32, vectors)
            for iteration in range(each)
        ]
        assert load.covers == (sorted(loaded) == list(range(rows)))


def test_a_store_map_wants_a_power_of_two_of_warps_and_whole_accesses() -> None:
    assert [w for w in range(1, 20) if store_map_covers(64, w, 4, 4)] == [1, 2, 4]
    assert [w for w in range(1, 20) if store_map_covers(256, w, 4, 4)] == [1, 2, 4, 8]
    covered = [n for n in range(16, 257, 16) if store_map_covers(n, 2, 4, 4)]
    assert covered == [32, 64, 128, 192, 256]


@pytest.mark.slow
def test_rules_agree_with_the_compiler(tmp_path) -> None:
    """Feasible kernels compile without giant spills; refused ones do not (sm80_coverage.hpp)."""
    pytest.importorskip("cuda.bindings.nvrtc")
    from cutlass_study.cache import KernelCache
    from cutlass_study.compile import Job, compile_kernels
    from cutlass_study.families import source

    about_devices = {"thread_count", "accumulator_registers", "shared_memory"}  # these do compile
    refused = [lines(t) for rule, t in REFUSED.items() if rule not in about_devices]
    chosen = lines(FEASIBLE)[:7:2] + lines(FEASIBLE)[8:14:2] + lines(FEASIBLE)[24:]
    chosen += [line for table in refused for line in (table[0], table[-1])]
    jobs = {}
    for line in dict.fromkeys(chosen):
        unit = source(*case(line))
        assert unit
        jobs[line] = Job("sm80", "sm_89", unit)
    builds = compile_kernels(jobs.values(), KernelCache(tmp_path / "cache"), workers=2)
    for line, job in jobs.items():
        build, (config, problem) = builds[job], case(line)
        reason = sm80_reason(config, problem, HOPPER)
        assert (build.error is None) == (reason is None), f"{line}: {reason}, {build.error}"
        if build.record.resources:
            assert build.record.resources.smem_bytes == sm80_smem_bytes(config, problem), line
            assert build.record.resources.spill_bytes < 256, line
            assert build.record.resources.threads == sm80_resources.threads(config), line


def test_columns_of_tiles_fit_the_grid() -> None:
    config = sm80((64, 16, 32), 3, warp=(16, 16, 32))
    wide = GemmProblem(64, 1 << 20, 64)
    assert (
        sm80_resources.grid_rows(config, wide, ADA) == "needs 65536 columns of tiles, limit 65535"
    )
    assert sm80_resources.grid_rows(config, GemmProblem(64, (1 << 20) - 16, 64), ADA) is None
