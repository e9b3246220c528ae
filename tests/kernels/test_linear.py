from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from penstock.kernels import dispatch, native, tuning
from penstock.kernels.linear import any_order, cpu, fixed_order, linear, pack, weight_rows
from penstock.kernels.linear.choices import PERSISTENT_ROWS, choices
from tests import kernel_sets
from tests.kernels.accuracy import DTYPES, TOKEN_COUNTS, assert_rounded_once, relative_rms

SHAPES = [(1, 8), (3, 24), (65, 80), (256, 704), (130, 1000)]  # N, K
ODD = (67, 8 * 45)  # segments of no whole pair
TOLERANCE = {torch.float32: 1e-6, torch.bfloat16: 2**-8, torch.float16: 2**-11}  # half a unit in the last place


@pytest.fixture(autouse=True)
def is_deterministic(monkeypatch):
    """The bit contract holds on a GPU too, but in the tests that ask for its absence."""
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", True)


@pytest.fixture
def reference(monkeypatch):
    kernel_sets.use(monkeypatch, "reference")


@pytest.fixture
def poison(monkeypatch):
    """What an op allocates is full of NaN, and a packed weight has memory of its own, for sanitizers to guard."""
    empty = torch.empty
    monkeypatch.setattr(torch, "empty", lambda *size, **options: empty(*size, **options).fill_(torch.nan))
    monkeypatch.setattr(cpu, "huge", lambda num_bytes: empty(num_bytes, dtype=torch.uint8).fill_(0xFF))


@pytest.fixture
def set_threads():
    yield lambda count: native.library.set_threads(count, None)
    native.library.set_threads(1, None)


def shape_for(kernel_set, shape):
    """A shape to test with: the interpreter takes a second for what a processor does in a millisecond."""
    return (35, 8 * 45) if kernel_set == "gpu" and not kernel_sets.HAS_GPU else shape


def configs(num_tokens, x, weight, segments, persistent):
    """All that a GPU may take; in the interpreter, where they compute the same, one of those that differ in stages."""
    shape = fixed_order.shape_of(x[:num_tokens], weight, segments, torch.float32)
    rows = max(shape.rows, PERSISTENT_ROWS) if persistent else shape.rows
    found = choices(replace(shape, rows=rows, capability=shape.capability or 90))
    return [config for config in found if config["IS_PERSISTENT"] == persistent
            and (config["num_stages"] == 3 or kernel_sets.HAS_GPU)]


def tensors(num_tokens, shape, dtype, seed=0):
    generator = torch.Generator().manual_seed(seed)
    out_features, in_features = shape
    x = torch.randn(num_tokens, in_features, generator=generator).to(dtype)
    weight = torch.randn(out_features, in_features, generator=generator).to(dtype)
    return x, weight, torch.randn(out_features, generator=generator).to(dtype)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
def test_one_segment_is_rounded_once(reference, num_tokens, shape, dtype):
    x, weight, bias = tensors(num_tokens, shape, dtype)
    exact = functional.linear(x.double(), weight.double())
    packed = pack(weight)
    assert (packed.out_features, packed.in_features, packed.segments, packed.dtype) == (*shape, 1, dtype)
    out = linear(x, packed)
    assert out.dtype == dtype
    assert_rounded_once(out, exact)
    with_bias = linear(x, packed, bias, torch.float32)
    assert with_bias.dtype == torch.float32
    assert_rounded_once(with_bias, exact + bias.double())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("shape", [*SHAPES, ODD])
