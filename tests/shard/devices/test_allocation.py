"""What is set for torch's allocator and NCCL, and that it is set before torch is there."""

import os
import subprocess
import sys

import pytest

from penstock.shard.devices.allocation import prepare
from tests.paths import ROOT


@pytest.mark.parametrize(("given", "expected"), [
    ({}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "NCCL_GRAPH_REGISTER": "0"}),
    ({"NCCL_GRAPH_REGISTER": "1"}, {"PYTORCH_ALLOC_CONF": "expandable_segments:True", "NCCL_GRAPH_REGISTER": "1"}),
    ({"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}, {"PYTORCH_CUDA_ALLOC_CONF": "max_split_size_mb:64"}),
    ({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, {"PYTORCH_ALLOC_CONF": "expandable_segments:False"}),
    ({"PYTORCH_ALLOC_CONF": "max_split_size_mb:64, expandable_segments: True"},
     {"PYTORCH_ALLOC_CONF": "max_split_size_mb:64, expandable_segments: True", "NCCL_GRAPH_REGISTER": "0"}),
])
def test_what_the_user_has_set_stays(
    given: dict[str, str], expected: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(given))
    prepare()
    assert os.environ == expected


def test_torch_is_not_there_yet() -> None:
    """When the process of a shard begins."""
    code = "import sys, penstock.shard.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0
