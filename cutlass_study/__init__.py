"""CUTLASS configuration-sweep study toolkit: FP16 GEMM pipeline depth on one's own GPU."""

import time

__version__ = "0.1.0"
STARTED_S = time.monotonic()  # of the program, as near as makes no difference
