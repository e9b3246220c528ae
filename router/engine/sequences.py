"""The sequences that the scheduler gets for a request."""

from penstock.contract.pooling import Task
from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.side_inputs import side_inputs_of
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.death_record import DeathRecord
from penstock.router.scheduling.guesser import Guesser
from penstock.router.scheduling.promise import Promise
from penstock.router.scheduling.sequence import Sequence
from penstock.router.scheduling.usage import Usage


def sequence_of(
    request: Request, id: int, age: int, record: DeathRecord, tokens: list[int], usage: Usage, *,
    guesser: Guesser | None = None, beam_sampling: Sampling | None = None, pools_last: bool = False,
) -> Sequence:
    """Returns a sequence that has `tokens` so far, with the prompt's; one that has `beam_sampling` is a beam. If the
    model `pools_last`, all that is made of a text but vectors of tokens is made of its last one."""
    grammar = request.grammar
    pooled = None if request.pooling is None else request.pooling.task
    return Sequence(
        id=id, age=age, priority=request.priority, record=record, tokens=tokens, usage=usage, guesser=guesser,
        prompt_length=len(request.input_ids),
        max_length=len(request.input_ids) + request.max_new_tokens, sampling=beam_sampling or request.sampling,
        ignore_eos=request.ignore_eos, stop_token_ids=request.stop_token_ids,
        promise=None if request.deadline is None else Promise(request.deadline.due_at),
        has_grammar=grammar is not None,
        num_free=0 if grammar is None or isinstance(grammar, GrammarSpec) else grammar.num_free,
        wants_prompt_logprobs=request.wants_prompt_logprobs,
        pooled=pooled, computes_all=pooled is Task.EMBED_ALL or (pooled is not None and not pools_last),
        side_inputs=side_inputs_of(request), salt=request.salt, tenant=request.tenant,
        is_beam=beam_sampling is not None)
