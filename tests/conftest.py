import os

import pytest
import torch

# The tensors of the tests are small, and threads of torch's that wait for a core make them many times slower.
torch.set_num_threads(1)

# Triton reads it as kernels are defined, and what the tests start inherits it.
if not torch.cuda.is_available():
    os.environ["TRITON_INTERPRET"] = "1"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--every-case", action="store_true",
                     help="run every case of the kernels' grids; without it, those in which every two values meet")
