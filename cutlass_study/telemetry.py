"""What NVML tells about the card, logged by a thread and joined to samples by time.

The thread runs in the parent process, so that it never delays a launch. Clocks of parent and child
are one: `time.monotonic` counts from the system's start. A value that NVML lacks (WSL2, some
GeForce cards) is `None`, and the run goes on.
"""

from __future__ import annotations

import bisect
import itertools
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

import pynvml

PERIOD_S = 0.02  # NVML's own counters move every 20 to 100 ms
KEEP_S = 30.0
ENERGY_SPAN_S = 0.15
NEAREST_S = 0.3  # a sample shorter than the period takes the nearest reading, if this near
# nvmlClocksEventReasons bits (nvml.h). Idle and application-clock settings do not slow a kernel.
THROTTLE_REASONS = {
    0x4: "sw_power_cap",
    0x8: "hw_slowdown",
    0x10: "sync_boost",
    0x20: "sw_thermal",
    0x40: "hw_thermal",
    0x80: "hw_power_brake",
}


@dataclass(frozen=True, slots=True)
class Reading:
    """One look at the card, or the summary of several."""

    sm_clock_mhz: float | None = None
    power_w: float | None = None
    temperature_c: float | None = None
    energy_j: float | None = None  # since the driver was loaded
    throttle_reasons: str = ""  # "+"-joined names, "" if none or unknown


class Nvml:
    """NVML for one GPU, found by UUID (NVML's and CUDA's numbering differ)."""

    def __init__(self, uuid: str) -> None:
        self._device: Any = None
        try:
            pynvml.nvmlInit()
            self._device = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except pynvml.NVMLError:
            self._device = None

    def _ask(self, query: Callable[..., Any], *arguments: Any) -> float | None:
        if self._device is None:
            return None
        try:
            return float(query(self._device, *arguments))
        except pynvml.NVMLError:
            return None

    def _power_w(self) -> float | None:
        """Instantaneous power where the driver has it, else the average over about a second."""
        if self._device is None:
            return None
        try:
            (field,) = pynvml.nvmlDeviceGetFieldValues(
                self._device, [pynvml.NVML_FI_DEV_POWER_INSTANT]
            )
            if field.nvmlReturn == pynvml.NVML_SUCCESS:
                return float(field.value.uiVal) / 1000
        except pynvml.NVMLError:
            pass
        milliwatts = self._ask(pynvml.nvmlDeviceGetPowerUsage)
        return None if milliwatts is None else milliwatts / 1000

    def read(self) -> Reading:
        """Clock in MHz, power in W, temperature in °C, energy in J and throttle reasons, now."""
        millijoules = self._ask(pynvml.nvmlDeviceGetTotalEnergyConsumption)
        bits = int(self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0)
        return Reading(
            self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            self._power_w(),
            self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            None if millijoules is None else millijoules / 1000,
            "+".join(name for bit, name in THROTTLE_REASONS.items() if bits & bit),
        )

    def max_sm_clock_mhz(self) -> float | None:
        return self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)

    def power_limit_w(self) -> float | None:
        milliwatts = self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if milliwatts is None else milliwatts / 1000

    def other_processes(self) -> int | None:
        """How many processes besides ours compute on the card; `None` where NVML can't tell.

        One entry is our own GPU process. It can't be told by its number, which differs in a
        container. What also draws there (a desktop on Windows) does not count.
        """
        if self._device is None:
            return None
        try:
            computing = pynvml.nvmlDeviceGetComputeRunningProcesses(self._device)
            drawing = pynvml.nvmlDeviceGetGraphicsRunningProcesses(self._device)
        except (pynvml.NVMLError, pynvml.NVMLLibraryMismatchError):
            return None
        others = {process.pid for process in computing} - {process.pid for process in drawing}
        return max(0, len(others) - 1)

    def driver_version(self) -> str:
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return ""


def summarize(readings: list[Reading]) -> Reading:
    """Medians, and every throttle reason that was active at any time."""

    def middle(name: str) -> float | None:
        values = [value for reading in readings if (value := getattr(reading, name)) is not None]
        return median(values) if values else None

    reasons = {r for reading in readings for r in reading.throttle_reasons.split("+") if r}
    return Reading(
        middle("sm_clock_mhz"),
        middle("power_w"),
        middle("temperature_c"),
        None,
        "+".join(name for name in THROTTLE_REASONS.values() if name in reasons),
    )


class TelemetryLog:
    """A thread that reads the card every `PERIOD_S` and remembers the last `KEEP_S`."""

    def __init__(self, read: Callable[[], Reading]) -> None:
        self._read = read
        self._log: deque[tuple[float, Reading]] = deque(maxlen=int(KEEP_S / PERIOD_S))
        self._lock, self._stop = threading.Lock(), threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            reading = self._read()
            with self._lock:
                self._log.append((time.monotonic(), reading))
            self._stop.wait(PERIOD_S)

    def between(self, start_s: float, end_s: float) -> Reading:
        """What was read from `start_s` to `end_s` (`time.monotonic`), or the nearest reading."""
        with self._lock:
            log = list(self._log)
        times = [moment for moment, _ in log]
        inside = log[bisect.bisect_left(times, start_s) : bisect.bisect_right(times, end_s)]
        if not inside and log:
            middle = (start_s + end_s) / 2
            nearest = min(log, key=lambda entry: abs(entry[0] - middle))
            inside = [nearest] if abs(nearest[0] - middle) <= NEAREST_S else []
        return summarize([reading for _, reading in inside])

    def mean_power_w(self, start_s: float, end_s: float) -> float | None:
        """Power from the energy counter between its first and last step within the window.

        The counter moves every 0.1 s or so; `None` if no two steps are `ENERGY_SPAN_S` apart.
        """
        with self._lock:
            log = [
                (t, r.energy_j)
                for t, r in self._log
                if start_s <= t <= end_s and r.energy_j is not None
            ]
        steps = [now for before, now in itertools.pairwise(log) if now[1] != before[1]]
        if len(steps) < 2 or steps[-1][0] - steps[0][0] < ENERGY_SPAN_S:
            return None
        return (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])

    def stop(self) -> None:
        """End the thread; safe to call twice."""
        self._stop.set()
        self._thread.join()
