"""Names that experiments share between measuring and explaining. Imports nothing of CUDA."""

from __future__ import annotations

from typing import Literal, get_args

Name = Literal["inputs", "alphabeta", "cache", "labels", "interleave", "nvbench", "settle"]
NAMES: tuple[Name, ...] = get_args(Name)
QUESTIONS: dict[Name, str] = {
    "inputs": "how much input values change speed, clock and power",
    "alphabeta": "what reading C and beta=1 cost",
    "cache": "what operands in the L2 cache gain, and what flushing it costs",
    "labels": "how often one kernel is called different from itself",
    "interleave": "what happens when cuBLAS and CUTLASS launches take turns on two streams",
    "nvbench": "whether NVIDIA's cuda.bench measures the same times",
    "settle": "how long a kernel must run before and during a sustained sample",
}
DISTRIBUTION_ORDER = ("zeros", "integers", "uniform", "normal")
# Values of Identity.condition; "" is the study's own way: rotated operands, launches in batches.
HOT, FLUSH, ALONE = "hot", "flush", "alone"
CACHE_CONDITIONS = ("", HOT, FLUSH, ALONE)
SERIAL, INTERLEAVED = "serial", "interleaved"
PEER, OWN_ALONE = "cuda.bench", "cold, back to back"  # ours; published data hold the words
REPETITION, LABEL = "repetition ", ", label "
SETTLING = "settling"  # chunks of a span that begins with another kernel's heat and clock
WITHOUT: tuple[Name, ...] = ("inputs", "alphabeta")  # experiments whose rows have no condition
