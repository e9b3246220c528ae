"""Every causal language model of transformers, tiny, as the fallback runs it."""
