"""The peak benchmarks: what a compiler tells of them, their arithmetic, their rates on a GPU."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cutlass_study import peaks
from cutlass_study.gpus import limits_of
from cutlass_study.peaks import (
    MEMORY_BENCHMARKS,
    Ceiling,
    MemoryBenchmark,
    TensorBenchmark,
    copy_buffer_bytes,
    copy_steps,
    flop_per_clk_sm,
    gigabytes_per_second,
    memory_ceiling,
    next_iterations,
    nominal_flop_per_clk_sm,
    peak_flop_per_clk_sm,
    tensor_benchmarks,
    tensor_ceiling,
    tflops,
)
from cutlass_study.records import EnvironmentProblem, Sample

ARCHES = ("sm_89", "sm_90a")
CASES = [
    (arch, benchmark)
    for arch in ARCHES
    for benchmark in (*tensor_benchmarks(arch), *MEMORY_BENCHMARKS)
]
TENSOR_CASES = [case for case in CASES if isinstance(case[1], TensorBenchmark)]
SAMPLE = Sample("burst", 0, 1.5, 2, None, 1500.0, 1980.0, 600.0, 50.0, "")
# Datasheet bandwidths in GB/s.
BANDWIDTHS = {"H200": 4800, "H100 80GB HBM3": 3350, "A100-SXM4-80GB": 2039, "L40S": 864,
              "RTX 4090": 1008, "RTX 4060 Ti": 288, "RTX 4060": 272}  # fmt: skip


def case_id(value: object) -> str:
    return value if isinstance(value, str) else value.name  # type: ignore[attr-defined]


@cache
def built(arch: str, benchmark: TensorBenchmark | MemoryBenchmark) -> tuple[bytes, str]:
    """(cubin, log)."""
    nvrtc_bindings = pytest.importorskip("cuda.bindings.nvrtc")
    assert nvrtc_bindings
    from cutlass_study import nvrtc
    from cutlass_study.peak_runs import benchmark_source

    done = nvrtc.compile_cubin(benchmark_source(benchmark), arch)
    return done.cubin, done.log


@cache
def ptx_of(arch: str, benchmark: TensorBenchmark | MemoryBenchmark) -> str:
    nvrtc_bindings = pytest.importorskip("cuda.bindings.nvrtc")
    from cutlass_study import nvrtc
    from cutlass_study.peak_runs import benchmark_source

    source = benchmark_source(benchmark)
    options = [o.encode() for o in nvrtc.compile_options(source, arch.replace("sm", "compute"))]
    _, program = nvrtc_bindings.nvrtcCreateProgram(source.text.encode(), b"peak.cu", 0, [], [])
    (status,) = nvrtc_bindings.nvrtcCompileProgram(program, len(options), options)
    assert status == nvrtc_bindings.nvrtcResult.NVRTC_SUCCESS
    _, size = nvrtc_bindings.nvrtcGetPTXSize(program)
    text = bytearray(size)
    nvrtc_bindings.nvrtcGetPTX(program, text)
    nvrtc_bindings.nvrtcDestroyProgram(program)
    return text.decode()


def innermost_loop(code: str, instruction: str) -> str:
    """From the nearest label before the first `instruction` to the branch back to it."""
    before, _, after = code.partition(instruction)
    label = re.findall(r"^(\S+):", before, re.MULTILINE)[-1]
    body = before[before.rindex(f"{label}:") :] + instruction + after
    branch = re.search(rf"\b(?:bra|BRA)\S*\s+`?\(?{re.escape(label)}\b", body)
    assert branch, f"{instruction} is not in a loop"
    return body[: branch.start()]


@pytest.mark.parametrize(("arch", "benchmark"), CASES, ids=case_id)
def test_no_spills_no_warnings_and_the_cta_fits(
    arch: str, benchmark: TensorBenchmark | MemoryBenchmark
) -> None:
    _, log = built(arch, benchmark)
    assert re.findall(r"(\d+) bytes (?:stack frame|spill stores|spill loads)", log) == ["0"] * 3
    assert "warning" not in log.lower()
    assert "Performance Loss" not in log, "wgmma is serialized"
    (registers,) = (int(count) for count in re.findall(r"Used (\d+) registers", log))
    ctas = 1 if isinstance(benchmark, TensorBenchmark) else peaks.COPY_CTAS_PER_SM
    limits = limits_of(arch)
    per_warp = -(-32 * registers // limits.register_unit_per_warp) * limits.register_unit_per_warp
    assert ctas * benchmark.threads // 32 * per_warp <= limits.registers_per_sm
    if isinstance(benchmark, TensorBenchmark):
        assert benchmark.smem_bytes <= limits.smem_per_block_optin


@pytest.mark.parametrize(("arch", "benchmark"), TENSOR_CASES, ids=case_id)
def test_the_ptx_loop_holds_the_products_and_no_memory_access(
    arch: str, benchmark: TensorBenchmark
) -> None:
    is_mma = benchmark.instruction == "mma"
    instruction = "mma.sync" if is_mma else "wgmma.mma_async"
    loop = innermost_loop(ptx_of(arch, benchmark), instruction)
    shape = (
        f"m16n8k16.row.col.{benchmark.accumulate}.f16.f16.{benchmark.accumulate}"
        if is_mma
        else f"m64n256k16.{benchmark.accumulate}.f16.f16"
    )
    found = re.findall(rf"{re.escape(instruction)}\.(?:sync\.)?aligned\.(\S+)", loop)
    per_loop = peaks.MMA_STEPS * peaks.MMA_ACCUMULATORS if is_mma else peaks.WGMMA_STEPS
    assert found == [shape] * per_loop
    assert not re.findall(r"\b(?:ld(?!\.param)|st|atom|red)\.\S+|\bbar\.", loop)
    if is_mma:
        assert benchmark.flop_per_iteration == benchmark.threads // 32 * len(found) * 4096
    else:
        assert benchmark.flop_per_iteration == benchmark.threads // 128 * len(found) * 524288
        assert loop.count("wgmma.fence") == loop.count("wgmma.commit_group") == 1
        assert re.findall(r"wgmma\.wait_group\.sync\.aligned (\d)", loop) == ["1"]


@pytest.mark.parametrize("benchmark", MEMORY_BENCHMARKS, ids=case_id)
def test_the_ptx_loop_moves_vectors_once(benchmark: MemoryBenchmark) -> None:
    loop = innermost_loop(ptx_of("sm_89", benchmark), "ld.global.cs.v4.u32")
    assert len(re.findall(r"\bld\.", loop)) == peaks.COPY_VECTORS
    stores = re.findall(r"\bst\.\S+", loop)
    wanted = peaks.COPY_VECTORS if benchmark.kind == "copy" else 0
    assert stores == ["st.global.cs.v4.u32"] * wanted


def find_nvdisasm() -> str:
    """nvdisasm on PATH; pip's nvcc does not bring it."""
    found = shutil.which("nvdisasm")
    if found is None:
        pytest.skip("no nvdisasm on PATH")
    return found


