"""The settings of a generation, by the names that Triton's backends for vLLM and TensorRT-LLM have for them."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson
import pydantic

from penstock.router.errors import ValidationError
from penstock.router.generation.other_fields import (
    IGNORED,
    REFUSED_IN_KSERVE,
    refuse_unsupported,
)
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.prompts import truncation
from penstock.router.grammar.forms import parse_guided
from penstock.router.limits import Limits
from penstock.router.shapes import explain, shown

_PREFIX = "sampling_param_"
"""How names begin that TensorRT-LLM's backend has for those of its own interface."""
_NAMES = {
    **{name: name for name in Parameters.model_fields if name not in (
        "best_of", "details", "return_full_text", "decoder_input_details", "top_n_tokens", "grammar", "truncate",
        "n")},
    **dict.fromkeys(("max_tokens", "request_output_len"), "max_new_tokens"),
    "min_length": "min_tokens", "random_seed": "seed", "stop_words": "stop", "runtime_top_k": "top_k",
    "runtime_top_p": "top_p", "beam_width": "num_beams", "end_id": "stop_token_ids", "lora_name": "adapter_id",
    "truncate_prompt_tokens": "truncate",
}
"""The parameters, by the names that clients have for them."""
_GUIDED = ("guided_json", "guided_regex", "guided_choice", "guided_grammar", "structured_outputs")
_OTHER_NAME = {"exclude_input_from_output": "exclude_input_in_output"}
_TEXTS = {"stop", "bad_words", "adapter_id", "cache_salt", "early_stopping"}
SWITCHES = ("stream", "exclude_input_in_output", "details", "include_stop_str_in_output", "skip_special_tokens",
            "add_special_tokens", "return_finish_reason", "return_num_input_tokens", "return_num_output_tokens",
            "return_cumulative_logprob", "return_log_probs", "return_output_ids")


@dataclass(frozen=True, slots=True)
class Settings:
    """The settings of a generation. `switches` are those that are true or false, of those that are given; `given` has
    the client's name for each parameter that is not called as ours is."""

    parameters: Parameters
    switches: Mapping[str, bool]
    given: Mapping[str, str]
    is_greedy: bool
    n: int

    def switch(self, name: str, default: bool = False) -> bool:
        """Returns whether a switch is on."""
        return self.switches.get(name, default)


def knows(name: str) -> bool:
    """Tells whether a tensor of this name is a setting, be it one that is refused by its name or one that changes
    nothing."""
    name = _plain(name)
    return name in _NAMES or name in (*SWITCHES, *_GUIDED, "n") or name in IGNORED or name in REFUSED_IN_KSERVE


def _plain(name: str) -> str:
    name = name.removeprefix(_PREFIX)
    return _OTHER_NAME.get(name, name)


def read_settings(fields: Mapping[str, Any], limits: Limits) -> Settings:
    """Returns the settings that fields name. Raises ValidationError, which names the field as its client has it."""
    fields = {_plain(name): value for name, value in fields.items() if value is not None}
    if fields.get("stop") is False:
        del fields["stop"]  # TensorRT-LLM's backend ends another request by true
    switches = {name: _switched(name, fields.pop(name)) for name in SWITCHES if name in fields}
    n = _number(fields.pop("n", 1))
    if type(n) is not int or n < 1:
        raise ValidationError(f"`n` must be an integer > 0. Given: {shown(n)}")
    guided = {name: fields.pop(name) for name in _GUIDED if name in fields}
    given: dict[str, str] = {}
    values: dict[str, Any] = {}
    for name in [*fields]:
        ours = _NAMES.get(name)
        if ours is None:
            continue
        if ours in given:
            raise ValidationError(f"`{name}` and `{given[ours]}` are the same setting: one can be given")
        given[ours] = name
        values[ours] = _value(ours, fields.pop(name))
    refuse_unsupported(fields, REFUSED_IN_KSERVE)
    is_greedy = values.get("temperature") == 0
    parameters = _parameters(values, given)
    found = parameters.model_copy(update={
        "truncate": truncation(-1 if values.get("truncate") == -1 else parameters.truncate, limits,
                               parameters.max_new_tokens),
        "num_return_sequences": parameters.num_return_sequences or parameters.num_beams,
        "grammar": parse_guided(guided)})
    return Settings(found, switches, given, is_greedy, n)


def _parameters(values: Mapping[str, Any], given: Mapping[str, str]) -> Parameters:
    off = {"temperature": (0,), "top_p": (0, 1), "top_k": (0, -1), "typical_p": (1,), "truncate": (-1,)}
    content = {name: value for name, value in values.items()
               if isinstance(value, list | str | bool) or value not in off.get(name, ())}
    try:
        return Parameters.model_validate(content)
    except pydantic.ValidationError as error:
        first = error.errors(include_url=False)[0]
        name = str(first["loc"][0])
        sentence = explain({**first, "loc": (given[name], *first["loc"][1:])}, {given[name]: content[name]})
        raise ValidationError(sentence, param=given[name]) from error


def _value(name: str, value: Any) -> Any:
    """Returns a value as the parameters have it: a number of a text, and no empty words, which some clients send."""
    if name in ("stop", "bad_words"):
        words = [value] if isinstance(value, str) else value
        return [word for word in words if word != ""] if isinstance(words, list) else words
    if name == "stop_token_ids" and not isinstance(value, list):
        value = [_number(value)]
    return value if name in _TEXTS else _number(value)


def _number(value: Any) -> Any:
    """Returns the number or the object that a text has, since some clients send all settings as texts; anything else as
    it is."""
    if not isinstance(value, str):
        return value
    try:
        return orjson.loads(value)
    except orjson.JSONDecodeError:
        return value


def _switched(name: str, value: Any) -> bool:
    value = _number(value.lower() if isinstance(value, str) else value)
    if not isinstance(value, bool):
        raise ValidationError(f"`{name}` must be true or false. Given: {shown(value)}")
    return value
