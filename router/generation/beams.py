"""The rules of beam search, which come before all others: the fields that it goes with, and those that it does not."""

from penstock.contract.facts import Facts
from penstock.router.errors import ValidationError
from penstock.router.generation.float32 import shortest_float32
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.refusals import refuse_beyond
from penstock.router.generation.spec import GenerationSpec
from penstock.router.limits import Limits
from penstock.router.scheduling.beam_search import BeamSettings, end_tokens, num_candidates

MAX_BEAMS = 128
MAX_CANDIDATES = 1024
"""How many of the likeliest tokens each beam may need for the answers that may end: the search chooses among those of
all beams while others wait for the router."""
MAX_LENGTH_PENALTY = 10.0
_SAMPLES = ("temperature", "top_k", "top_p", "typical_p", "min_p")


def beams_of(parameters: Parameters) -> BeamSettings:
    """Returns how several beams search for answers; one alone would take the likeliest tokens."""
    p = parameters
    return BeamSettings(p.num_beams or 1, p.num_return_sequences or 1,
                        1.0 if p.length_penalty is None else p.length_penalty, p.early_stopping or False)


def check_beams(spec: GenerationSpec, limits: Limits, facts: Facts, is_stream: bool) -> None:
    """Raises ValidationError for a search that can't be, and for fields that mean nothing without one."""
    p, name = spec.parameters, spec.names.num_beams
    if p.num_beams is None:
        _check_untuned(p, "which is not asked for")
        return
    most = min(MAX_BEAMS, limits.max_concurrent_requests)
    refuse_beyond(p.num_beams, f"`{name}` must be >= 1 and <= {most}. Given: {p.num_beams}", least=1, most=most)
    refuse_beyond(p.num_return_sequences, f"`num_return_sequences` must be >= 1 and <= `{name}`, {p.num_beams}. "
                                          f"Given: {p.num_return_sequences}", least=1, most=p.num_beams)
    if p.length_penalty is not None:
        refuse_beyond(p.length_penalty,
                      f"`length_penalty` must be >= {-MAX_LENGTH_PENALTY} and <= {MAX_LENGTH_PENALTY}. "
                      f"Given: {shortest_float32(p.length_penalty)}", least=-MAX_LENGTH_PENALTY,
                      most=MAX_LENGTH_PENALTY)
    if p.num_beams == 1:
        _check_untuned(p, f"and `{name}` is 1, which searches for nothing")
        return
    _check_candidates(p, p.num_beams, name, facts)
    _check_company(spec, spec.names.beam_search, is_stream)


def _check_candidates(parameters: Parameters, num_beams: int, name: str, facts: Facts) -> None:
    """Refuses a search that would have to choose among too many candidates."""
    p = parameters
    ends = end_tokens(p.stop_token_ids, facts.eos_token_ids, p.ignore_eos, has_grammar=p.grammar is not None)
    number = num_candidates(num_beams, len(ends))
    refuse_beyond(number, f"`{name}` times 1 + the number of tokens that end an answer, of `stop_token_ids` and of the "
                          f"model, must be <= {MAX_CANDIDATES}. Given: {num_beams} * (1 + {len(ends)}) = {number}",
                  most=MAX_CANDIDATES)


def _check_untuned(parameters: Parameters, why: str) -> None:
    """Refuses fields that tune a search where there is none, and says why there is none."""
    tuned = {"num_return_sequences": parameters.num_return_sequences not in (None, 1),
             "length_penalty": parameters.length_penalty not in (None, 1.0),
             "early_stopping": bool(parameters.early_stopping)}
    for field, is_set in tuned.items():
        if is_set:
            raise ValidationError(f"`{field}` is for beam search, {why}", "unsupported_parameter", field)


def _check_company(spec: GenerationSpec, name: str, is_stream: bool) -> None:
    """Refuses fields that a search does not go with."""
    p = spec.parameters
    if is_stream:
        raise ValidationError(f"`{name}` is not supported when streaming tokens: which tokens an answer has is known "
                              "when the search ends", "unsupported_parameter", name)
    refuse_sampling(p, name)
    others = {"best_of": (p.best_of or 1) > 1, "n": (p.n or 1) > 1, "watermark": p.watermark,
              spec.names.top_n_tokens: bool(p.top_n_tokens),
              spec.names.prompt_logprobs: p.decoder_input_details or spec.wants_prompt_logprobs}
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
