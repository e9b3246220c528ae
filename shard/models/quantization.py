"""Which weight format the linears of a model are stored in, as config.json's quantization_config says."""

from collections.abc import Callable
from typing import Any

from penstock.shard.models.keys import Keys
from penstock.shard.weights.dense import dense_everywhere
from penstock.shard.weights.format import FormatOf

QUANTIZATIONS: dict[str, Callable[[Keys], FormatOf]] = {}
"""By quant_method, the function that reads the rest of quantization_config. No quantised format can be computed yet."""


def read_weight_format(keys: Keys) -> FormatOf:
    """Returns the function that tells each linear's format. Raises ModelConfigError for unknown quantisations."""
    key = "quantization_config"
    value: Any = keys.get(key)
    if value is None:
        return dense_everywhere
    method = str(value.get("quant_method")) if isinstance(value, dict) else ""
    if method not in QUANTIZATIONS:
        known = f", or a quant_method of {', '.join(QUANTIZATIONS)}" if QUANTIZATIONS else ""
        raise keys.error(key, f"none{known}")
    return QUANTIZATIONS[method](keys.section(key))
