"""Checks of what measuring needs: operating system, driver, GPU, cuBLAS, watchdog."""

from __future__ import annotations

import ctypes
import platform
from pathlib import Path

from cutlass_study.check import Check
from cutlass_study.cuda_roots import on_windows
from cutlass_study.gpus import arch_of

# CUDA 13.0's release notes: every CUDA 13 needs a driver of the 580 series or newer.
MINIMUM_DRIVER = 580
MINIMUM_CUDA_DRIVER = 13000
MINIMUM_CAPABILITY = (8, 0)  # cp.async came with Ampere
WSL_LIBRARIES = "usr/lib/wsl/lib"
# Where a Linux driver's packages put the library that must not be there inside WSL.
LINUX_DRIVER_FOLDERS = ("usr/lib/x86_64-linux-gnu", "usr/lib/aarch64-linux-gnu", "usr/lib64")
TDR_ADVICE = (
    "Windows resets a GPU that a batch of work keeps busy for 2 s (TDR); the toolkit never queues "
    "more than 0.25 s of work there, so the registry's TdrDelay need not be raised"
)


def inside_wsl(root: Path = Path("/")) -> bool:
    """Whether this Linux runs inside WSL, as its kernel's version string tells."""
    try:
        text = (root / "proc" / "version").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return "microsoft" in text.lower()


def check_operating_system(root: Path = Path("/")) -> Check:
    system = platform.system()
    name = "operating system"
    described = f"{system} {platform.release()}"
    if system == "Windows":
        advice = (
            "CUTLASS's Python interface can't work on native Windows (it calls /usr/bin/which, "
            "builds .so files with -fPIC) and CUTLASS 4 does not build with MSVC; the toolkit "
            "compiles by NVRTC and needs neither, and WSL2 is the alternative"
        )
        return Check(name, "ok", f"native {described}", advice)
    if system != "Linux":
        return Check(name, "missing", described, "use Linux, WSL2 or Windows: CUDA has no others")
    return Check(name, "ok", f"{described} inside WSL2" if inside_wsl(root) else described)


def _linux_driver_inside_wsl(root: Path) -> Path | None:
    """A libcuda that a Linux driver package installed; WSL's own is linked to its folder."""
    for folder in LINUX_DRIVER_FOLDERS:
        library = root / folder / "libcuda.so.1"
        if library.is_file() and WSL_LIBRARIES not in library.resolve().as_posix():
            return library
    return None


def check_wsl(root: Path = Path("/"), loads: bool | None = None) -> Check:
    """Under WSL2 the Windows driver's libcuda is used; a Linux driver inside WSL hides it."""
    name = "WSL2 driver"
    if on_windows() or not inside_wsl(root):
        return Check(name, "ok", "not inside WSL2")
    wrong = _linux_driver_inside_wsl(root)
    if wrong is not None:
        advice = (
            "a Linux driver is installed inside WSL and hides the one Windows provides: remove the "
            "nvidia-driver and libnvidia-compute packages, and install only a CUDA toolkit package "
            "without the driver (cuda-toolkit, never cuda or cuda-drivers)"
        )
        return Check(name, "warn", str(wrong), advice)
    library = root / WSL_LIBRARIES / "libcuda.so.1"
    if not library.exists():
        advice = "install NVIDIA's driver on Windows, never inside WSL, then run wsl --update"
        return Check(name, "missing", f"{library} does not exist", advice)
    if not (driver_loads() if loads is None else loads):
        advice = f"put its folder on the loader path: export LD_LIBRARY_PATH={library.parent}"
        return Check(name, "missing", f"{library} exists but is not found by the loader", advice)
    return Check(name, "ok", str(library))


def _driver_library() -> ctypes.CDLL:
    return ctypes.CDLL("nvcuda.dll" if on_windows() else "libcuda.so.1")


def driver_loads() -> bool:
    try:
        _driver_library()
    except OSError:
        return False
    return True


def cuda_driver_version() -> int | None:
    """13000 for a driver of CUDA 13.0, asked of libcuda without initializing it."""
    version = ctypes.c_int()
    try:
        status = _driver_library().cuDriverGetVersion(ctypes.byref(version))
    except (OSError, AttributeError):
        return None
    return version.value if status == 0 else None