@pytest.mark.parametrize(("arch", "benchmark"), TENSOR_CASES, ids=case_id)
def test_the_machine_code_loop_holds_the_products_and_no_memory_access(
    arch: str, benchmark: TensorBenchmark, tmp_path: Path
) -> None:
    image = tmp_path / "peak.cubin"
    image.write_bytes(built(arch, benchmark)[0])
    done = subprocess.run(
        [find_nvdisasm(), "-c", str(image)], capture_output=True, text=True, check=True
    )
    is_mma = benchmark.instruction == "mma"
    loop = innermost_loop(done.stdout, "HMMA" if is_mma else "HGMMA")
    per_loop = peaks.MMA_STEPS * peaks.MMA_ACCUMULATORS if is_mma else peaks.WGMMA_STEPS
    assert len(re.findall(r"\bHG?MMA\.", loop)) == per_loop
    assert not re.findall(r"\b(?:LD|ST|LDG|STG|LDS|STS|LDL|STL|LDSM)\b", loop)


@pytest.mark.parametrize("warpgroups", [1, 3])
def test_other_warpgroup_counts_compile_and_have_their_own_name(warpgroups: int) -> None:
    benchmark = TensorBenchmark("wgmma_ss", "f32", warpgroups)
    assert benchmark.name == f"wgmma_ss_f32_w{warpgroups}"
    assert "Performance Loss" not in built("sm_90a", benchmark)[1]


def test_flop_formulas() -> None:
    assert peaks.MMA_FLOP == 4096 and peaks.WGMMA_FLOP == 524_288
    mma = TensorBenchmark("mma", "f32")
    assert mma.flop_per_iteration == 16 * 4 * 8 * 4096
    assert TensorBenchmark("wgmma_ss", "f16").flop_per_iteration == 2 * 8 * 524_288
    assert mma.accumulators_per_thread == 32
    assert TensorBenchmark("wgmma_rs", "f16").accumulators_per_thread == 128


def test_shared_memory_of_wgmma() -> None:
    assert TensorBenchmark("wgmma_ss", "f32").smem_bytes == 48 << 10
    assert TensorBenchmark("wgmma_rs", "f32").smem_bytes == 32 << 10
    assert TensorBenchmark("mma", "f32").smem_bytes == 0


