"""Asks NVIDIA's library; run as a process of its own: one JSON request in, one JSON answer out.

Version 0.1.0.27 crashes (segmentation fault) when its interface object is destroyed, so the answer
is written while that lives and the process then ends without cleaning up.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from importlib.metadata import version
from typing import Any


def answer(request: dict[str, Any], write: Callable[[dict[str, Any]], None]) -> None:
    """Write suggestions by problem for one GPU, in the library's order (best first)."""
    import nvMatmulHeuristics as library  # noqa: N813

    interface = library.NvMatmulHeuristicsInterface(
        library.NvMatmulHeuristicsTarget.CUTLASS3,
        precision="HSS",  # FP16 inputs, FP32 accumulate, FP32 output
        flags=library.NvMatmulHeuristicsFlags.PERF_MODEL_BASED_AUTO_TUNING,
    )
    hardware = interface.createHardwareDescriptor()
    interface.setHardwarePredefinedGpu(
        hardware, library.NvMatmulHeuristicsNvidiaGpu[request["gpu"]]
    )
    layout = library.NvMatmulHeuristicsMatmulLayout.TN_ROW_MAJOR
    if not interface.loadInternalDiscoverySet(layout, hardware):
        write({"reason": f"it has no data for {request['gpu']} with CUTLASS 3 kernels"})
        return
    suggestions = {}
    for problem in request["problems"]:
        m, n, k = (int(part) for part in problem.split("x"))
        found = interface.get_with_mnk(m, n, k, layout, request["count"], hardware)
        suggestions[problem] = [_plain(one) for one in found]
    write({"version": version("nvidia-matmul-heuristics"), "suggestions": suggestions})


def _plain(found: dict[str, Any]) -> dict[str, Any]:
    kernel = found["kernel"]
    return {
        "tile": [kernel.cta_tile_m, kernel.cta_tile_n, kernel.cta_tile_k],
        "cluster": [kernel.cluster_m, kernel.cluster_n],
        "stages": kernel.stages,
        "runtime_s": found["runtime"],
    }


def write_and_end(reply: dict[str, Any]) -> None:
    """One line to standard output, then the end of the process."""
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    answer(json.load(sys.stdin), write_and_end)
