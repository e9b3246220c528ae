import subprocess
import sys
from pathlib import Path

import pytest

import kernels
from kernels import dispatch


@pytest.fixture
def fresh_choice():
    dispatch.kernel_set.cache_clear()
    yield
    dispatch.kernel_set.cache_clear()


@pytest.mark.parametrize("value", [None, "", "reference"])
def test_the_reference_is_the_default(monkeypatch, fresh_choice, value):
    monkeypatch.delenv("KERNELS", raising=False)
    if value is not None:
        monkeypatch.setenv("KERNELS", value)
    assert dispatch.kernel_set() == "reference"
    assert dispatch.choose("rms_norm").__name__ == "kernels.rms_norm.reference"


@pytest.mark.parametrize("value", ["cpu", "gpu", "fast"])
def test_a_choice_that_cannot_be_met_is_an_error(monkeypatch, fresh_choice, value):
    monkeypatch.setenv("KERNELS", value)
    with pytest.raises(ValueError, match=f"KERNELS={value}: these kernels do not exist.*which has: reference"):
        dispatch.kernel_set()


def test_importing_the_package_imports_nothing():
    """transformers imports a package of this name to see whether it is Hugging Face's."""
    assert Path(kernels.__file__).read_text() == ""
    program = (
        "import sys; before = set(sys.modules); import kernels; new = set(sys.modules) - before;"
        "assert new == {'kernels'}, new; assert not hasattr(kernels, '__version__')"
    )
    root = Path(kernels.__file__).parent.parent
    subprocess.run([sys.executable, "-c", program], cwd=root, check=True, timeout=60)
