"""Uses the processor or a GPU: chooses it, and brings data there and back."""
