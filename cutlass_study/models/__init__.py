"""Performance models that can be wrong: each with intervals, held-out errors, regret, and a null.

`report.evaluate` runs all of them on recorded data. Nothing here compiles, loads CUDA or measures.
"""

from cutlass_study.models.report import ModelReport, evaluate

__all__ = ["ModelReport", "evaluate"]
