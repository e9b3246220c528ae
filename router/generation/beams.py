"""The rules of beam search, which come before all others: the fields that it goes with, and those that it does not."""

from penstock.router.errors import ValidationError
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.spec import GenerationSpec
from penstock.router.limits import Limits
from penstock.router.scheduling.beam_search import BeamSettings

MAX_BEAMS = 128
MAX_CANDIDATES = 1024
"""How many of the likeliest tokens each beam may need for the answers that may end: the search chooses among those of
all beams while others wait for the router."""
MAX_LENGTH_PENALTY = 10.0
_SAMPLES = ("temperature", "top_k", "top_p", "typical_p", "min_p")


def beams_of(parameters: Parameters) -> BeamSettings | None:
    """Returns how answers are searched for, if they are by more than one beam: one alone takes the likeliest tokens."""
    p = parameters
    if p.num_beams is None or p.num_beams <= 1:
        return None
    return BeamSettings(p.num_beams, p.num_return_sequences or 1, 1.0 if p.length_penalty is None else p.length_penalty,
                        p.early_stopping or False)


def check_beams(spec: GenerationSpec, limits: Limits, is_stream: bool) -> None:
    """Raises ValidationError for a search that can't be, and for fields that mean nothing without one."""
    p, name = spec.parameters, spec.names.num_beams
    if p.num_beams is None:
        _check_without(p)
        return
    most = min(MAX_BEAMS, limits.max_concurrent_requests)
    if not 1 <= p.num_beams <= most:
        raise ValidationError(f"`{name}` must be >= 1 and <= {most}. Given: {p.num_beams}",
                              "integer_below_min_value" if p.num_beams < 1 else "integer_above_max_value")
    num_candidates = p.num_beams * (1 + len({*p.stop_token_ids}))
    if p.num_beams > 1 and num_candidates > MAX_CANDIDATES:
        raise ValidationError(f"`{name}` times 1 + the number of `stop_token_ids` must be <= {MAX_CANDIDATES}. "
                              f"Given: {num_candidates}", "integer_above_max_value")
    if p.num_return_sequences is not None and not 1 <= p.num_return_sequences <= p.num_beams:
        raise ValidationError(f"`num_return_sequences` must be >= 1 and <= `num_beams`, {p.num_beams}. "
                              f"Given: {p.num_return_sequences}",
                              "integer_below_min_value" if p.num_return_sequences < 1 else "integer_above_max_value")
    if abs(p.length_penalty or 0.0) > MAX_LENGTH_PENALTY:
        raise ValidationError(f"`length_penalty` must be >= {-MAX_LENGTH_PENALTY} and <= {MAX_LENGTH_PENALTY}. "
                              f"Given: {p.length_penalty}")
    if p.num_beams > 1:
        _check_company(spec, spec.names.beam_search, is_stream)


def _check_without(parameters: Parameters) -> None:
    """Refuses fields that tune a search where none is asked for."""
    tuned = {"num_return_sequences": parameters.num_return_sequences not in (None, 1),
             "length_penalty": parameters.length_penalty not in (None, 1.0),
             "early_stopping": bool(parameters.early_stopping)}
    for field, is_set in tuned.items():
        if is_set:
            raise ValidationError(f"`{field}` is for beam search, which is not asked for", "unsupported_parameter",
                                  field)


def _check_company(spec: GenerationSpec, name: str, is_stream: bool) -> None:
    """Refuses fields that a search does not go with."""
    p = spec.parameters
    if is_stream:
        raise ValidationError(f"`{name}` is not supported when streaming tokens: which tokens an answer has is known "
                              "when the search ends", "unsupported_parameter", name)
    refuse_sampling(p, name)
    others = {"best_of": (p.best_of or 1) > 1, "n": (p.n or 1) > 1, "watermark": p.watermark,
              spec.names.top_n_tokens: bool(p.top_n_tokens),
              "decoder_input_details": p.decoder_input_details, "echo": spec.wants_prompt_logprobs}
    for field, is_asked in others.items():
        if is_asked:
            raise ValidationError(f"`{field}` is not supported with `{name}`", "unsupported_parameter", field)


def refuse_sampling(parameters: Parameters, name: str) -> None:
    """Raises ValidationError for parameters by which tokens are drawn; `name` is the field that asks for a search."""
    asked = {"do_sample": parameters.do_sample, **{field: bool(getattr(parameters, field)) for field in _SAMPLES}}
    for field, is_asked in asked.items():
        if is_asked:
            raise ValidationError(f"`{field}` is not supported with `{name}`: beam search draws no tokens",
                                  "unsupported_parameter", field)