def test_which_benchmarks_run_where() -> None:
    assert [b.name for b in tensor_benchmarks("sm_89")] == ["mma_f32", "mma_f16"]
    assert [b.name for b in tensor_benchmarks("sm_90a")] == [
        "mma_f32", "mma_f16", "wgmma_ss_f32", "wgmma_ss_f16", "wgmma_rs_f32", "wgmma_rs_f16",
    ]  # fmt: skip


def test_rates() -> None:
    assert tflops(2 * 8192**3, 1.5) == pytest.approx(733.0, abs=0.1)
    assert gigabytes_per_second(480e6, 0.1) == pytest.approx(4800)
    # 24 SMs at 512 FLOP/clk and 2464 MHz do 30.3 TFLOPS.
    flop = 24 * 512 * 2464e6 * 1e-3
    assert flop_per_clk_sm(flop, 1.0, 2464, 24) == pytest.approx(512)
    assert tflops(flop, 1.0) == pytest.approx(30.28, abs=0.01)


def test_bytes_moved() -> None:
    copy, read = MEMORY_BENCHMARKS
    assert (copy.bytes_moved(1000, 3), read.bytes_moved(1000, 3)) == (6000, 3000)


@given(
    l2_bytes=st.integers(1 << 20, 256 << 20),
    free_gib=st.integers(2, 140),
    sm_count=st.integers(1, 200),
)
def test_copy_buffers_exceed_the_l2_and_leave_memory(
    l2_bytes: int, free_gib: int, sm_count: int
) -> None:
    free_bytes = free_gib << 30
    size = copy_buffer_bytes(copy_steps(l2_bytes, free_bytes, sm_count), sm_count)
    assert size >= min(4 * l2_bytes, free_bytes // 4)
    assert 2 * size <= free_bytes // 2 + 2 * copy_buffer_bytes(1, sm_count)


@given(rate_ms=st.floats(1e-6, 1e2), launch_ms=st.floats(0, 0.02))
def test_calibration_ends_near_the_target_and_never_far_above(
    rate_ms: float, launch_ms: float
) -> None:
    def time_ms(iterations: int) -> float:
        return launch_ms + rate_ms * iterations

    iterations = 1
    for _ in range(8):
        iterations = next_iterations(iterations, time_ms(iterations))
        assert iterations == 1 or time_ms(iterations) <= 2.3
    assert iterations == 1 or time_ms(iterations) >= 1.0


def test_calibration_refuses_nonsense_and_survives_zero_time() -> None:
    assert next_iterations(8, 0.0) == 8 * 32
    assert next_iterations(1, 50.0) == 1
    assert next_iterations(2**30, 0.0) == 2**31 - 1
    with pytest.raises(ValueError, match="no calibration"):
        next_iterations(0, 1.0)


def test_a_ceiling_takes_each_sample_at_its_own_clock() -> None:
    # 132 SMs, 4096 FLOP/clk, at 1500 MHz for 1.5 ms, and at 1000 MHz for 2.25 ms.
    flop = 132 * 4096 * 1500e6 * 1.5e-3
    samples = (SAMPLE, replace(SAMPLE, time_ms=2.25, sm_clock_mhz=1000.0))
    found = tensor_ceiling("wgmma_ss_f32", flop, 132, samples)
    assert found.flop_per_clk_sm == pytest.approx(4096)
    assert found.sm_clock_mhz == 1250 and found.unit == "TFLOPS" and found.samples == samples
    assert found.value == pytest.approx((811.008 + 540.672) / 2)


def test_a_ceiling_without_a_clock_has_no_rate_per_clock() -> None:
    found = tensor_ceiling("mma_f32", 1e12, 24, (replace(SAMPLE, sm_clock_mhz=None),))
    assert (found.flop_per_clk_sm, found.sm_clock_mhz) == (None, None)
    assert peak_flop_per_clk_sm([found]) is None


def test_a_memory_ceiling_is_a_median() -> None:
    times = (1.0, 4.0, 2.0)
    samples = tuple(replace(SAMPLE, time_ms=time) for time in times)
    found = memory_ceiling("dram_copy", 8e9, samples)
    assert (found.value, found.unit, found.flop_per_clk_sm) == (4000.0, "GB/s", None)


def test_the_peak_is_the_best_rate_of_its_accumulator_unrounded() -> None:
    def ceiling(name: str, rate: float | None) -> Ceiling:
        return Ceiling(name, 1.0, "TFLOPS", rate, 1500.0, (SAMPLE,))

    found = [ceiling("mma_f32", 2500.5), ceiling("wgmma_ss_f32", 4051.25),
             ceiling("wgmma_rs_f16", 4090.0), ceiling("dram_copy", None)]  # fmt: skip
    assert peak_flop_per_clk_sm(found) == 4051.25
    assert peak_flop_per_clk_sm(found, "f16") == 4090.0
    assert peak_flop_per_clk_sm([]) is None


@pytest.mark.parametrize(
    ("device", "f32", "f16"),
    [
        ("NVIDIA H200", 4096, 4096),
        ("NVIDIA H100 80GB HBM3", 4096, 4096),
        ("NVIDIA GeForce RTX 4060", 512, 1024),
        ("NVIDIA GeForce RTX 4060 Laptop GPU", 512, 1024),
        ("NVIDIA L4", 1024, 1024),
        ("NVIDIA L40S", 1024, 1024),
        ("NVIDIA A100-SXM4-80GB", 2048, 2048),
        ("NVIDIA GeForce GTX 1080", None, None),
    ],
)
def test_nominal_rates(device: str, f32: int | None, f16: int | None) -> None:
    assert nominal_flop_per_clk_sm(device) == f32
    assert nominal_flop_per_clk_sm(device, "f16") == f16


def test_the_arithmetic_needs_no_cuda() -> None:
    code = (
        "import sys, cutlass_study.peaks; "
        "sys.exit(any(name.partition('.')[0] in ('cuda', 'pynvml') for name in sys.modules))"
    )
    root = Path(__file__).parents[1]
    environment = {**os.environ, "PYTHONPATH": str(root)}
    assert (
        subprocess.run([sys.executable, "-c", code], env=environment, check=False).returncode == 0
    )


@pytest.fixture(scope="module")
def measured() -> tuple[str, dict[str, Ceiling]]:
    """(device name, ceilings by name) of the present GPU."""
    from cutlass_study.ceilings import measure_present_gpu

    try:
        device, found = measure_present_gpu()
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    return device, {ceiling.name: ceiling for ceiling in found}


@pytest.mark.gpu
@pytest.mark.parametrize("accumulate", ["f32", "f16"])
def test_the_measured_rate_is_near_the_nominal(
    measured: tuple[str, dict[str, Ceiling]], accumulate: peaks.Accumulate
) -> None:
    device, ceilings = measured
    rate = peak_flop_per_clk_sm(ceilings.values(), accumulate)
    nominal = nominal_flop_per_clk_sm(device, accumulate)
    assert rate is not None
    if nominal is None:
        pytest.skip(f"no documented rate of {device}; measured {rate:.1f} FLOP/clk/SM")
    assert 0.8 <= rate / nominal <= 1.02


@pytest.mark.gpu
def test_accumulators_are_reported_apart(measured: tuple[str, dict[str, Ceiling]]) -> None:
    device, ceilings = measured
    rates = [ceilings[name].flop_per_clk_sm for name in ("mma_f32", "mma_f16")]
    assert rates[0] and rates[1]
    wanted = 2.0 if "GeForce" in device else 1.0
    assert rates[1] / rates[0] == pytest.approx(wanted, rel=0.1)


@pytest.mark.gpu
def test_dram_bandwidth_is_plausible(measured: tuple[str, dict[str, Ceiling]]) -> None:
    device, ceilings = measured
    nominal = next((rate for name, rate in BANDWIDTHS.items() if name in device), None)
    for name in ("dram_copy", "dram_read"):
        rate = ceilings[name].value
        if nominal is None:
            assert 50 < rate < 10_000
        else:
            assert 0.7 * nominal <= rate <= 1.01 * nominal


@pytest.mark.gpu
def test_every_ceiling_has_its_samples(measured: tuple[str, dict[str, Ceiling]]) -> None:
    for ceiling in measured[1].values():
        assert len(ceiling.samples) >= 9
        assert all(1.5 <= sample.time_ms * sample.launches <= 8 for sample in ceiling.samples)


@pytest.mark.gpu
def test_long_runs_stay_finite() -> None:
    """FP16 accumulators drift by rounding to a fixed point of at most 4 (simulated), not away."""
    from cutlass_study.device import open_device, query_device
    from cutlass_study.driver import Stream, allocate
    from cutlass_study.peak_runs import TensorRun, fill

    try:
        device = query_device(open_device())
    except EnvironmentProblem as problem:
        pytest.skip(str(problem))
    inputs, stream = allocate(peaks.INPUT_BYTES), Stream()
    fill(device.arch, inputs, stream)
    stream.synchronize()
    for benchmark in tensor_benchmarks(device.arch):
        run = TensorRun(benchmark, device.arch, device.sm_count, inputs)
        sums = run.sums(5000)
        run.close()
        assert all(abs(value) < 16 * benchmark.accumulators_per_thread for value in sums)
    inputs.free()