def test_is_near_the_exact_sum(compiled_kernels, poison, shape, segments, dtype):
    shape = shape if shape[0] < 100 else shape_for(compiled_kernels, shape)
    for num_tokens in (1, 7) if compiled_kernels == "gpu" else (1, 2, 7, 64):
        x, weight, bias = tensors(num_tokens, shape, dtype)
        exact = functional.linear(x.double(), weight.double(), bias.double())
        packed = pack(weight, segments)
        assert relative_rms(linear(x, packed, bias), exact) < TOLERANCE[dtype]
        assert relative_rms(linear(x, packed, bias, torch.float32), exact) < TOLERANCE[torch.float32]


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_few_rows_are_multiplied_as_tuning_found(gpu_kernels, monkeypatch, poison, dtype):
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", False)
    monkeypatch.setattr(any_order, "MIN_INPUTS", 64)
    x, weight, bias = tensors(64, (35, 128), dtype)
    packed, exact = pack(weight), functional.linear(x.double(), weight.double(), bias.double())
    asked, config = [], any_order.TORCHS
    monkeypatch.setattr(any_order.tuning, "best", lambda op, key, found: (asked.append(key), config)[1])
    for num_tokens, rows in ((1, 1), (17, 32), (64, 64)):
        found = any_order.choices(replace(any_order._shape(x[:num_tokens], weight, dtype), capability=90))
        assert {each["PARTS"] for each in found} == {0, 1, 2}
        for config in found:
            if config.get("num_stages", 3) == 3 or kernel_sets.HAS_GPU:
                any_order._config.cache_clear()
                out = linear(x[:num_tokens], packed, bias)
                assert relative_rms(out, exact[:num_tokens]) < TOLERANCE[dtype], config
                assert asked.pop() == f"{rows} x [35, 128] in 1, 16 bits"
    any_order._config.cache_clear()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_torch_multiplies_what_was_not_measured(gpu_kernels, monkeypatch, tmp_path, dtype):
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", False)
    monkeypatch.setattr(fixed_order, "matmul", None)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    tuning.forget()
    x, weight, bias = tensors(65, (35, 1024), dtype)
    packed = pack(weight)
    few, many = linear(x[:64], packed, bias), linear(x, packed, bias)
    assert relative_rms(few, many[:64].double()) < TOLERANCE[dtype]
    monkeypatch.setattr(any_order.tuning, "best", None)
    assert torch.equal(linear(x, packed, bias), many), "nobody asks what was found for many rows, which is nothing"
    tuning.forget()


@pytest.mark.parametrize("x_dtype", DTYPES)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(3, 24), (65, 80), ODD])
def test_without_the_bit_contract(gpu_kernels, monkeypatch, poison, shape, dtype, x_dtype):
    monkeypatch.setattr(dispatch._wishes, "is_deterministic", False)
    x, weight, bias = tensors(7, shape, dtype)
    x = x.to(x_dtype)
    exact = functional.linear(x.double(), weight.double())
    for segments in (1, 8):
        packed = pack(weight, segments)
        partial = linear(x, packed, partial=True)
        assert partial.dtype == torch.float32
        assert relative_rms(partial, exact) < TOLERANCE[torch.float32]
        for out_dtype in DTYPES:
            assert relative_rms(linear(x, packed, out_dtype=out_dtype), exact) < TOLERANCE[out_dtype]
            for own_bias in (bias, bias.float()):
                out = linear(x, packed, own_bias, out_dtype)
                assert out.dtype == out_dtype
                assert relative_rms(out, exact + bias.double()) < TOLERANCE[out_dtype]


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("bias_dtype", DTYPES)
@pytest.mark.parametrize("weight_dtype", DTYPES)
@pytest.mark.parametrize("x_dtype", DTYPES)
def test_any_dtypes_go_together(compiled_kernels, poison, x_dtype, weight_dtype, bias_dtype):
    for shape in ((65, 80),) if compiled_kernels == "gpu" else ((65, 80), ODD):
        x, weight, bias = tensors(5, shape, torch.float32)
        x, weight, bias = x.to(x_dtype), weight.to(weight_dtype), bias.to(bias_dtype)
        exact = functional.linear(x.double(), weight.double(), bias.double())
        for out_dtype in DTYPES:
            assert relative_rms(linear(x, pack(weight, 8), bias, out_dtype), exact) < TOLERANCE[out_dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
def test_eight_segments_are_rounded_and_added_in_a_tree(reference, shape, dtype):
    x, weight, bias = tensors(17, shape, dtype)
    width = shape[1] // 8
    s = [
        functional.linear(x[:, i : i + width].double(), weight[:, i : i + width].double()).float()
        for i in range(0, shape[1], width)
    ]
    tree = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    packed = pack(weight, segments=8)
    assert torch.equal(linear(x, packed, partial=True), tree)
    assert torch.equal(linear(x, packed), tree.to(dtype))
    assert torch.equal(linear(x, packed, bias), (tree + bias.float()).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(256, 704), ODD])
def test_segments_are_weights_of_their_own(kernel_set, shape, dtype):
    shape = shape_for(kernel_set, shape)
    x, weight, bias = tensors(17, shape, dtype)
    width = shape[1] // 8
    s = [
        linear(own_x.contiguous(), pack(own_weight.contiguous()), out_dtype=torch.float32)
        for own_x, own_weight in zip(x.split(width, dim=1), weight.split(width, dim=1), strict=True)
    ]
    tree = ((s[0] + s[1]) + (s[2] + s[3])) + ((s[4] + s[5]) + (s[6] + s[7]))
    assert torch.equal(linear(x, pack(weight, 8), partial=True), tree)
    assert torch.equal(linear(x, pack(weight, 8), bias), (tree + bias).to(dtype))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("num_ranks", [2, 4, 8])
