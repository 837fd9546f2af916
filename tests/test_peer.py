"""The cross-check with `cuda.bench`, without a GPU: whose stream, in which order, what is read."""

from __future__ import annotations

import array
import json
import sys
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cutlass_study import peer
from cutlass_study.kernels import NotImplementable
from cutlass_study.peer import Subject, read, time_in_turns
from cutlass_study.records import Sample
from tests.sweep_records import sample

pytest.importorskip("cuda.bench")
HANDLE = 0x5EED


class FakeState:
    """What `cuda.bench` hands to a benchmark."""

    def __init__(self, point: dict[str, str], log: list[str]) -> None:
        self.point, self.log = point, log
        self.stream = SimpleNamespace(__cuda_stream__=lambda: (0, HANDLE))

    def get_string(self, name: str) -> str:
        return self.point[name]

    def get_stream(self) -> Any:
        return self.stream

    def exec(self, launch: Any, *, batched: bool) -> None:
        assert batched is False
        self.log.append("theirs")
        launch(SimpleNamespace(get_stream=lambda: self.stream))


class FakeBench:
    """`cuda.bench` as far as it is used; writes the files that NVBench writes."""

    def __init__(self, log: list[str]) -> None:
        self.log, self.axes = log, {}  # type: ignore[var-annotated]
        self.function: Any = None
        self.settings: dict[str, float] = {}

    def register(self, function: Any) -> FakeBench:
        self.function = function
        return self

    def add_string_axis(self, name: str, values: list[str]) -> None:
        self.axes[name] = values

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("set_"):
            raise AttributeError(name)
        return lambda value: self.settings.update({name: value})

    def run_all_benchmarks(self, argv: list[str]) -> None:
        path = Path(argv[argv.index("--jsonbin") + 1])
        states = []
        for kernel in self.axes["Kernel"]:
            for repeat in self.axes["Repeat"]:
                self.function(FakeState({"Kernel": kernel, "Repeat": repeat}, self.log))
                states.append(written_state(path, len(states), kernel, repeat))
        axes = [axis(name, values) for name, values in self.axes.items()]
        bench = {"name": "gemm", "devices": [0], "axes": axes, "states": states}
        path.write_text(json.dumps({"devices": [], "benchmarks": [bench]}))


def axis(name: str, values: list[str]) -> dict[str, Any]:
    listed = [{"input_string": v, "description": "", "value": v} for v in values]
    return {"name": name, "type": "string", "flags": "", "values": listed}


def written_state(path: Path, number: int, kernel: str, repeat: str) -> dict[str, Any]:
    """A state as NVBench writes it: 1.5 ms cold, at 1517 MHz."""
    binary = path.with_suffix(f".{number}.bin")
    binary.write_bytes(array.array("f", [0.0015, 0.0016, 0.0014]).tobytes())
    data = [
        {"name": "filename", "type": "string", "value": str(binary)},
        {"name": "size", "type": "int64", "value": "3"},
    ]
    clock = [{"name": "value", "type": "float64", "value": "1517000000.0"}]
    return {
        "name": "Device=0",
        "device": 0,
        "is_skipped": False,
        "axis_values": [
            {"name": "Kernel", "type": "string", "value": kernel},
            {"name": "Repeat", "type": "string", "value": repeat},
        ],
        "summaries": [
            {"tag": "nv/json/bin:nv/cold/sample_times", "name": "", "data": data},
            {"tag": "nv/cold/sm_clock_rate/mean", "name": "", "data": clock},
        ],
    }


class FakeKernel:
    def __init__(self, log: list[str]) -> None:
        self.log, self.prepared = log, []  # type: ignore[var-annotated]
        self.stream: Any = None

    def prepare(self, problem: Any, operands: Any) -> None:
        self.prepared.append(self.stream.handle)

    def launch(self, index: int) -> None:
        self.log.append(f"launch on {self.stream.handle}")


