"""What NVML tells about the card. A value it lacks (WSL2, some GeForce cards) is `None`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pynvml

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
    """One look at the card."""

    sm_clock_mhz: float | None
    power_w: float | None
    temperature_c: float | None
    throttle_reasons: str  # "+"-joined names, "" if none or unknown


class Telemetry:
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

    def read(self) -> Reading:
        """Clock in MHz, power in W, temperature in °C and the active throttle reasons, now."""
        milliwatts = self._ask(pynvml.nvmlDeviceGetPowerUsage)
        bits = int(self._ask(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons) or 0)
        return Reading(
            self._ask(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            None if milliwatts is None else milliwatts / 1000,
            self._ask(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            "+".join(name for bit, name in THROTTLE_REASONS.items() if bits & bit),
        )

    def max_sm_clock_mhz(self) -> float | None:
        return self._ask(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)

    def power_limit_w(self) -> float | None:
        milliwatts = self._ask(pynvml.nvmlDeviceGetEnforcedPowerLimit)
        return None if milliwatts is None else milliwatts / 1000

    def driver_version(self) -> str:
        try:
            return str(pynvml.nvmlSystemGetDriverVersion())
        except pynvml.NVMLError:
            return ""
