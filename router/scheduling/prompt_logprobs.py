"""The logprobs of a prompt, which come with the rows that compute it."""

from penstock.router.scheduling.plan import PromptLogprobsPart, Row, RowResult
from penstock.router.scheduling.sequence import Sequence


def prompt_logprobs(sequence: Sequence, row: Row, answer: RowResult) -> list[PromptLogprobsPart]:
    """Returns the prompt logprobs that a row yielded, if any were asked for, and notes how far they reach."""
    count, wanted = len(answer.prompt_logprobs), len(row.prompt_logprob_ids)
    assert count == wanted, f"{count} prompt logprobs for {wanted} tokens"
    if not row.prompt_logprob_ids:
        return []
    start = row.start + 1
    sequence.prompt_logprobs_end = max(sequence.prompt_logprobs_end, start + len(answer.prompt_logprobs))
    return [PromptLogprobsPart(sequence.id, start, answer.prompt_logprobs, answer.prompt_top_logprobs)]
