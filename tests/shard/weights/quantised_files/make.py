"""Makes the checkpoints beside this file with the formats' own libraries, and what these say their weights are.

Needs more than the tests do: compressed-tensors 0.20, bitsandbytes 0.50, GPTQModel 7.7 and AutoAWQ 0.2.9, whose sources
are enough. `python -m tests.shard.weights.quantised_files.make AUTOAWQ_SOURCES`.

Each folder has a model of one block, and in expected.json the SHA-256 of each linear's values as the library
dequantises them, float32 [N, K].
"""

import hashlib
import importlib.util
import json
import shutil
import sys
import tempfile
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from tests.tiny_models import make_tiny

FOLDER = Path(__file__).parent
Tensors = dict[str, Tensor]
Values = dict[str, Tensor]               # by linear


def digest(values: Tensor) -> str:
    return hashlib.sha256((values.contiguous() + 0.0).numpy().tobytes()).hexdigest()  # -0 is 0


def make_dense(path: Path) -> Path:
    return make_tiny(path, heads=8, kv_heads=8, head_dim=8, layers=1, hidden=64, intermediate=128, vocab=64,
                     dtype=torch.bfloat16)


def linears(tensors: Tensors) -> dict[str, Tensor]:
    return {name.removesuffix(".weight"): tensor for name, tensor in tensors.items() if name.endswith("proj.weight")}


def by_linear(
    dense: Path, quantise: Callable[[str, Tensor], tuple[Tensors, Tensor]], config: dict[str, Any]
) -> tuple[Tensors, Values, dict[str, Any]]:
    """Quantises each linear by itself."""
    tensors = load_file(dense / "model.safetensors")
    values = {}
    for name, weight in linears(tensors).items():
        made, values[name] = quantise(name, weight.float())
        del tensors[f"{name}.weight"]
        tensors |= {f"{name}.{suffix}": tensor for suffix, tensor in made.items()}
    return tensors, values, config


