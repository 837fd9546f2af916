"""The present GPU, queried: its record, its limits, its primary context."""

from __future__ import annotations

import platform
import subprocess
from pathlib import Path
from typing import Any

from cuda.bindings import driver

import cutlass_study
from cutlass_study.cache import tree_digest
from cutlass_study.driver import call
from cutlass_study.gpus import arch_of
from cutlass_study.records import DeviceRecord, EnvironmentProblem
from cutlass_study.telemetry import Nvml

_ATTRIBUTE = driver.CUdevice_attribute


def open_device(ordinal: int = 0) -> Any:
    """Initialize CUDA and make the primary context current (cuBLAS uses the same one)."""
    try:
        (status,) = driver.cuInit(0)
    except Exception as error:  # cuda.bindings raises RuntimeError kinds where there is no driver
        first = next(iter(str(error).splitlines()), type(error).__name__).rstrip(". ")
        raise EnvironmentProblem(f"no CUDA driver: {first}; install the NVIDIA driver") from error
    if status != driver.CUresult.CUDA_SUCCESS:
        raise EnvironmentProblem(
            f"no usable GPU ({status.name}); check that `nvidia-smi` lists one"
        )
    device = call(driver.cuDeviceGet, ordinal)
    call(driver.cuCtxSetCurrent, call(driver.cuDevicePrimaryCtxRetain, device))
    return device


def _attribute(device: Any, name: str) -> int:
    return int(call(driver.cuDeviceGetAttribute, getattr(_ATTRIBUTE, f"CU_DEVICE_ATTRIBUTE_{name}"),
                    device))  # fmt: skip


def _uuid(device: Any) -> str:
    raw = bytes(call(driver.cuDeviceGetUuid, device).bytes)
    text = raw.hex()
    return "GPU-" + "-".join((text[:8], text[8:12], text[12:16], text[16:20], text[20:]))


def _code_version() -> str:
    """The commit of the clone the package runs from, `+` for local changes; else its digest."""
    folder = Path(cutlass_study.__file__).parent.parent
    try:
        run = subprocess.run(
            ["git", "-C", str(folder), "describe", "--always", "--dirty=+", "--exclude=*"],
            capture_output=True, text=True, timeout=10, check=True,
        )  # fmt: skip
        return run.stdout.strip()
    except (OSError, subprocess.SubprocessError):  # no git, or no clone
        return f"sources-{tree_digest(Path(cutlass_study.__file__).parent, ('.py',))[:12]}"


def query_device(device: Any) -> DeviceRecord:
    """Everything that identifies the GPU and bounds what runs on it."""
    capability = (
        _attribute(device, "COMPUTE_CAPABILITY_MAJOR"),
        _attribute(device, "COMPUTE_CAPABILITY_MINOR"),
    )
    version = int(call(driver.cuDriverGetVersion))
    uuid = _uuid(device)
    telemetry = Nvml(uuid)
    return DeviceRecord(
        name=bytes(call(driver.cuDeviceGetName, 256, device)).split(b"\0")[0].decode(),
        arch=arch_of(capability),
        uuid=uuid,
        sm_count=_attribute(device, "MULTIPROCESSOR_COUNT"),
        memory_bytes=int(call(driver.cuDeviceTotalMem, device)),
        l2_bytes=_attribute(device, "L2_CACHE_SIZE"),
        smem_per_block_optin=_attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        smem_per_sm=_attribute(device, "MAX_SHARED_MEMORY_PER_MULTIPROCESSOR"),
        smem_reserved_per_block=_attribute(device, "RESERVED_SHARED_MEMORY_PER_BLOCK"),
        registers_per_sm=_attribute(device, "MAX_REGISTERS_PER_MULTIPROCESSOR"),
        warps_per_sm=_attribute(device, "MAX_THREADS_PER_MULTIPROCESSOR") // 32,
        ctas_per_sm_limit=_attribute(device, "MAX_BLOCKS_PER_MULTIPROCESSOR"),
        max_sm_clock_mhz=telemetry.max_sm_clock_mhz(),
        power_limit_w=telemetry.power_limit_w(),
        watchdog=bool(_attribute(device, "KERNEL_EXEC_TIMEOUT")),
        driver_version=telemetry.driver_version(),
        cuda_driver_version=f"{version // 1000}.{version % 1000 // 10}",
        operating_system=platform.platform(),
        python_version=platform.python_version(),
        study_version=cutlass_study.__version__,
        git_commit=_code_version(),
    )
