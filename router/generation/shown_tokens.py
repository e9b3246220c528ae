"""The special tokens whose text is part of an answer."""

from penstock.router.generation.parameters import Parameters
from penstock.router.generation.service import Service


def shown_ids(
    service: Service, parameters: Parameters, *, skip_special_tokens: bool, keep_stop: bool
) -> frozenset[int]:
    """Returns the special tokens that are to be part of a text: none if they are to be skipped, else all but the
    model's own that end it, unless what ends it is to be kept."""
    if skip_special_tokens:
        return frozenset()
    special = service.tokenizer.special_ids
    return special if keep_stop or parameters.ignore_eos else special - service.facts.eos_token_ids
