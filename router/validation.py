"""What a request may ask for: TGI's rules in TGI's order and words, and from them the request the engine takes."""

import secrets
from dataclasses import dataclass

from router.api.schemas import Parameters
from router.errors import ValidationError
from router.limits import Limits
from router.request import Request
from router.scheduling.plan import Sampling
from router.text.tokenizer import Tokenizer, TokenizerError

_TGI_CHUNK = 1024
"""Of more new tokens than this, TGI counts only so many against the limit on total tokens."""


@dataclass(frozen=True, slots=True)
class Asked:
    """What a client asks for, by whichever API; not checked yet.

    `is_greedy`: no sampling, whatever the parameters say. The others are as in `router.request.Request`.
    """

    inputs: str
    parameters: Parameters
    is_greedy: bool = False
    keep_stop: bool = True
    ignore_eos: bool = False


def check_mode(parameters: Parameters, limits: Limits, is_stream: bool) -> None:
    """The rules that come before a permit: how many answers, and what a stream can't carry."""
    best_of = 1 if parameters.best_of is None else parameters.best_of
    if is_stream:
        _refuse_if(best_of != 1, "`best_of` != 1 is not supported when streaming tokens")
        _refuse_if(parameters.decoder_input_details,
                   "`decoder_input_details` == true is not supported when streaming tokens")
    elif best_of > 1:
        _refuse_if(limits.max_best_of == 1, "`best_of` != 1 is not allowed for this endpoint")
        _refuse_if(best_of > limits.max_best_of, f"`best_of` must be > 0 and <= {limits.max_best_of}. Given: {best_of}")


async def validate(asked: Asked, limits: Limits, tokenizer: Tokenizer, vocab_size: int) -> Request:
    """The request as the engine takes it. ValidationError says the first rule that it breaks."""
    parameters = asked.parameters
    _check_sampling(parameters)
    _check_extent(asked, limits)
    try:
        input_ids = await tokenizer.encode(asked.inputs, truncate=parameters.truncate)
    except TokenizerError as error:
        raise ValidationError(f"tokenizer error {error}") from error
    _check_tokens(input_ids, parameters.max_new_tokens, limits, vocab_size)
    _check_supported(parameters)
    room = limits.max_total_tokens - len(input_ids)
    return Request(
        input_ids=input_ids,
        sampling=_sampling(parameters, asked.is_greedy),
        max_new_tokens=room if parameters.max_new_tokens is None else min(parameters.max_new_tokens, room),
        stop=tuple(parameters.stop),
        keep_stop=asked.keep_stop,
        ignore_eos=asked.ignore_eos)


def _refuse_if(is_broken: bool, rule: str) -> None:
    if is_broken:
        raise ValidationError(rule)


def _check_sampling(parameters: Parameters) -> None:
    """Rules 1 to 7."""
    p = parameters
    has_warper = any(value is not None for value in (p.temperature, p.top_k, p.top_p, p.typical_p))
    _refuse_if((p.best_of or 1) > 1 and not p.do_sample and not has_warper,
               "you must use sampling when `best_of` is > 1")
    _refuse_if(p.temperature is not None and p.temperature <= 0, "`temperature` must be strictly positive")
    _refuse_if(p.repetition_penalty is not None and p.repetition_penalty <= 0,
               "`repetition_penalty` must be strictly positive")
    _refuse_if(p.frequency_penalty is not None and not -2 <= p.frequency_penalty <= 2,
               "`frequency_penalty` must be >= -2.0 and <= 2.0")
    _refuse_if(p.top_p is not None and not 0 < p.top_p < 1, "`top_p` must be > 0.0 and < 1.0")
    _refuse_if(p.typical_p is not None and not 0 < p.typical_p < 1, "`typical_p` must be > 0.0 and < 1.0")
    _refuse_if(p.top_k is not None and p.top_k <= 0, "`top_k` must be strictly positive")


