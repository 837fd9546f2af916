"""One kernel back to back for a span, as chunks: how its speed settles after the kernel before.

Runs in the child process, so that no request lies between two chunks.
"""

from __future__ import annotations

import time

from cutlass_study.kernels import Kernel
from cutlass_study.measure import Sampler
from cutlass_study.tasks import Taken

SPAN_S = 2.4  # three periods in which the clock of an H200 hunts under its power limit
CHUNK_MS = 25.0  # short enough to see that, far above the resolution of events


def run_span(
    sampler: Sampler, kernel: Kernel, sets: int, round_: int, estimate_ms: float
) -> list[Taken]:
    """Chunks of about `CHUNK_MS`, at least one launch each, until `SPAN_S` have passed.

    The queue is waited for after each, and its delivered clock is read: under a millisecond of
    rest, which the times leave out.
    """
    end_s = time.monotonic() + SPAN_S
    chunks = []
    while time.monotonic() < end_s:
        chunks.append(sampler.chunk(kernel, sets, round_, estimate_ms, CHUNK_MS))
    return chunks
