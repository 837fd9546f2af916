"""How the tests are run; fixtures stand in their files."""

from __future__ import annotations

import pytest


def pytest_configure(config: pytest.Config) -> None:
    """Files go to the workers in their order, not by their number of tests.

    xdist would begin with the files of many tests; those of few but long ones, such as building the
    paper, came last, on one worker alone.
    """
    if hasattr(config.option, "loadscopereorder"):
        config.option.loadscopereorder = False
