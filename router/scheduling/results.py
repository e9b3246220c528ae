"""Applies the results of a step's rows to its sequences."""

from collections.abc import Collection
from collections.abc import Sequence as Items

from penstock.contract.output import Output
from penstock.contract.pooling import POOLED
from penstock.contract.row import Row
from penstock.contract.row_result import RowResult
from penstock.router.scheduling.confirmed import (
    Candidates,
    Confirmed,
    Other,
    Pooled,
    PromptLogprobsPart,
    Sampled,
    Verified,
)
from penstock.router.scheduling.finish_reason import FinishReason
from penstock.router.scheduling.memory import KvMemory
from penstock.router.scheduling.sequence import Sequence

_POOL = Output.POOL                      # an enum's members are looked up slowly


def take_answer(sequence: Sequence, row: Row, answers: dict[int, RowResult]) -> tuple[Row, RowResult | None]:
    """Takes the answers of a sequence's row and of its forks, by their slots, if the row has any. Returns the one with
    the most right guesses, and its row: the sequence goes on with that, and a fork that is taken gets what it leaves.
    """
    if not row.is_answered:
        return row, answers.pop(row.slot, None)  # it may have others
    assert row.slot in answers, f"no result for slot {row.slot}"
    answer, best = answers.pop(row.slot), None
    for fork in sequence.forks:
        assert fork.slot in answers, f"no result for slot {fork.slot}"
        other = answers.pop(fork.slot)
        if len(other.token_ids) > len(answer.token_ids):
            answer, best = other, fork
    if best is not None:
        row, best.row = best.row, row
        sequence.take(best)
        sequence.computed = row.start + row.num_inputs
    return row, answer


def take_in(
    sequence: Sequence, row: Row, answer: RowResult, eos_token_ids: Collection[int], memory: KvMemory
) -> Items[Confirmed]:
    """Appends a row's results to its sequence, and returns the reports of them, its tokens last."""
    if row.output is _POOL:
        return pooled(sequence, row, answer)
    if not row.num_guesses and not row.prompt_logprob_ids and not sequence.forks and not answer.others:
        assert not answer.prompt_logprobs, f"{len(answer.prompt_logprobs)} prompt logprobs, and none were asked for"
        return candidates(sequence, answer, memory.capacity) or append(sequence, answer, eos_token_ids, memory)
    take_back(sequence, row, answer)
    parts = prompt_logprobs(sequence, row, answer)
    others = [Other(sequence.id, row.end, *each) for each in answer.others]
    if found := candidates(sequence, answer, memory.capacity):
        return [*parts, *others, *found]
    tokens = append(sequence, answer, eos_token_ids, memory)
    return [*parts, *others, *verified(sequence, row, answer, tokens), *tokens]


def pooled(sequence: Sequence, row: Row, answer: RowResult) -> list[Confirmed]:
    """Returns the vectors or scores that a row yielded, behind its other results."""
    assert sequence.pooled is not None
    assert not answer.token_ids, f"{len(answer.token_ids)} tokens of a row that yields none"
    others = [Other(sequence.id, row.end, *each) for each in answer.others if each.kind != POOLED]
    [value] = [each.value for each in answer.others if each.kind == POOLED]
    reason = FinishReason.POOLED if row.end == len(sequence.tokens) else None
    return [*others, Pooled(sequence.id, row.start, row.num_inputs, value, reason)]


def take_back(sequence: Sequence, row: Row, answer: RowResult) -> None:
    """Takes back the computed tokens of wrong guesses, if the row had any."""
    if row.num_guesses:
        num_accepted = len(answer.token_ids) - 1
        assert 0 <= num_accepted <= row.num_guesses, f"{num_accepted} of {row.num_guesses} guesses are right"
        sequence.computed -= row.num_guesses - num_accepted
        if row.num_proposals and sequence.guesser is not None:
            sequence.guesser.judge(row.num_proposals, num_accepted)


def prompt_logprobs(sequence: Sequence, row: Row, answer: RowResult) -> list[PromptLogprobsPart]:
    """Returns the prompt logprobs that a row yielded, if any were asked for."""
    count, wanted = len(answer.prompt_logprobs), len(row.prompt_logprob_ids)
    assert count == wanted, f"{count} prompt logprobs for {wanted} tokens"
    if not row.prompt_logprob_ids:
        return []
    start = row.start + 1
    sequence.prompt_logprobs_end = max(sequence.prompt_logprobs_end, start + len(answer.prompt_logprobs))
    return [PromptLogprobsPart(sequence.id, start, answer.prompt_logprobs, answer.prompt_top_logprobs,
                               answer.prompt_ranks)]


def candidates(sequence: Sequence, answer: RowResult, capacity: int) -> list[Candidates]:
    """Returns the candidates of a beam's next token that a row yielded; none of a sequence that is no beam.

    capacity: the tokens that the memory holds
    """
    if not sequence.is_beam or not answer.token_ids:
        return []
    sequence.is_undecided = True
    [logprob], [top] = answer.logprobs, answer.top_logprobs
    is_full = capacity <= len(sequence.tokens) + 1 < sequence.max_length
    return [Candidates(sequence.id, logprob, top, FinishReason.ERROR if is_full else None)]


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


def verified(sequence: Sequence, row: Row, answer: RowResult, tokens: Items[Sampled]) -> list[Verified]:
    """Tells how many guesses of a row and of forks beside it were right, if there were any: of those that became
    `tokens` of the sequence, which may have ended amid them."""
    num_guesses = row.num_guesses + sum(fork.num_own for fork in sequence.forks)
    if not num_guesses or not tokens:
        return []
    return [Verified(tokens[0].sequence_id, num_guesses, min(len(tokens), len(answer.token_ids) - 1))]
