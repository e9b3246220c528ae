"""The classes whose tokens the fallback does not generate, and why."""

AUDIO = "generates audio: a token is one of several codebooks, which are read side by side"
ASSISTANT = "drafts for another model, whose hidden states, keys and values it is given"
MASKED = "`generate` puts a token behind the text and reads the next one there: the text's own tokens have no logits"

UNEQUAL = {
    "BltForCausalLM": "transformers' own `generate` fails: its cache asks for a number of layers, which the class's "
                      "configuration does not have",
    "CpmAntForCausalLM": "all tokens of a text see each other, also those behind them",
    "Gemma3nForConditionalGeneration": "its part for images needs the package timm",
    "Gemma4AssistantForCausalLM": ASSISTANT,
    "Gemma4UnifiedAssistantForCausalLM": ASSISTANT,
    "MusicgenForCausalLM": AUDIO,
    "MusicgenMelodyForCausalLM": AUDIO,
    "ProphetNetForCausalLM": "transformers' own `generate` fails: it counts positions from 0, which the class refuses",
    "ReformerModelWithLMHead": "its attention hashes tokens at random",
    "XLMWithLMHeadModel": MASKED,
    "XLNetLMHeadModel": MASKED,
}

BORDERLINE = {
    "Zamba2ForCausalLM": "transformers' own `generate` goes on from its states with other logits (by 4%) than the "
                         "whole text has; the fallback does so, or computes all again, as a trial has it",
}
"""Those that are equal on some machines."""