def gptq(bits: int, group: int, symmetric: bool, is_ordered: bool, version: str) -> Callable[[Path], Any]:
    def quantise(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
        from gptqmodel.nn_modules.qlinear.torch import TorchLinear
        from gptqmodel.quantization import QuantizeConfig
        from gptqmodel.utils.model import convert_gptq_v2_to_v1_format_module

        outputs, inputs = weight.shape
        size = inputs if group == -1 else group
        generator = torch.Generator().manual_seed(inputs)
        order = torch.arange(inputs) if is_ordered else torch.randperm(inputs, generator=generator)
        of_inputs = torch.empty(inputs, dtype=torch.int32)
        of_inputs[order] = (torch.arange(inputs) // size).int()
        groups = weight[:, order].view(outputs, -1, size)
        most = 2**bits - 1
        if symmetric:
            scales, zeros = groups.abs().amax(2) * 2 / most, torch.full(groups.shape[:2], 2.0 ** (bits - 1))
        else:
            least, largest = groups.amin(2).clamp(max=0), groups.amax(2).clamp(min=0)
            scales = (largest - least) / most
            zeros = (-least / scales).round()
        scales = scales.half().float()
        linear = nn.Linear(inputs, outputs, bias=False)
        linear.weight.data = weight
        packed = TorchLinear(bits, group, symmetric, not is_ordered, inputs, outputs, register_buffers=True)
        packed.pack_original(linear, scales, zeros, of_inputs)
        packed.post_init()
        packed.scales = packed.scales.float()
        values = packed.dequantize_weight().t().float().contiguous()
        packed.scales = packed.scales.half()
        if version == "gptq":
            convert_gptq_v2_to_v1_format_module(packed, QuantizeConfig(bits=bits, group_size=group))
        return {key: getattr(packed, key).clone() for key in ("qweight", "qzeros", "scales", "g_idx")}, values

    config = {"quant_method": "gptq", "bits": bits, "group_size": group, "sym": symmetric, "desc_act": not is_ordered,
              "checkpoint_format": version, "lm_head": False, "pack_dtype": "int32"}
    return lambda dense: by_linear(dense, quantise, config)


def awq(dense: Path) -> Any:
    sources = Path(sys.argv[1])

    def module(name: str, path: str) -> types.ModuleType:
        spec = importlib.util.spec_from_file_location(name, sources / path)
        assert spec is not None
        assert spec.loader is not None
        made = sys.modules[name] = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
        return made

    for name in ("awq", "awq.utils", "awq.utils.module", "awq.utils.utils"):
        sys.modules[name] = types.ModuleType(name)
    sys.modules["awq.utils.module"].try_import = lambda name: (None, "")  # type: ignore[attr-defined]
    sys.modules["awq.utils.utils"].get_best_device = lambda: "cpu"  # type: ignore[attr-defined]
    packing = module("awq.utils.packing_utils", "awq/utils/packing_utils.py")
    gemm = module("awq.modules.linear.gemm", "awq/modules/linear/gemm.py")

    def quantise(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
        outputs, inputs = weight.shape
        groups = weight.view(outputs, -1, 32)
        least, largest = groups.amin(2), groups.amax(2)
        scales = ((largest - least).clamp(min=1e-5) / 15).half().float()
        zeros = (-(least / scales).round()).clamp(0, 15)
        linear = nn.Linear(inputs, outputs, bias=False)
        linear.weight.data = ((weight.view_as(groups) / scales[:, :, None]).round() + zeros[:, :, None]).clamp(0, 15)
        linear.weight.data = ((linear.weight.data - zeros[:, :, None]) * scales[:, :, None]).view(outputs, inputs)
        packed = gemm.WQLinear_GEMM.from_linear(linear, 4, 32, scales=scales.t().contiguous(),
                                                zeros=zeros.t().contiguous())
        values = packing.dequantize_gemm(packed.qweight, packed.qzeros, packed.scales.float(), 4, 32)
        return ({key: getattr(packed, key).contiguous() for key in ("qweight", "qzeros", "scales")},
                values.t().contiguous())

    return by_linear(dense, quantise, {
        "quant_method": "awq", "bits": 4, "group_size": 32, "zero_point": True, "version": "gemm",
        "modules_to_not_convert": None})


def compressed(format_name: str, is_quantised_head: bool = False, **weights: Any) -> Callable[[Path], Any]:
    def make(dense: Path) -> tuple[Tensors, Values, dict[str, Any]]:
        from compressed_tensors.compressors import BaseCompressor
        from compressed_tensors.quantization import QuantizationArgs, QuantizationConfig, QuantizationScheme
        from compressed_tensors.quantization.utils import calculate_qparams

        arguments = QuantizationArgs(**weights)
        scheme = QuantizationScheme(targets=["Linear"], weights=arguments, format=format_name)
        compressor = BaseCompressor.get_value_from_registry(format_name)

        def quantise(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
            outputs, inputs = weight.shape
            rows, columns = weights.get("block_structure", (1, weights.get("group_size") or inputs))
            if weights["strategy"] == "tensor":
                rows = outputs
            blocks = weight.view(outputs // rows, rows, inputs // columns, columns)
            scales, zeros = calculate_qparams(blocks.amin((1, 3)), blocks.amax((1, 3)), arguments)
            if weights["strategy"] == "tensor":
                scales, zeros = scales.view(1), zeros.view(1)
            scales = scales.float().bfloat16().float()
            state = {"weight": weight, "weight_scale": scales, "weight_zero_point": zeros}
            made = compressor.compress(state, scheme)
            values = compressor.decompress(made, scheme)["weight"].float().contiguous()
            scale = made["weight_scale"]
            if scale.dtype == torch.float32:
                made["weight_scale"] = scale.bfloat16()
            return {key: tensor.contiguous() for key, tensor in made.items()}, values

        tensors, values, _ = by_linear(dense, quantise, {})
        config = QuantizationConfig(config_groups={"group_0": scheme}, format=format_name, ignore=["lm_head"],
                                    quantization_status="compressed")
        return tensors, values, json.loads(config.model_dump_json())

    return make


def bitsandbytes(**options: Any) -> Callable[[Path], Any]:
    def make(dense: Path) -> tuple[Tensors, Values, dict[str, Any]]:
        from bitsandbytes import functional
        from transformers import AutoModelForCausalLM, BitsAndBytesConfig

        model = AutoModelForCausalLM.from_pretrained(dense, device_map="cpu",
                                                     quantization_config=BitsAndBytesConfig(**options))
        values = {}
        for name, module in model.named_modules():
            if not name.endswith("_proj"):
                continue
            if options.get("load_in_8bit"):
                theirs = functional.int8_vectorwise_dequant(module.weight.data, module.weight.SCB).float()
                # They multiply in another order, which may round the last bit of a float32 otherwise.
                values[name] = module.weight.data * (module.weight.SCB * 7.874015718698502e-3)[:, None]
                torch.testing.assert_close(values[name], theirs, rtol=2**-23, atol=0)
                continue
            state = module.weight.quant_state
            state.dtype = torch.float32
            values[name] = functional.dequantize_4bit(module.weight.data, state).float()
            state.dtype = torch.bfloat16
        with tempfile.TemporaryDirectory() as folder:
            model.save_pretrained(folder)
            config = json.loads((Path(folder) / "config.json").read_text())["quantization_config"]
            return load_file(Path(folder) / "model.safetensors"), values, config

    return make


def fp8(dense: Path) -> Any:
    from transformers.integrations.finegrained_fp8 import Fp8Dequantize

    def quantise(name: str, weight: Tensor) -> tuple[Tensors, Tensor]:
        outputs, inputs = weight.shape
        blocks = weight.view(outputs // 32, 32, inputs // 32, 32)
        scales = blocks.abs().amax((1, 3)) / 448
        made = {"weight": (blocks / scales[:, None, :, None]).view(outputs, inputs).to(torch.float8_e4m3fn),
                "weight_scale_inv": scales}
        quantizer = types.SimpleNamespace(quantization_config=types.SimpleNamespace(weight_block_size=(32, 32)))
        values = Fp8Dequantize(quantizer).convert(
            {"weight": made["weight"], "weight_scale_inv": made["weight_scale_inv"]}, full_layer_name=name)
        return made, values[name].float()

    return by_linear(dense, quantise, {
        "quant_method": "fp8", "activation_scheme": "dynamic", "weight_block_size": [32, 32],
        "modules_to_not_convert": ["lm_head"]})


MAKERS: dict[str, Callable[[Path], Any]] = {
    "gptq-4": gptq(4, 32, symmetric=True, is_ordered=True, version="gptq"),
    "gptq-4-desc-act": gptq(4, 32, symmetric=False, is_ordered=False, version="gptq"),
    "gptq-8": gptq(8, -1, symmetric=False, is_ordered=True, version="gptq_v2"),
    "awq": awq,
    "pack-quantized": compressed("pack-quantized", num_bits=4, strategy="group", group_size=32, symmetric=True),
    "pack-quantized-zeros": compressed("pack-quantized", num_bits=4, strategy="group", group_size=32,
                                       symmetric=False),
    "int-quantized": compressed("int-quantized", num_bits=8, strategy="channel", symmetric=True),
    "float-quantized": compressed("float-quantized", num_bits=8, type="float", strategy="channel", symmetric=True),
    "mxfp4": compressed("mxfp4-pack-quantized", num_bits=4, type="float", strategy="group", group_size=32,
                        symmetric=True, scale_dtype=torch.uint8, zp_dtype=torch.uint8),
    "bitsandbytes": bitsandbytes(load_in_8bit=True),
    "nf4": bitsandbytes(load_in_4bit=True, bnb_4bit_quant_type="nf4", bnb_4bit_use_double_quant=True),
    "fp4": bitsandbytes(load_in_4bit=True, bnb_4bit_quant_type="fp4"),
    "fp8": fp8,
}


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        dense = make_dense(Path(folder) / "dense")
        wanted = sys.argv[2:] or MAKERS
        for name in wanted:
            tensors, values, quantization = MAKERS[name](dense)
            target = FOLDER / name
            shutil.rmtree(target, ignore_errors=True)
            target.mkdir()
            config = json.loads((dense / "config.json").read_text()) | {"quantization_config": quantization}
            (target / "config.json").write_text(json.dumps(config, indent=1) + "\n")
            save_file({key: tensor.contiguous() for key, tensor in tensors.items()}, target / "model.safetensors")
            hashes = {linear: digest(tensor) for linear, tensor in values.items()}
            (target / "expected.json").write_text(json.dumps(hashes, indent=1) + "\n")
            print(name, sum(each.stat().st_size for each in target.iterdir()))


if __name__ == "__main__":
    main()
