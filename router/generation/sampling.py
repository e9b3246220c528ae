"""How the tokens of an answer are drawn, by what its request asks for."""

from collections.abc import Collection, Sequence
from dataclasses import replace
from itertools import chain

from penstock.contract.sampling import Sampling
from penstock.router.generation.spec import GenerationSpec


def sampling_of(
    spec: GenerationSpec, eos_token_ids: Collection[int], seed: int, bad_words: Sequence[Sequence[int]] = ()
) -> Sampling:
    """Fills in defaults, and `seed` where none came. As in TGI, a warper that changes something makes the answer a
    sampled one. `bad_words` are the tokens of each."""
    p = spec.parameters
    frequency_penalty = p.frequency_penalty or 0.0
    min_tokens = p.min_tokens or 0
    common = Sampling(
        watermark=p.watermark,
        repetition_penalty=1.0 if p.repetition_penalty is None else p.repetition_penalty,
        share_penalty=0.0 if spec.has_openai_penalties else frequency_penalty,
        frequency_penalty=frequency_penalty if spec.has_openai_penalties else 0.0,
        presence_penalty=p.presence_penalty or 0.0,
        bias_ids=tuple(sorted(p.logit_bias)),
        bias_values=tuple(value for _, value in sorted(p.logit_bias.items())),
        banned_ids=tuple(sorted({*eos_token_ids, *p.stop_token_ids})) if min_tokens else (),
        min_tokens=min_tokens,
        allowed_ids=tuple(sorted({*(p.allowed_token_ids or ())})),
        bad_word_ids=tuple(chain.from_iterable(bad_words)),
        bad_word_lengths=tuple(map(len, bad_words)),
        raw_logprobs=spec.raw_logprobs,
        top_n=p.top_n_tokens or 0)
    if spec.is_greedy:
        return common
    warped = replace(
        common,
        temperature=1.0 if p.temperature is None else p.temperature,
        top_k=p.top_k or 0,
        top_p=1.0 if p.top_p is None else p.top_p,
        typical_p=1.0 if p.typical_p is None else p.typical_p,
        min_p=p.min_p or 0.0)
    if not p.do_sample and warped == common:
        return common
    return replace(warped, do_sample=True, seed=seed if p.seed is None else p.seed)
