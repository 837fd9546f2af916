"""Finding the toolchain: in real and in made-up installations, without a GPU or a driver."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

from cutlass_study import cuda_roots, toolchain
from cutlass_study.cuda_roots import CudaRoot
from cutlass_study.host_tools import (
    HostCompiler,
    Nvcc,
    find_host_compiler,
    find_nvcc,
    host_compiler_problem,
    maximum_host_version,
)
from cutlass_study.records import EnvironmentProblem
from cutlass_study.sources import source_folder
from cutlass_study.toolchain import Nvrtc, cutlass_include, cutlass_version, find_toolchain

PROJECT = Path(__file__).resolve().parent.parent
posix_only = pytest.mark.skipif(os.name != "posix", reason="the stand-in programs are scripts")
# What CUDA's crt/host_config.h states; 13 is the limit of nvcc 12.4 and 12.5.
HOST_CONFIG = """
#if __GNUC__ > 13
#error -- unsupported GNU version! gcc versions later than 13 are not supported!
#endif
#if (__clang_major__ >= 18) || (__clang_major__ < 3)
#error
#endif
"""


def write_program(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def make_toolkit(root: Path, version: str = "12.5", include: str = "include") -> Path:
    """A folder that looks like a system toolkit with an nvcc that tells its version."""
    major, minor = (int(part) for part in version.split("."))
    headers = root / include
    (headers / "crt").mkdir(parents=True)
    (headers / "cccl" / "cuda" / "std").mkdir(parents=True)
    (headers / "cccl" / "cuda" / "std" / "type_traits").touch()
    (headers / "cuda.h").write_text(f"#define CUDA_VERSION {major * 1000 + minor * 10}\n")
    (headers / "crt" / "host_config.h").write_text(HOST_CONFIG)
    write_program(root / "bin" / "nvcc", f"echo 'release {version}, V{version}.82'")
    return root


def make_gcc(folder: Path, name: str, version: str) -> Path:
    return write_program(
        folder / name,
        f'if [ "$1" = --version ]; then echo "Free Software Foundation"; else echo {version}; fi',
    )


@pytest.fixture
def nowhere(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without pip's CUDA packages and without a toolkit in the usual folders."""
    monkeypatch.setattr(cuda_roots, "pip_roots", lambda: [])
    monkeypatch.setattr(cuda_roots, "_default_folders", lambda variables: iter(()))


def test_importing_loads_nothing_of_cuda() -> None:
    code = (
        "import sys, cutlass_study.toolchain\n"
        "bad = [m for m in sys.modules if m.split('.')[0] in ('cuda', 'nvmath', 'pynvml',"
        " 'cutlass_library', 'cutlass_cppgen')]\n"
        "assert not bad, bad"
    )
    subprocess.run([sys.executable, "-c", code], cwd=PROJECT, check=True)


def test_this_machine_has_a_whole_toolchain_without_a_driver() -> None:
    found = find_toolchain()
    assert (found.cutlass_include / "cute" / "layout.hpp").is_file()
    assert (found.cuda_include / "cuda_fp16.h").is_file()
    assert (found.cccl_include / "cuda" / "std" / "type_traits").is_file()
    assert found.nvrtc.version.startswith(f"{found.nvrtc.release[0]}.{found.nvrtc.release[1]}")
    assert found.include_paths[0] == found.cutlass_include
    assert any(found.nvrtc.version in line for line in found.describe())


def test_cutlass_version_is_read_from_the_headers_that_are_compiled() -> None:
    assert cutlass_version().split(".")[0] == "4"


def test_a_cutlass_clone_wins_and_a_wrong_one_is_refused(tmp_path: Path) -> None:
    header = tmp_path / "include" / "cutlass" / "version.h"
    header.parent.mkdir(parents=True)
    header.write_text("#define CUTLASS_MAJOR 4\n#define CUTLASS_MINOR 3\n#define CUTLASS_PATCH 1\n")
    include = cutlass_include({"CUTLASS_PATH": str(tmp_path)})
    assert cutlass_version(include) == "4.3.1"
    with pytest.raises(EnvironmentProblem, match="unset it and pip install nvidia-cutlass"):
        cutlass_include({"CUTLASS_PATH": str(tmp_path / "include")})


