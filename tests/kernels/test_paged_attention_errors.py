import pytest
import torch

from penstock.kernels.paged_attention import paged_attention
from tests import kernel_sets
from tests.kernels.paging import scene


def test_errors_name_the_shapes(kernel_set):
    made = scene([20, 5])
    q, tables = made.q[0][:2], made.tables
    starts, counts = torch.tensor([19, 4], dtype=torch.int32), torch.ones(2, dtype=torch.int32)

    def call(q=q, tables=tables, starts=starts, counts=counts, **form):
        paged_attention(q, made.cache, tables, starts, counts, scale=1.0, **form)

    call()
    call(is_decode=True)
    with pytest.raises(ValueError, match=r"q \[3, 4, 32\] has 3 rows, a decode step 2"):
        call(q=torch.ones(3, 4, 32), is_decode=True)
    with pytest.raises(ValueError, match=r"q has shape \[2, 4, 16\], expected \[2, 4, 32\]"):
        call(q=torch.ones(2, 4, 16))
    with pytest.raises(ValueError, match=r"q \[2, 3, 32\] has 3 heads, no multiple of 2 KV heads"):
        call(q=torch.ones(2, 3, 32))
    with pytest.raises(ValueError, match=r"starts has shape \[1\], expected \[2\]"):
        call(starts=starts[:1])
    with pytest.raises(ValueError, match=r"counts \[2\] has dtype torch.int64, expected torch.int32"):
        call(counts=counts.long())
    with pytest.raises(ValueError, match=r"tables \[2, 4\] has dtype torch.int64, expected torch.int32"):
        call(tables=tables.long())
    with pytest.raises(ValueError, match=r"sinks has shape \[2\], expected \[4\]"):
        call(sinks=torch.ones(2))
    with pytest.raises(ValueError, match=r"window -1 and softcap 0\.0 must not be negative"):
        call(window=-1)
    with pytest.raises(ValueError, match=r"a row of q \[2, 4, 32\] is not contiguous, its strides are \[128, 1, 4\]"):
        call(q=torch.ones(2, 32, 4).transpose(1, 2))


@pytest.mark.parametrize("kernel_set", kernel_sets.PROCESSOR_SETS, indirect=True)
def test_errors_name_the_values(kernel_set):
    """A GPU's values are not looked at, for that would be to wait for them."""
    made = scene([20, 5])

    def call(starts=(19, 4), counts=(1, 1)):
        starts, counts = (torch.tensor(values, dtype=torch.int32) for values in (starts, counts))
        paged_attention(made.q[0][:2], made.cache, made.tables, starts, counts, scale=1.0)

    call()
    with pytest.raises(ValueError, match=r"q has 2 rows, counts are \[1, 2\] with sum 3"):
        call(counts=(1, 2))
    with pytest.raises(ValueError, match=r"q has 2 rows, counts are \[3, -1\] with sum 2"):
        call(counts=(3, -1))
    with pytest.raises(ValueError, match=r"starts \[-1, 4\] and counts \[1, 1\] need 0 to 5"):
        call(starts=(-1, 4))
    with pytest.raises(ValueError, match=r"tables \[2, 4\] hold 64 positions in blocks of 16; .* need 0 to 65"):
        call(starts=(64, 4))
