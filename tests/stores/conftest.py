"""What several tests of the stores share."""

import os
import shutil
from pathlib import Path

import pytest

TRANSCRIPTS = Path(__file__).parents[1] / "transcripts"


@pytest.fixture
def place(tmp_path):
    """A copy of a fixture that nobody has written to for a while."""

    def copy(layout):
        root = tmp_path / layout
        shutil.copytree(TRANSCRIPTS / layout, root)
        for path in root.rglob("*.jsonl"):
            os.utime(path, (1, 1))
        return root

    return copy
