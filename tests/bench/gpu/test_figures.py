"""How the GPU's benchmark reads what the driver and the profiler say."""

import pytest

from penstock.bench.gpu.ceilings import clocks, read
from penstock.bench.gpu.profile import by_name, short_name
from tests.kernel_sets import HAS_GPU


def test_clocks_are_read_from_the_drivers_line():
    assert read("1980, 2619, 54, 612.31, 0x0000000000000024\n") == {
        "SM, MHz": 1980.0, "memory, MHz": 2619.0, "°C": 54.0, "W": 612.31, "held back by": "power, heat"}
    assert read("345, 2619, 30, 71.0, 0x0")["held back by"] == "nothing"
    with pytest.raises(ValueError, match="N/A"):
        read("[N/A], 2619, 30, 71.0, 0x0")


@pytest.mark.skipif(HAS_GPU, reason="there is a GPU")
def test_without_a_gpu_there_are_no_clocks():
    assert clocks() == {"note": "no GPU has clocks here"}


def test_kernels_of_one_name_are_added_up():
    events = [{"name": "void at::native::(anonymous namespace)::copy<float>(int)", "dur": 4.0},
              {"name": "decode_segments", "dur": 10.0}, {"name": "decode_segments", "dur": 14.0},
              {"name": "void at::native::(anonymous namespace)::copy<int>(int)", "dur": 2.0}]
    kernels = by_name(events, num_steps=2)
    assert [(kernel.name, kernel.launches) for kernel in kernels] == [("decode_segments", 1.0), ("copy", 1.0)]
    assert [kernel.seconds for kernel in kernels] == pytest.approx([12e-6, 3e-6])


def test_a_name_without_a_template_stays_whole():
    assert short_name("nvjet_tst_192x128_64x3_2x1_v_bz_coopA_NTN") == "nvjet_tst_192x128_64x3_2x1_v_bz_coopA_NTN"
    assert short_name("Memcpy DtoD (Device -> Device)") == "Memcpy DtoD"
