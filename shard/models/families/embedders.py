"""The architectures of decoders that make vectors or scores of texts, and continue none."""

BASES = {"Llama": "LlamaForCausalLM", "Mistral": "MistralForCausalLM", "Qwen2": "Qwen2ForCausalLM",
         "Qwen3": "Qwen3ForCausalLM", "Gemma": "GemmaForCausalLM", "Gemma2": "Gemma2ForCausalLM",
         "Gemma3Text": "Gemma3ForCausalLM"}
"""By what the names of such architectures begin with, the architecture that has the same decoder."""
KINDS_OF_EMBEDDERS = "Model", "ForSequenceClassification"
EMBEDDERS = {f"{name}{kind}": base for name, base in BASES.items() for kind in KINDS_OF_EMBEDDERS}
"""The same, by architecture."""
