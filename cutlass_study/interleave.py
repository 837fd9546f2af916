"""Two kernels at once on two streams, as the primary document ran cuBLAS and CUTLASS.

Runs in the child process, which a hang or a reset costs at most. Everywhere else in this toolkit
only one stream is active at a time.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from cutlass_study.driver import Event
from cutlass_study.tasks import Interleaved

if TYPE_CHECKING:
    from cutlass_study.gpu_session import OpenProblem

MOST_LAUNCHES = 20  # of each kernel: what stands in the document's queue before it synchronizes
Member = tuple["OpenProblem", str]


def run_pair(pair: tuple[Member, Member], launches: int, *, alternate: bool) -> Interleaved:
    """Launch both kernels `launches` times, at most MOST_LAUNCHES, and check both D afterwards.

    With `alternate` the launches take turns on two streams without a synchronization between them;
    without, the second kernel starts when the first is done. Each kernel has operands of its own.
    """
    launches = max(1, min(launches, MOST_LAUNCHES))
    kernels = [problem.kernels[name] for problem, name in pair]
    for (problem, _), kernel in zip(pair, kernels, strict=True):
        problem.operands.poison(0, copy_c=kernel.in_place)
    events = [(Event(), Event()) for _ in kernels]
    started_s = time.monotonic()
    # Whole turns of every kernel, or one kernel at a time: the same launches in another order.
    for group in [kernels] if alternate else [[kernel] for kernel in kernels]:
        members = [(kernel, events[kernels.index(kernel)]) for kernel in group]
        for kernel, (start, _) in members:
            start.record(kernel.stream)
        for _ in range(launches):
            for kernel, _ in members:
                kernel.launch(0)
        for kernel, (_, end) in members:
            end.record(kernel.stream)
        for kernel, _ in members:
            kernel.stream.synchronize()
    ended_s = time.monotonic()
    first, second = (start.elapsed_ms(end) / launches for start, end in events)
    reasons = []
    for (problem, _), kernel in zip(pair, kernels, strict=True):
        assert problem.reference
        reasons.append(problem.reference.compare(in_place=kernel.in_place).reason)
    wall_ms = 1000 * (ended_s - started_s) / launches
    return Interleaved(
        launches, (first, second), wall_ms, (reasons[0], reasons[1]), started_s, ended_s
    )
