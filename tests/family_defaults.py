"""`python -m tests.family_defaults` writes shard/models/families/defaults.json: what transformers takes for the keys
that a config.json lacks."""

import json
import math
import re
from typing import Any

from transformers import AutoConfig
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES, MODEL_MAPPING_NAMES

from penstock.shard.models.families import ENCODER_FAMILIES, FAMILIES, KINDS_OF_ENCODERS
from tests.paths import ROOT

MODELS = ROOT / "shard" / "models"
TABLE = MODELS / "families" / "defaults.json"
MODEL_TYPE_OF_CLASS = {name: model_type for model_type, name in MODEL_MAPPING_NAMES.items() if isinstance(name, str)}
MODEL_TYPES = {
    architecture: model_type for model_type, architecture in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES.items()
    if isinstance(architecture, str) and architecture in FAMILIES
} | {"Qwen3_5ForConditionalGeneration": "qwen3_5_text"}
"""By architecture, transformers' name of the configuration of its decoder."""
MODEL_TYPES_OF_ENCODERS = {
    f"{name}{kind}": MODEL_TYPE_OF_CLASS[f"{name}Model"] for name in ENCODER_FAMILIES if name != "New"
    for kind in KINDS_OF_ENCODERS}
"""By architecture, transformers' name of the configuration of its encoder."""
OF_THEIR_AUTHORS = {
    "InternLM2ForCausalLM": {
        "bias": True, "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 2048, "num_attention_heads": 32, "num_hidden_layers": 32, "rms_norm_eps": 1e-6,
        "vocab_size": 103168},
    "InternLM3ForCausalLM": {
        "eos_token_id": 2, "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008,
        "max_position_embeddings": 32768, "num_attention_heads": 32, "num_hidden_layers": 32,
        "num_key_value_heads": 32, "rms_norm_eps": 1e-6, "vocab_size": 128512},
    **{f"New{kind}": {"hidden_act": "gelu", "layer_norm_eps": 1e-12, "rope_theta": 10000.0, "type_vocab_size": 1}
       for kind in KINDS_OF_ENCODERS},
}
"""Of architectures that transformers lacks, as the code has it that their authors publish."""
def whole(model_type: str, keys: dict[str, Any]) -> dict[str, Any]:
    """Returns what transformers makes of the keys of a config.json, with every key that its class has, but one that may
    be infinite."""
    values: dict[str, Any] = json.loads(AutoConfig.for_model(model_type, **keys).to_json_string(use_diff=False))
    values.pop("time_step_limit", None)
    return values | {"architectures": [MODEL_FOR_CAUSAL_LM_MAPPING_NAMES[model_type]]}


def keys_that_are_read() -> set[str]:
    """Returns the names that stand in the code that reads config.json, among them all keys that it reads."""
    return set(re.findall(r'"([a-z0-9_]+)"', "".join(path.read_text() for path in MODELS.rglob("*.py"))))


def defaults() -> dict[str, dict[str, Any]]:
    """Returns, by architecture, what transformers takes for each key that is absent, of those that any family reads."""
    read, found = keys_that_are_read(), {}
    for architecture, model_type in (MODEL_TYPES | MODEL_TYPES_OF_ENCODERS).items():
        config = CONFIG_MAPPING[model_type]
        theta = config.default_theta
        thetas = {"rope_theta": theta["global"], "rope_local_base_freq": theta["local"]} if isinstance(
            theta, dict) else {"rope_theta": theta}
        fields = config.default_config_fields() | thetas | {"eos_token_id": config().eos_token_id}
        values = {key: value() if callable(value) else value for key, value in sorted(fields.items()) if key in read}
        found[architecture] = {key: value for key, value in values.items() if is_told(value)}
    return dict(sorted((found | OF_THEIR_AUTHORS).items()))


def is_told(value: Any) -> bool:
    """Tells whether a default says anything that JSON has, too."""
    return value is not False and isinstance(value, (bool, int, float, str, list)) and value not in (math.inf, "", [])


def render(table: dict[str, dict[str, Any]]) -> str:
    """Returns the file, with a line for each architecture."""
    lines = ",\n".join(f"  {json.dumps(architecture)}: {json.dumps(keys)}" for architecture, keys in table.items())
    return f"{{\n{lines}\n}}\n"


if __name__ == "__main__":
    TABLE.write_text(render(defaults()))
