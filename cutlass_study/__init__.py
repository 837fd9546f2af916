"""CUTLASS configuration-sweep study toolkit: FP16 GEMM pipeline depth on one's own GPU."""

__version__ = "0.1.0"
