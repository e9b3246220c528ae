"""The quantization_config of compressed-tensors' files: groups of linears, each quantised in its own way."""

from collections.abc import Callable

from penstock.kernels.quantised_linear.activations import Activations
from penstock.shard.models.keys import Keys
from penstock.shard.models.model_options import ModelOptions, Quantization
from penstock.shard.models.names import TensorNames
from penstock.shard.models.quantised_linears import check_known, check_patterns, pattern_of, texts
from penstock.shard.weights.compressed import CompressedIntegers
from penstock.shard.weights.dense import DENSE
from penstock.shard.weights.float8 import Float8
from penstock.shard.weights.format import WeightFormat
from penstock.shard.weights.mxfp4 import Mxfp4

NAME = "compressed-tensors"
KEYS = ("quant_method", "config_groups", "format", "ignore", "quantization_status", "sparsity_config",
        "transform_config")
WITHOUT_EFFECT = ("global_compression_ratio", "version", "run_compressed", "dequantize",
                  "use_optimized_inference", "moe_sparsity_config")
GROUP_KEYS = ("targets", "weights", "format")
WEIGHT_KEYS = ("num_bits", "type", "strategy", "group_size", "symmetric", "block_structure", "dynamic")
WEIGHT_WITHOUT_EFFECT = ("observer", "observer_kwargs", "actorder", "scale_dtype", "zp_dtype")
PACKED, INTEGERS, FLOATS, NAIVE = "pack-quantized", "int-quantized", "float-quantized", "naive-quantized"
MXFP4, PLAIN = "mxfp4-pack-quantized", "dense"
FORMATS = (PACKED, INTEGERS, FLOATS, NAIVE, MXFP4, PLAIN)

Matches = Callable[[str, str], bool]     # of a linear's name and its class


def read_compressed_tensors(keys: Keys, options: ModelOptions, names: TensorNames) -> Quantization:
    check_known(keys, KEYS, WITHOUT_EFFECT)
    if keys.get("quantization_status", "compressed") != "compressed":
        raise keys.error("quantization_status", "compressed")
    sparsity = keys.section("sparsity_config")
    sparsity.expect("format", PLAIN)
    check_known(keys.section("transform_config"), (), ())
    groups = keys.section("config_groups")
    lists = {"ignore": texts(keys, "ignore"), "config_groups": [
        target for name in groups.names for target in texts(groups.section(name), "targets")]}
    for key, patterns in lists.items():
        check_patterns(keys, key, [text for text in patterns if text.startswith("re:")])
    targets: list[tuple[str, Matches, WeightFormat]] = []
    used: set[Activations] = set()
    for name in groups.names:
        group = groups.section(name)
        format_ = _read_group(keys, group, options)
        if isinstance(format_, CompressedIntegers | Mxfp4):
            used.add(format_.activations)
        targets += [(target, _matches(group, "targets", target), format_) for target in texts(group, "targets")]
    # What a name says goes before what a pattern says, and this before a class.
    ordered = sorted(targets, key=lambda each: ("re:" in each[0], each[0]))
    ignored = [_matches(keys, "ignore", target) for target in texts(keys, "ignore")]

    def format_of(linear: str) -> WeightFormat:
        kind = "Embedding" if linear == names.embedding else "Linear"
        if any(matches(linear, kind) for matches in ignored):
            return DENSE
        by_name = (format_ for _, matches, format_ in ordered if matches(linear, ""))
        by_class = (format_ for target, _, format_ in ordered if target == kind)
        return next(by_name, None) or next(by_class, DENSE)

    return Quantization(NAME, used.pop() if used else None, format_of)


def _matches(keys: Keys, key: str, target: str) -> Matches:
    if not target.startswith("re:"):
        return lambda linear, kind: target in (linear, kind)
    pattern = pattern_of(keys, key, target.removeprefix("re:"))
    return lambda linear, kind: pattern.matches(linear)


def _read_group(keys: Keys, group: Keys, options: ModelOptions) -> WeightFormat:
    check_known(group, GROUP_KEYS, ())
    weights = group.section("weights")
    if not weights.names:
        return DENSE
    check_known(weights, WEIGHT_KEYS, WEIGHT_WITHOUT_EFFECT)
    holder = group if group.get("format") is not None else keys
    name = holder.get("format")
    if name not in FORMATS:
        raise holder.error("format", f"one of {', '.join(FORMATS)}")
    kind = weights.get("type", "int")
    if name == PLAIN:
        return DENSE
    if name == MXFP4:
        return _mxfp4(weights, options)
    if kind == "float" and name in (FLOATS, NAIVE):
        return _floats(weights, options)
    if kind != "int" or name == FLOATS:
        raise weights.error("type", f"what there is in {name}")
    return _integers(weights, options, is_packed=name == PACKED)


def _integers(weights: Keys, options: ModelOptions, is_packed: bool) -> WeightFormat:
    bits = weights.integer("num_bits", 8)
    if bits not in (4, 8):
        raise weights.error("num_bits", "4 or 8, the only ones supported")
    strategy = _strategy(weights)
    if strategy not in ("tensor", "channel", "group"):
        raise weights.error("strategy", "tensor, channel or group")
    group = weights.integer("group_size") if strategy == "group" else 0
    if group % 8:
        raise weights.error("group_size", "a multiple of 8")
    activations = options.activations_for(weights, NAME, are_whole=True)
    return CompressedIntegers(activations, bits, group, weights.switch("symmetric", True), is_packed,
                              has_one_scale=strategy == "tensor")


def _floats(weights: Keys, options: ModelOptions) -> WeightFormat:
    if weights.integer("num_bits", 8) != 8:
        raise weights.error("num_bits", "8, the only floats supported")
    weights.expect("symmetric", True)
    options.activations_for(weights, "numbers of 8 bits (float-quantized)", are_whole=False)
    strategy = _strategy(weights)
    if strategy == "block":
        return Float8("weight_scale", weights.pair("block_structure"))
    if strategy == "group":
        return Float8("weight_scale", (1, weights.integer("group_size")))
    if strategy not in ("tensor", "channel"):
        raise weights.error("strategy", "tensor, channel, group or block")
    return Float8("weight_scale", None if strategy == "tensor" else (1, 0))


def _mxfp4(weights: Keys, options: ModelOptions) -> WeightFormat:
    for key, value in (("num_bits", 4), ("type", "float"), ("group_size", 32), ("symmetric", True)):
        weights.expect(key, value)
    return Mxfp4(options.activations_for(weights, "mxfp4", are_whole=True), "weight_packed", "weight_scale",
                 has_blocks=False)


def _strategy(weights: Keys) -> str:
    """Returns the name of the unit that shares a scale. Where it is absent, it follows from the group's size, as in the
    library."""
    strategy, group = weights.get("strategy"), weights.get("group_size")
    if strategy is None:
        strategy = "tensor" if group is None else "channel" if group == -1 else "group"
    return str(strategy)