def check_driver() -> Check:
    version = cuda_driver_version()
    if version is None:
        advice = (
            "without it only the static half runs (feasibility, compiling, occupancy); to measure, "
            f"install NVIDIA's driver {MINIMUM_DRIVER} or newer"
        )
        return Check("NVIDIA driver", "missing", "libcuda can't be loaded", advice)
    found = f"CUDA {version // 1000}.{version % 1000 // 10}"
    if version < MINIMUM_CUDA_DRIVER:
        advice = f"CUDA 13 needs driver {MINIMUM_DRIVER} or newer: update NVIDIA's driver"
        return Check("NVIDIA driver", "missing", found, advice)
    return Check("NVIDIA driver", "ok", found)


def check_gpu() -> Check:
    """What NVML says of every GPU; telemetry comes from there too."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        advice = "a GPU and its driver are needed to measure; the static half runs without"
        return Check("GPU", "missing", f"NVML: {error}", advice)
    try:
        driver = pynvml.nvmlSystemGetDriverVersion()
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        lines = [_describe_gpu(handle) for handle in handles]
        capabilities = [pynvml.nvmlDeviceGetCudaComputeCapability(handle) for handle in handles]
    finally:
        pynvml.nvmlShutdown()
    if not lines:
        return Check("GPU", "missing", f"driver {driver}, no GPU", "is the GPU passed through?")
    found = f"driver {driver}: " + "; ".join(lines)
    if max(tuple(capability) for capability in capabilities) < MINIMUM_CAPABILITY:
        advice = "the kernels need Ampere (compute capability 8.0) or newer"
        return Check("GPU", "missing", found, advice)
    return Check("GPU", "ok", found)


def _describe_gpu(handle: object) -> str:
    import pynvml

    name = pynvml.nvmlDeviceGetName(handle)
    arch = arch_of(tuple(pynvml.nvmlDeviceGetCudaComputeCapability(handle)))
    memory = pynvml.nvmlDeviceGetMemoryInfo(handle)
    return f"{name}, {arch}, {memory.free / 2**30:.1f} of {memory.total / 2**30:.1f} GiB free"


def check_cublas() -> Check:
    """The baseline. The bindings import without a driver; the library must be loadable too."""
    try:
        from cuda import pathfinder
        from nvmath.bindings import cublas, cublasLt

        library = pathfinder.load_nvidia_dynamic_lib("cublas").abs_path
    except Exception as error:  # ImportError, or pathfinder's and the loader's own types
        summary = next(iter(str(error).splitlines()), type(error).__name__)
        advice = "pip install nvmath-python 'cuda-toolkit[cublas]==13.0.*'"
        return Check("cuBLAS", "missing", summary, advice)
    del cublas, cublasLt
    return Check("cuBLAS", "ok", str(library))


def _kernel_timeout_active() -> bool | None:
    """Whether the driver stops long kernels (a display is attached); None without a driver."""
    if not driver_loads():
        return None
    from cuda.bindings import driver

    attribute = driver.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_KERNEL_EXEC_TIMEOUT
    (status,) = driver.cuInit(0)
    if int(status) != 0:
        return None
    status, device = driver.cuDeviceGet(0)
    if int(status) != 0:
        return None
    status, value = driver.cuDeviceGetAttribute(attribute, device)
    return bool(value) if int(status) == 0 else None


def check_watchdog(root: Path = Path("/")) -> Check:
    name = "watchdog"
    if on_windows() or inside_wsl(root):  # WSL2 inherits Windows' TDR
        return Check(name, "warn", "Windows TDR is assumed to be active", TDR_ADVICE)
    active = _kernel_timeout_active()
    if active is None:
        return Check(name, "ok", "no driver, nothing to watch")
    if active:
        advice = "a display uses this GPU; the toolkit queues at most 0.25 s of work there"
        return Check(name, "warn", "the driver stops long kernels", advice)
    return Check(name, "ok", "no limit on a kernel's time")
