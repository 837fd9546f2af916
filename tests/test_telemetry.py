"""What NVML says, joined to samples by time; a card or driver that lacks a value costs only it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pynvml
import pytest

from cutlass_study import telemetry
from cutlass_study.telemetry import Nvml, Reading, TelemetryLog, summarize


@pytest.fixture
def make_log(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., TelemetryLog]]:
    """Logs whose thread reads every half millisecond; stopped at the end."""
    monkeypatch.setattr(telemetry, "PERIOD_S", 0.0005)
    made: list[TelemetryLog] = []

    def make(read: Callable[[], Reading]) -> TelemetryLog:
        made.append(TelemetryLog(read))
        return made[-1]

    yield make
    for log in made:
        log.stop()


class Scripted:
    """Readings with times of our own: the log as if it had been read then."""

    def __init__(self, log: TelemetryLog, entries: list[tuple[float, Reading]]) -> None:
        log.stop()
        log._log.clear()
        log._log.extend(entries)


def test_a_sample_gets_the_median_and_every_throttle_reason(make_log):
    log = make_log(Reading)
    powers = (100.0, 400.0, 700.0, 650.0, 90.0)
    reasons = ("", "sw_power_cap", "", "sw_thermal", "hw_slowdown")
    Scripted(
        log,
        [
            (10.0 + at, Reading(power_w=power, throttle_reasons=reason))
            for at, (power, reason) in enumerate(zip(powers, reasons, strict=True))
        ],
    )
    seen = log.between(10.5, 13.5)
    assert seen.power_w == 650.0
    assert seen.throttle_reasons == "sw_power_cap+sw_thermal"
    assert seen.temperature_c is None


def test_a_short_sample_takes_the_nearest_reading_or_none(make_log):
    log = make_log(Reading)
    Scripted(log, [(10.0, Reading(sm_clock_mhz=1500.0)), (10.2, Reading(sm_clock_mhz=1700.0))])
    assert log.between(10.16, 10.17).sm_clock_mhz == 1700.0
    assert log.between(10.03, 10.04).sm_clock_mhz == 1500.0
    assert log.between(10.9, 10.91).sm_clock_mhz is None, "0.7 s away says nothing of the sample"


def test_power_from_the_energy_counter_needs_two_steps_far_enough_apart(make_log):
    log = make_log(Reading)
    # A counter that steps every 0.1 s by 60 J, read every 20 ms.
    counter = [(at / 50, Reading(energy_j=60.0 * (at // 5))) for at in range(50)]
    Scripted(log, counter)
    assert log.mean_power_w(0.0, 1.0) == pytest.approx(600.0)
    assert log.mean_power_w(0.05, 0.35) == pytest.approx(600.0), "steps at 0.1, 0.2 and 0.3 s"
    Scripted(log, [(at, Reading(energy_j=energy)) for at, energy in ((0, 0), (0.1, 9), (0.3, 99))])
    assert log.mean_power_w(0.0, 0.4) == pytest.approx(450.0), "two steps are enough"
    assert log.mean_power_w(0.0, 0.15) is None, "a single step has no length"
    Scripted(log, [(at, Reading()) for at, _ in counter])
    assert log.mean_power_w(0.0, 1.0) is None


def test_nothing_of_nvml_is_needed(monkeypatch: pytest.MonkeyPatch):
    """E10: no library, no such card, or single values that the driver does not support."""

    def fails(*arguments: object) -> object:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlInit", fails)
    absent = Nvml("GPU-x")
    assert absent.read() == Reading()
    assert (absent.max_sm_clock_mhz(), absent.power_limit_w()) == (None, None)
    assert absent.other_processes() is None

    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: object())
    for name in (
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTemperature",
    ):
        monkeypatch.setattr(pynvml, name, fails)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetClockInfo", lambda device, which: 1980)
    assert Nvml("GPU-x").read() == Reading(sm_clock_mhz=1980.0)


@pytest.mark.parametrize(
    ("bits", "reasons"),
    [(0x0, ""), (0x1 | 0x2, ""), (0x4, "sw_power_cap"), (0x20 | 0x4, "sw_power_cap+sw_thermal"),
     (0x80, "hw_power_brake"), (0x8, "hw_slowdown")],
)  # fmt: skip
def test_throttle_reasons_are_nvml_s_bits(
    monkeypatch: pytest.MonkeyPatch, bits: int, reasons: str
) -> None:
    """Bits of `nvmlClocksEventReasons` in nvml.h; idle and application clocks slow no kernel."""
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByUUID", lambda uuid: object())
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCurrentClocksThrottleReasons", lambda device: bits)

    def fails(*arguments: object) -> object:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    for name in (
        "nvmlDeviceGetTotalEnergyConsumption",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetFieldValues",
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetTemperature",
    ):
        monkeypatch.setattr(pynvml, name, fails)
    assert Nvml("GPU-x").read().throttle_reasons == reasons


def test_a_summary_of_nothing_is_empty():
    assert summarize([]) == Reading()
