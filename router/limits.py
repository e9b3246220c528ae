"""What a request may ask for: the flags' limits, completed with what the model and its memory allow."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Limits:
    """Resolved at start; counts are of tokens unless the name says otherwise."""

    max_input_tokens: int
    max_total_tokens: int
    max_batch_prefill_tokens: int
    """Budget of one step: prompt chunks and decode rows together."""
    max_slots: int
    """Sequences that run at once; fewer than the budget, so that decode rows leave room for a prefill."""
    max_concurrent_requests: int = 128
    max_best_of: int = 2
    max_stop_sequences: int = 4
    max_top_n_tokens: int = 5
    max_client_batch_size: int = 4
    validation_workers: int = 2
    payload_limit: int = 2_000_000
    """Bytes of a request body."""
