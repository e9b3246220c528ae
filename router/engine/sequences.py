"""The sequences that the scheduler gets for a request."""

from penstock.contract.sampling import Sampling
from penstock.router.engine.request import Request
from penstock.router.engine.side_inputs import side_inputs_of
from penstock.router.grammar.spec import GrammarSpec
from penstock.router.scheduling.death_record import DeathRecord
from penstock.router.scheduling.guesser import Guesser
from penstock.router.scheduling.sequence import Sequence


def sequence_of(
    request: Request, id: int, age: int, record: DeathRecord, tokens: list[int], *, guesser: Guesser | None = None,
    beam_sampling: Sampling | None = None,
) -> Sequence:
    """Returns a sequence that has `tokens` so far, with the prompt's; one that has `beam_sampling` is a beam."""
    grammar = request.grammar
    return Sequence(
        id=id, age=age, priority=request.priority, record=record, tokens=tokens, guesser=guesser,
        prompt_length=len(request.input_ids),
        max_length=len(request.input_ids) + request.max_new_tokens, sampling=beam_sampling or request.sampling,
        ignore_eos=request.ignore_eos, stop_token_ids=request.stop_token_ids,
        has_grammar=grammar is not None,
        num_free=0 if grammar is None or isinstance(grammar, GrammarSpec) else grammar.num_free,
        wants_prompt_logprobs=request.wants_prompt_logprobs,
        side_inputs=side_inputs_of(request), salt=request.salt, is_beam=beam_sampling is not None)
