"""Generation without a server: `LLM` and `AsyncLLM`, with vLLM's names; may import launcher, router, contract,
checkpoints and system."""
