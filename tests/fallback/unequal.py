"""The classes whose tokens the fallback does not generate, and why."""

from dataclasses import dataclass

from huggingface_hub.errors import StrictDataclassError

from penstock.shard.models.keys import ModelConfigError

AUDIO = "generates audio: a token is one of several codebooks, which are read side by side"
ASSISTANT = "drafts for another model, whose hidden states, keys and values it is given"
MASKED = "`generate` puts a token behind the text and reads the next one there: the text's own tokens have no logits"


@dataclass(frozen=True, slots=True)
class Unequal:
    """`reason` is for the page; `error` with `text` in its message is how it ends when it is tried."""

    reason: str
    error: type[Exception]
    text: str


UNEQUAL = {
    "BltForCausalLM": Unequal(
        "transformers' own `generate` fails: its cache asks for a number of layers, which the class's configuration "
        "does not have", AttributeError, "'BltConfig' object has no attribute 'num_hidden_layers'"),
    "CpmAntForCausalLM": Unequal(
        "all tokens of a text see each other, also those behind them", ModelConfigError, "its attention cannot be"),
    "Gemma3nForConditionalGeneration": Unequal(
        "its part for images needs the package timm", ImportError, "requires the timm library"),
    "Gemma4AssistantForCausalLM": Unequal(
        ASSISTANT, StrictDataclassError, "hidden_size_per_layer_input must be 0"),
    "Gemma4UnifiedAssistantForCausalLM": Unequal(ASSISTANT, ValueError, "set of layer types producing a cache"),
    "MusicgenForCausalLM": Unequal(AUDIO, RuntimeError, r"shape '\[-1, 4, 7\]' is invalid"),
    "MusicgenMelodyForCausalLM": Unequal(AUDIO, RuntimeError, r"shape '\[-1, 4, 7\]' is invalid"),
    "ProphetNetForCausalLM": Unequal(
        "transformers' own `generate` fails: it counts positions from 0, which the class refuses",
        ValueError, "`position_ids` are incorrect"),
    "ReformerModelWithLMHead": Unequal(
        "its attention hashes tokens at random", ModelConfigError, "cannot run this ReformerModelWithLMHead"),
    "XLMWithLMHeadModel": Unequal(MASKED, ModelConfigError, "does not give logits after each of its tokens"),
    "XLNetLMHeadModel": Unequal(MASKED, ModelConfigError, "does not give logits after each of its tokens"),
}

BORDERLINE = {
    "Zamba2ForCausalLM": "transformers' own `generate` goes on from its states with other logits (by 4%) than the "
                         "whole text has; the fallback does so, or computes all again, as a trial has it",
}
"""Those that are equal on some machines."""

REASONS = {name: listed.reason for name, listed in UNEQUAL.items()} | BORDERLINE
