"""The rows that a sequence gets in a plan, and what is read from their results."""

from collections.abc import Collection
from collections.abc import Sequence as Items

from penstock.contract.initial_state import InitialState
from penstock.contract.output import Output
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.router.scheduling.confirmed import Confirmed, PromptLogprobsPart, Sampled, Verified
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.guesser import PROPOSED
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.sequence import Sequence


def decode_row(sequence: Sequence, guesses: Items[int]) -> Row:
    """Makes the row for a sequence's next token, with guesses of those that follow. The shards know its last token,
    unless guesses were verified or are brought."""
    assert sequence.slot is not None
    num_proposals = len(guesses) if PROPOSED in guesses else 0
    brought = () if num_proposals else guesses
    is_brought = sequence.is_verifying or bool(brought)
    return Row(
        slot=sequence.slot, start=sequence.computed, from_last_sample=not is_brought,
        token_ids=(sequence.tokens[-1], *brought) if is_brought else (), new_blocks=sequence.unsent_blocks,
        late_mask=sequence.has_grammar, num_drafts=len(brought), num_proposals=num_proposals, is_decode=True)


def prefill_row(sequence: Sequence, end: int) -> Row:
    """Makes the row for the tokens of a sequence's prefill up to `end`."""
    assert sequence.slot is not None
    start, is_last = sequence.computed, end == sequence.prefill_end
    return Row(
        slot=sequence.slot, start=start, token_ids=tuple(sequence.tokens[start:end]),
        new_blocks=sequence.unsent_blocks, output=Output.SAMPLE if is_last else Output.NONE,
        initial_state=initial_state(sequence) if sequence.num_blocks_sent == 0 else None,
        late_mask=is_last and sequence.has_grammar, prompt_logprob_ids=sequence.prompt_logprob_ids(start, end))


def initial_state(sequence: Sequence) -> InitialState:
    """Says what a shard must know of a sequence before its first row in a slot."""
    history = tuple(sequence.tokens) if sequence.sampling.reads_history else ()
    return InitialState(sequence.sampling, sequence.prompt_length, history, sequence.trace, sequence.adapter)


def prompt_logprobs(sequence: Sequence, row: Row, answer: RowResult) -> list[PromptLogprobsPart]:
    """Returns the prompt logprobs that a row yielded, if any were asked for."""
    count, wanted = len(answer.prompt_logprobs), len(row.prompt_logprob_ids)
    assert count == wanted, f"{count} prompt logprobs for {wanted} tokens"
    if not row.prompt_logprob_ids:
        return []
    start = row.start + 1
    sequence.prompt_logprobs_end = max(sequence.prompt_logprobs_end, start + len(answer.prompt_logprobs))
    return [PromptLogprobsPart(sequence.id, start, answer.prompt_logprobs, answer.prompt_top_logprobs)]


def ending(sequence: Sequence, eos_token_ids: Collection[int], capacity: int) -> FinishReason | None:
    """Returns why a sequence ends with its last token, or None. As in TGI, the length precedes the end token.

    capacity: the tokens that the memory holds
    """
    if len(sequence.tokens) >= sequence.max_length:
        return FinishReason.LENGTH
    token_id = sequence.tokens[-1]
    is_eos = token_id in eos_token_ids and not sequence.ignore_eos
    if is_eos or token_id in sequence.stop_token_ids:
        return FinishReason.EOS_TOKEN
    return FinishReason.ERROR if len(sequence.tokens) >= capacity else None


def take_in(
    sequence: Sequence, row: Row, answer: RowResult, eos_token_ids: Collection[int], memory: KvMemory
) -> Items[Confirmed]:
    """Appends what a row yielded to its sequence, and returns it, its tokens last."""
    if not row.num_guesses and not row.prompt_logprob_ids and not sequence.forks:
        assert not answer.prompt_logprobs, f"{len(answer.prompt_logprobs)} prompt logprobs, and none were asked for"
        return append(sequence, answer, eos_token_ids, memory)
    take_back(sequence, row, answer)
    parts = prompt_logprobs(sequence, row, answer)
    tokens = append(sequence, answer, eos_token_ids, memory)
    return [*parts, *verified(sequence, row, answer, tokens), *tokens]


def append(
    sequence: Sequence, answer: RowResult, eos_token_ids: Collection[int], memory: KvMemory
) -> list[Sampled]:
    """Appends the tokens that a row yielded, up to one that ends the sequence; returns those appended."""
    appended: list[Sampled] = []
    tops = answer.top_logprobs or ((),) * len(answer.token_ids)
    for token_id, logprob, top in zip(answer.token_ids, answer.logprobs, tops, strict=True):
        memory.confirm(sequence, len(sequence.tokens))
        sequence.tokens.append(token_id)
        if sequence.guesser is not None:
            sequence.guesser.note(token_id)
        reason = ending(sequence, eos_token_ids, memory.capacity)
        appended.append(Sampled(sequence.id, token_id, logprob, reason, top))
        if reason is not None:
            break
    return appended


def take_back(sequence: Sequence, row: Row, answer: RowResult) -> None:
    """Takes back what was computed of guesses that were wrong, if the row had any."""
    if row.num_guesses:
        num_accepted = len(answer.token_ids) - 1
        assert 0 <= num_accepted <= row.num_guesses, f"{num_accepted} of {row.num_guesses} guesses are right"
        sequence.computed -= row.num_guesses - num_accepted
        if row.num_proposals and sequence.guesser is not None:
            sequence.guesser.judge(row.num_proposals, num_accepted)


def verified(sequence: Sequence, row: Row, answer: RowResult, tokens: Items[Sampled]) -> list[Verified]:
    """Tells how many guesses of a row and of forks beside it were right, if there were any: of those that became
    `tokens` of the sequence, which may have ended amid them."""
    num_guesses = row.num_guesses + sum(fork.num_own for fork in sequence.forks)
    if not num_guesses or not tokens:
        return []
    return [Verified(tokens[0].sequence_id, num_guesses, min(len(tokens), len(answer.token_ids) - 1))]