def test_partial_sums_of_ranks_make_the_whole(kernel_set, num_ranks, dtype):
    shape = shape_for(kernel_set, (256, 704))
    x, weight, _ = tensors(33, shape, dtype)
    whole = linear(x, pack(weight, segments=8), out_dtype=torch.float32)
    width = shape[1] // num_ranks
    parts = [
        linear(own_x.contiguous(), pack(own_weight.contiguous(), segments=8 // num_ranks), partial=True)
        for own_x, own_weight in zip(x.split(width, dim=1), weight.split(width, dim=1), strict=True)
    ]
    while len(parts) > 1:
        parts = [left + right for left, right in zip(parts[0::2], parts[1::2], strict=True)]
    assert torch.equal(parts[0], whole)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 8])
@pytest.mark.parametrize("num_tokens", TOKEN_COUNTS)
@pytest.mark.parametrize("shape", [(256, 704), ODD])
@pytest.mark.parametrize("kernel_set", kernel_sets.PROCESSOR_SETS, indirect=True)
def test_a_row_has_the_same_bits_in_any_batch(kernel_set, shape, num_tokens, segments, dtype):
    x, weight, bias = tensors(num_tokens, shape, dtype)
    packed = pack(weight, segments)
    batch = linear(x, packed, bias, torch.float32)
    alone = torch.cat([linear(row[None], packed, bias, torch.float32) for row in x])
    assert torch.equal(batch, alone)


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 8])
def test_rows_have_the_same_bits_on_a_gpu(gpu_kernels, poison, segments, dtype):
    x, weight, bias = tensors(130, shape_for(gpu_kernels, (256, 704)), dtype)
    packed = pack(weight, segments)
    batch = linear(x, packed, bias, torch.float32)
    for begin, end in ((0, 1), (63, 64), (129, 130), (0, 3), (5, 21), (50, 67), (1, 65), (65, 130), (2, 128)):
        assert torch.equal(linear(x[begin:end], packed, bias, torch.float32), batch[begin:end])


@pytest.mark.parametrize("dtype", DTYPES)
def test_many_rows_have_the_same_bits_in_parts(cpu_kernels, dtype):
    """More rows than are converted at a time, and a panel of several blocks."""
    x, weight, bias = tensors(1030, (130, 1000), dtype)
    packed = pack(weight, 2)
    whole = linear(x, packed, bias, torch.float32)
    parts = torch.cat([linear(part, packed, bias, torch.float32) for part in x.split((1, 2, 45, 300, 682))])
    assert torch.equal(whole, parts)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 2, pytest.param(8, marks=pytest.mark.slow),
                                      pytest.param(16, marks=pytest.mark.slow)])
def test_no_configuration_changes_a_bit(gpu_kernels, poison, segments, dtype):
    """Tiles that hang over, and sums of one program or of many. Stages and warps do not exist in the interpreter."""
    x, weight, bias = (tensor.to(dispatch.device()) for tensor in tensors(66, (35, 16 * 21), dtype))
    expected = fixed_order.matmul(x, weight, segments, bias, torch.float32)
    for num_tokens in (1, 66):
        for config in configs(num_tokens, x, weight, segments, persistent=False):
            out = fixed_order.matmul(x[:num_tokens], weight, segments, bias, torch.float32, config)
            assert torch.equal(out, expected[:num_tokens]), config


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("num_tokens", "segments"), [(600, 8), (130, 8), (130, 1), (130, 2)])
def test_programs_of_several_tiles_change_no_bit(gpu_kernels, monkeypatch, poison, segments, num_tokens, dtype):
    """They have different numbers of tiles, each of which begins anew. A row alone is computed by one of a tile."""
    monkeypatch.setattr(fixed_order, "num_processors", lambda device: 3)
    x, weight, bias = (tensor.to(dispatch.device()) for tensor in tensors(num_tokens, (140, 8 * 24), dtype))
    found = configs(num_tokens, x, weight, segments, persistent=True)
    assert found
    for config in found:
        out = fixed_order.matmul(x, weight, segments, bias, torch.float32, config)
        for begin, end in ((0, 1), (num_tokens - 67, num_tokens)):
            few = fixed_order.matmul(x[begin:end], weight, segments, bias, torch.float32)
            assert torch.equal(out[begin:end], few), config


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 8])
def test_threads_change_no_bits(cpu_kernels, set_threads, segments, dtype):
    for num_tokens in (1, 16, 100):
        x, weight, bias = tensors(num_tokens, (330, 1000), dtype)
        results = []
        for count in (1, 2, 3):
            set_threads(count)
            results += [linear(x, pack(weight, segments), bias, torch.float32) for _ in range(3)]
        assert all(torch.equal(result, results[0]) for result in results)