def _check_extent(asked: Asked, limits: Limits) -> None:
    """Rules 8 to 13."""
    p = asked.parameters
    _refuse_if(p.max_new_tokens == 0, "`max_new_tokens` must be strictly positive")
    _refuse_if(len(p.stop) > limits.max_stop_sequences,
               f"`stop` supports up to {limits.max_stop_sequences} stop sequences. Given: {len(p.stop)}")
    _refuse_if("" in p.stop, "`stop` sequences cannot be empty")
    _refuse_if(p.seed is not None and (p.best_of or 1) > 1, "`seed` must not be set when `best_of` > 1")
    _refuse_if((p.top_n_tokens or 0) > limits.max_top_n_tokens,
               f"`top_n_tokens` must be >= 0 and <= {limits.max_top_n_tokens}. Given: {p.top_n_tokens}")
    _refuse_if(not asked.inputs, "`inputs` cannot be empty")
    _refuse_if(p.truncate is not None and not 0 < p.truncate <= limits.max_input_tokens,
               f"`truncate` must be strictly positive and less than {limits.max_input_tokens}. Given: {p.truncate}")


def _check_tokens(input_ids: tuple[int, ...], max_new_tokens: int | None, limits: Limits, vocab_size: int) -> None:
    """Rules 15 and 16, and that the model can take the tokens at all."""
    length, total = len(input_ids), limits.max_total_tokens
    wanted = max(0, total - length) if max_new_tokens is None else max_new_tokens
    chunk = min(wanted, _TGI_CHUNK)
    _refuse_if(length + chunk > total,
               f"`inputs` tokens + `max_new_tokens` must be <= {total}. "
               f"Given: {length} `inputs` tokens and {chunk} `max_new_tokens`")
    _refuse_if(length > limits.max_input_tokens,
               f"`inputs` must have less than {limits.max_input_tokens} tokens. Given: {length}")
    _refuse_if(not length, "`inputs` cannot be empty")
    largest = max(input_ids)
    _refuse_if(largest >= vocab_size,
               f"`inputs` must have token ids < {vocab_size}, the model's vocabulary. Given: {largest}")


def _check_supported(parameters: Parameters) -> None:
    """Fields of TGI whose meaning is not built yet; their neutral values say nothing and pass."""
    asked = {
        "best_of": (parameters.best_of or 1) > 1,
        "watermark": parameters.watermark,
        "decoder_input_details": parameters.decoder_input_details,
        "top_n_tokens": bool(parameters.top_n_tokens),
        "grammar": parameters.grammar is not None,
        "adapter_id": parameters.adapter_id is not None,
    }
    for name, is_asked in asked.items():
        _refuse_if(is_asked, f"`{name}` is not supported yet")


def _sampling(parameters: Parameters, is_greedy: bool) -> Sampling:
    """With defaults filled in. As in TGI, a warper that changes something makes it sample. The seed is chosen here."""
    p = parameters
    repetition_penalty = 1.0 if p.repetition_penalty is None else p.repetition_penalty
    frequency_penalty = 0.0 if p.frequency_penalty is None else p.frequency_penalty
    if is_greedy:
        return Sampling(repetition_penalty=repetition_penalty, frequency_penalty=frequency_penalty)
    temperature = 1.0 if p.temperature is None else p.temperature
    top_k = 0 if p.top_k is None else p.top_k
    top_p = 1.0 if p.top_p is None else p.top_p
    typical_p = 1.0 if p.typical_p is None else p.typical_p
    do_sample = p.do_sample or temperature != 1 or top_k != 0 or top_p != 1 or typical_p != 1
    seed = secrets.randbits(64) if p.seed is None else p.seed
    return Sampling(
        do_sample=do_sample,
        seed=seed if do_sample else 0,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        typical_p=typical_p,
        repetition_penalty=repetition_penalty,
        frequency_penalty=frequency_penalty)