def test_missing_cutlass_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchain.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(EnvironmentProblem, match=r"pip install nvidia-cutlass==4\.2\.0\.0"):
        cutlass_include({})


@pytest.mark.usefixtures("nowhere")
def test_missing_cuda_headers_say_where_was_looked() -> None:
    with pytest.raises(EnvironmentProblem, match=r"CUDA_PATH.*pip install 'cuda-toolkit"):
        toolchain.cuda_header_root({"PATH": ""})


@posix_only
@pytest.mark.parametrize("include", ["include", "targets/x86_64-linux/include"])
@pytest.mark.usefixtures("nowhere")
def test_a_system_toolkits_headers_are_found_in_either_folder(tmp_path: Path, include: str) -> None:
    root = make_toolkit(tmp_path / "toolkit", "13.0", include)
    found = toolchain.cuda_header_root({"PATH": "", "CUDA_HOME": str(root)})
    assert found.include == root / include
    assert found.cccl == root / include / "cccl"
    assert found.version == (13, 0)


@posix_only
@pytest.mark.usefixtures("nowhere")
def test_headers_of_nvrtcs_own_release_are_preferred(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = make_toolkit(tmp_path / "old", "12.5")
    newer = make_toolkit(tmp_path / "newer", "13.2")
    same = make_toolkit(tmp_path / "same", "13.0")
    nvrtc = Nvrtc("13.0.88", (13, 0), tmp_path / "libnvrtc.so.13")
    monkeypatch.setattr(toolchain, "find_nvrtc", lambda: nvrtc)
    variables = {"PATH": "", "CUDA_INSTALL_PATH": str(old), "CUDA_PATH": str(newer)}
    assert toolchain.cuda_header_root(variables).path == newer
    variables["CUDA_HOME"] = str(same)
    assert toolchain.cuda_header_root(variables).path == same


@posix_only
@pytest.mark.usefixtures("nowhere")
def test_nvcc_is_found_off_path_by_cuda_install_path(tmp_path: Path) -> None:
    """Case E4: CUTLASS's own search asks /usr/bin/which first and then gives up."""
    plain = {"PATH": "/usr/bin:/bin"}
    if not Path("/usr/bin/nvcc").exists():
        assert find_nvcc(plain) is None
    root = make_toolkit(tmp_path / "toolkit")
    found = find_nvcc({**plain, "CUDA_INSTALL_PATH": str(root)})
    assert found == Nvcc(root / "bin" / "nvcc", "12.5.82", "system", root, ())


@posix_only
def test_cuda_install_path_beats_pips_nvcc(tmp_path: Path) -> None:
    root = make_toolkit(tmp_path / "toolkit")
    found = find_nvcc({"PATH": "/usr/bin:/bin", "CUDA_INSTALL_PATH": str(root)})
    assert found is not None
    assert found.root == root


@posix_only
@pytest.mark.usefixtures("nowhere")
def test_a_wrapper_on_path_leads_to_its_installation(tmp_path: Path) -> None:
    root = make_toolkit(tmp_path / "toolkit")
    write_program(
        root / "bin" / "nvcc",
        f'case "$1" in --dryrun) echo "#$ _HERE_={root}/bin" >&2;; *) echo V13.0.88;; esac',
    )
    wrapper = write_program(tmp_path / "bin" / "nvcc", f'exec {root}/bin/nvcc "$@"')
    found = find_nvcc({"PATH": str(wrapper.parent)})
    assert found is not None
    assert (found.path, found.version, found.root) == (wrapper, "13.0.88", root)


@posix_only
@pytest.mark.usefixtures("nowhere")
def test_an_nvcc_that_does_not_run_is_passed_over(tmp_path: Path) -> None:
    broken = make_toolkit(tmp_path / "broken")
    write_program(broken / "bin" / "nvcc", "exit 127")
    assert find_nvcc({"PATH": "", "CUDA_PATH": str(broken)}) is None


@posix_only
def test_pips_nvcc_gets_its_library_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root = make_toolkit(tmp_path / "cu13", "13.0")
    (root / "lib").mkdir()
    (root / "lib" / "libcudart_static.a").touch()
    monkeypatch.setattr(cuda_roots, "pip_roots", lambda: [CudaRoot(root, "pip", "pip packages")])
    found = find_nvcc({"PATH": ""})
    assert found is not None
    assert found.link_flags == ("-L", str(root / "lib"))


def fake_nvcc(tmp_path: Path) -> Nvcc:
    return Nvcc(Path("nvcc"), "12.5.82", "system", make_toolkit(tmp_path / "toolkit"), ())


@posix_only
def test_too_new_a_host_compiler_is_told_before_compiling(tmp_path: Path) -> None:
    """Case E11: gcc 14 with nvcc 12.5."""
    nvcc = fake_nvcc(tmp_path)
    gcc14 = HostCompiler(Path("g++"), "gcc", "14.2.0")
    problem = host_compiler_problem(gcc14, nvcc)
    assert problem is not None
    assert "-ccbin g++-13" in problem
    assert "allow-unsupported-compiler" not in problem
    assert host_compiler_problem(HostCompiler(Path("g++"), "gcc", "13.3.0"), nvcc) is None
    assert maximum_host_version("clang", nvcc) == 17
    assert host_compiler_problem(HostCompiler(Path("c"), "clang", "18.1.3"), nvcc) is not None
    msvc = host_compiler_problem(HostCompiler(Path("cl.exe"), "msvc", "19.44"), nvcc)
    assert msvc is not None
    assert "NVIDIA/cutlass#2911" in msvc


@posix_only
def test_an_older_supported_compiler_is_taken_instead(tmp_path: Path) -> None:
    nvcc = fake_nvcc(tmp_path)
    programs = tmp_path / "programs"
    make_gcc(programs, "g++", "14.2.0")
    found = find_host_compiler(nvcc, {"PATH": str(programs)})
    assert found == HostCompiler(programs / "g++", "gcc", "14.2.0")
    make_gcc(programs, "g++-12", "12.3.0")
    found = find_host_compiler(nvcc, {"PATH": str(programs)})
    assert found == HostCompiler(programs / "g++-12", "gcc", "12.3.0")


def test_no_limit_is_invented_where_nvcc_states_none(tmp_path: Path) -> None:
    nvcc = Nvcc(Path("nvcc"), "13.0.88", "system", tmp_path, ())
    assert host_compiler_problem(HostCompiler(Path("g++"), "gcc", "99.0"), nvcc) is None


def test_no_host_compiler_is_none(tmp_path: Path) -> None:
    assert find_host_compiler(None, {"PATH": str(tmp_path)}) is None


@posix_only
@pytest.mark.usefixtures("nowhere")
def test_every_installation_is_listed_once(tmp_path: Path) -> None:
    root = make_toolkit(tmp_path / "toolkit")
    variables = {"PATH": str(root / "bin"), "CUDA_PATH": str(root), "CUDA_HOME": f"{root}/"}
    assert [found.path for found in cuda_roots.cuda_roots(variables)] == [root]


def test_windows_looks_in_program_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(platform, "system", lambda: "Windows")
    monkeypatch.setattr(cuda_roots, "pip_roots", lambda: [])
    for version in ("v12.8", "v13.1"):
        program = tmp_path / "NVIDIA GPU Computing Toolkit" / "CUDA" / version / "bin" / "nvcc.exe"
        program.parent.mkdir(parents=True)
        program.touch()
    roots = cuda_roots.cuda_roots({"PATH": "", "ProgramFiles": str(tmp_path)})
    assert [root.path.name for root in roots] == ["v13.1", "v12.8"]
    assert roots[0].tool("nvcc") is not None


def test_an_nvrtc_outside_its_package_is_told_by_file_name_or_content(tmp_path: Path) -> None:
    library = tmp_path / "libnvrtc.so.13.0.88"
    library.write_bytes(b"library")
    link = tmp_path / "libnvrtc.so.13"
    if os.name == "posix":
        link.symlink_to(library)
        assert toolchain._nvrtc_build(link, "13.0") == "13.0.88"
    anonymous = tmp_path / "nvrtc64_130_0.dll"
    anonymous.write_bytes(b"one build")
    first = toolchain._nvrtc_build(anonymous, "13.0")
    anonymous.write_bytes(b"another build")
    assert first.startswith("13.0+")
    assert toolchain._nvrtc_build(anonymous, "13.0") != first


def test_the_cpp_sources_are_found() -> None:
    assert any(source_folder("instantiations").glob("*.hpp"))
    assert any(source_folder("wmma_custom").glob("*.cuh"))
