"""Refuses rows that no shard could run, whatever came before them."""

from math import isfinite

from penstock.contract.initial_state import InitialState
from penstock.contract.row import Row
from penstock.kernels.sample.parameters import PARAMETERS
from penstock.shard.execution.side_inputs import read_side_inputs


def check_row(row: Row) -> None:
    """Raises ValueError for such a row, with words that go on from the row's name."""
    if row.initial_state is not None:
        _check_initial_state(row.initial_state)
    if row.num_inputs == row.num_proposals:
        raise ValueError(" has no input tokens")
    if row.num_proposals and (row.num_drafts or row.late_mask or not row.is_sampled):
        raise ValueError(f".num_proposals is {row.num_proposals}, in a row with {row.num_drafts} drafts"
                         f"{' and a late mask' * row.late_mask}; a token is {'' if row.is_sampled else 'not '}sampled")
    if row.num_drafts and (row.num_drafts >= row.num_inputs or row.num_drafts > len(row.token_ids)
                           or not row.is_sampled):
        raise ValueError(f".num_drafts is {row.num_drafts}, of {row.num_inputs} input tokens, of which "
                         f"{len(row.token_ids)} are in token_ids; a token is {'' if row.is_sampled else 'not '}sampled")
    if len(row.prompt_logprob_ids) > row.num_inputs:
        raise ValueError(f" has {len(row.prompt_logprob_ids)} prompt_logprob_ids for {row.num_inputs} input tokens")


def _check_initial_state(state: InitialState) -> None:
    sampling = state.sampling
    for parameter in PARAMETERS:
        value = getattr(sampling, parameter.name)
        if parameter.bound and not parameter.bound.holds(value):
            raise ValueError(f".initial_state.sampling.{parameter.name} is {value}, it must be {parameter.bound.text}")
    if sampling.of_logprobs and sampling.do_sample:
        raise ValueError(".initial_state.sampling.of_logprobs is true, which it can't be where do_sample is, too")
    if len(sampling.bias_ids) != len(sampling.bias_values):
        raise ValueError(f".initial_state.sampling has {len(sampling.bias_ids)} bias_ids and "
                         f"{len(sampling.bias_values)} values")
    if not all(sampling.bad_word_lengths) or sum(sampling.bad_word_lengths) != len(sampling.bad_word_ids):
        raise ValueError(f".initial_state.sampling has {len(sampling.bad_word_ids)} bad_word_ids, and the lengths of "
                         f"bad words {list(sampling.bad_word_lengths)}")
    if not all(map(isfinite, sampling.bias_values)):
        raise ValueError(f".initial_state.sampling.bias_values are {list(sampling.bias_values)}, they must be finite")
    try:
        read_side_inputs(state.side_inputs)
    except ValueError as error:
        raise ValueError(f".initial_state{error}") from error