def test_float32_paths_have_the_same_bits(monkeypatch):
    if not {"avx512", "avx2"} <= set(native.processor_paths()):
        pytest.skip("the processor has one of them only")
    x, weight, bias = tensors(9, ODD, torch.bfloat16)
    results = []
    for path in ("avx512", "avx2"):
        kernel_sets.use(monkeypatch, f"cpu-{path}")
        results.append(linear(x, pack(weight, 8), bias))
    assert torch.equal(*results)


@pytest.mark.parametrize("dtype", DTYPES)
def test_rows_of_a_weight_come_back(kernel_set, poison, dtype):
    for shape in (*SHAPES, ODD, (70, 1), (70, 33)):
        _, weight, _ = tensors(1, shape, dtype)
        for ids in ([], [0], [shape[0] - 1, 0, shape[0] // 2, 0]):
            rows = weight_rows(pack(weight), torch.tensor(ids, dtype=torch.int64))
            assert rows.dtype == dtype
            assert torch.equal(rows, weight[ids])


@pytest.mark.slow_in_interpreter
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("segments", [1, 8])
def test_a_delta_is_added_before_the_bias(kernel_set, poison, segments, dtype):
    x, weight, bias = tensors(5, (35, 8 * 45), dtype)
    delta = torch.randn(5, 35, generator=torch.Generator().manual_seed(3))
    delta[1:4] = -0.0
    packed = pack(weight, segments)
    product = linear(x, packed, out_dtype=torch.float32)
    for own_bias, added in ((None, product + delta), (bias, product + delta + bias.float())):
        out, plain = linear(x, packed, own_bias, delta=delta), linear(x, packed, own_bias)
        assert torch.equal(out[1:4], plain[1:4])
        assert torch.equal(out[::4], added[::4].to(dtype))
    assert torch.equal(linear(x, packed, partial=True, delta=delta), product + delta)
    with pytest.raises(ValueError, match=r"linear: delta has shape \[5, 34\], expected \[5, 35\]"):
        linear(x, packed, delta=delta[:, 1:])


def test_no_rows(kernel_set):
    x, weight, bias = tensors(0, (65, 80), torch.bfloat16)
    assert linear(x, pack(weight), bias).shape == (0, 65)
    assert linear(x, pack(weight, 8), bias).shape == (0, 65)


def test_no_inputs(kernel_set):
    x, weight, bias = tensors(7, (65, 0), torch.bfloat16)
    assert torch.equal(linear(x, pack(weight), bias), bias.expand(7, 65))
    assert torch.equal(linear(x, pack(weight, 8)), torch.zeros(7, 65, dtype=torch.bfloat16))


def test_errors_name_the_shapes(kernel_set):
    x, weight, bias = tensors(3, (65, 80), torch.float32)
    with pytest.raises(ValueError, match=r"pack: weight \[65, 80\]: 32 segments do not divide K = 80"):
        pack(weight, segments=32)
    with pytest.raises(ValueError, match="pack: 3 segments is no power of two"):
        pack(weight, segments=3)
    with pytest.raises(ValueError, match=r"pack: weight has shape \[65\], expected \[N, K\]"):
        pack(bias)
    with pytest.raises(ValueError, match=r"pack: weight \[80, 65\] is not contiguous"):
        pack(weight.t())
    with pytest.raises(ValueError, match=r"linear: x has shape \[3, 79\], expected \[3, 80\]"):
        linear(x[:, :79].contiguous(), pack(weight))
    with pytest.raises(ValueError, match=r"linear: bias has shape \[64\], expected \[65\]"):
        linear(x, pack(weight), bias[:64])
    with pytest.raises(ValueError, match=r"linear: x \[3, 80\] has dtype torch.float64"):
        linear(x.double(), pack(weight))
    with pytest.raises(ValueError, match="partial sum is float32 and has no bias"):
        linear(x, pack(weight, 2), bias, partial=True)
    with pytest.raises(ValueError, match="partial sum is float32 and has no bias"):
        linear(x, pack(weight, 2), out_dtype=torch.bfloat16, partial=True)
    with pytest.raises(ValueError, match=r"weight_rows: the weight \[65, 80\] is packed in 2 segments, expected 1"):
        weight_rows(pack(weight, 2), torch.tensor([0]))
    with pytest.raises(ValueError, match=r"weight_rows: ids \[1\] has dtype torch.int32"):
        weight_rows(pack(weight), torch.tensor([0], dtype=torch.int32))
