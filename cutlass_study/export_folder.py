"""Whether the folder to publish in can be used, asked before hours of work and not after."""

from __future__ import annotations

import tempfile
from pathlib import Path

from cutlass_study.published import refuse_foreign_folder
from cutlass_study.records import DeviceRecord, EnvironmentProblem
from cutlass_study.study_data import DEVICE_FILE


def check_export_folder(directory: Path, device: DeviceRecord | None) -> None:
    """Make the folder and raise `EnvironmentProblem` if it isn't one for this device's records.

    Without a device: for static records.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=directory):
            pass
    except OSError as error:
        raise EnvironmentProblem(
            f"folder '{directory}' can't be written ({error.strerror}); give another one with "
            "--export"
        ) from error
    if device is not None:
        refuse_foreign_folder(directory, device)
    elif (directory / DEVICE_FILE).exists():
        raise EnvironmentProblem(
            f"'{directory}' holds measured results; give static records another folder with "
            "--export"
        )