class FakeSampler:
    """A block of ours is one sample of 1.51 ms."""

    def __init__(self, log: list[str]) -> None:
        self.log = log

    def forget(self, kernel: Any) -> None:
        pass

    def take_held(self, kernel: Any, hold_s: float) -> Sample:
        assert hold_s == peer.REST_S
        self.log.append(f"ours on {kernel.stream.handle}")
        return sample(0, 1.51)


class FakeStream:
    def __init__(self, handle: int | None = None) -> None:
        self.handle = -1 if handle is None else handle

    def synchronize(self) -> None:
        pass


@pytest.fixture
def log(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    found: list[str] = []
    clock = iter(range(10_000))
    monkeypatch.setattr(peer, "Stream", FakeStream)
    fake_time = SimpleNamespace(sleep=lambda s: None, monotonic=lambda: 0.6 * next(clock))
    monkeypatch.setattr(peer, "time", fake_time)
    return found


def use(monkeypatch: pytest.MonkeyPatch, bench: Any) -> None:
    import cuda

    monkeypatch.setitem(sys.modules, "cuda.bench", bench)
    monkeypatch.setattr(cuda, "bench", bench, raising=False)


def subjects(log: list[str], *names: str) -> dict[str, Subject]:
    operands: Any = SimpleNamespace(problem="problem")
    return {name: Subject(FakeKernel(log), operands) for name in names}  # type: ignore[arg-type]


def test_both_time_the_same_kernel_on_the_same_stream_in_turns(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    from cuda.bench import results  # before the stand-in hides it

    monkeypatch.setitem(sys.modules, "cuda.bench.results", results)
    bench = FakeBench(log)
    use(monkeypatch, bench)
    chosen = subjects(log, "cublas_default", "sm80_x")
    sampler: Any = FakeSampler(log)
    found = time_in_turns(chosen, 2, sampler)
    ours, theirs = f"ours on {HANDLE}", ["theirs", f"launch on {HANDLE}"]
    assert log == [f"launch on {HANDLE}", ours, *theirs, ours] * 4
    assert [(times.name, times.repeat) for times in found] == [
        ("cublas_default", 0), ("cublas_default", 1), ("sm80_x", 0), ("sm80_x", 1),
    ]  # fmt: skip
    assert found[0].peer_ms == pytest.approx((1.5, 1.6, 1.4))
    assert found[0].peer_clock_mhz == 1517
    assert found[0].own_alone_ms == (1.51, 1.51)
    assert bench.settings["set_throttle_threshold"] == 0, "neither side drops slow samples"
    for subject in chosen.values():
        kernel: Any = subject.kernel
        assert kernel.prepared == [HANDLE, HANDLE]


def test_what_fails_on_the_gpu_is_not_hidden_by_cuda_bench(
    log: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    class Swallows(FakeBench):
        def run_all_benchmarks(self, argv: list[str]) -> None:
            for _ in range(3):
                with suppress(ZeroDivisionError):
                    super().run_all_benchmarks(argv)

    use(monkeypatch, Swallows(log))
    sampler: Any = FakeSampler(log)
    sampler.take_held = lambda *arguments: 1 / 0
    with pytest.raises(ZeroDivisionError):
        time_in_turns(subjects(log, "x"), 1, sampler)
    assert log == [f"launch on {HANDLE}"], "no time is spent on what comes after it"


def test_a_kernel_that_cuda_bench_skipped_is_said(tmp_path: Path) -> None:
    path = tmp_path / "peer.json"
    state = {**written_state(path, 0, "x", "0"), "is_skipped": True, "skip_reason": "too short"}
    axes = [axis("Kernel", ["x"]), axis("Repeat", ["0"])]
    bench = {"name": "gemm", "devices": [0], "axes": axes, "states": [state]}
    path.write_text(json.dumps({"devices": [], "benchmarks": [bench]}))
    with pytest.raises(NotImplementable, match="did not time x: too short"):
        read(path, {("x", "0"): []})


def test_without_the_package_it_is_said(log: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cuda.bench", None)
    sampler: Any = FakeSampler(log)
    with pytest.raises(NotImplementable, match="can't be imported"):
        time_in_turns(subjects(log, "x"), 1, sampler)
