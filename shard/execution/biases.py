"""The numbers that are added to the scores of some tokens: biases that were asked for, and bans."""

from collections.abc import Mapping, Sequence

import numpy as np
from torch import Tensor

from penstock.contract.row import Row
from penstock.kernels.sample import Biases
from penstock.shard.devices.device import Array
from penstock.shard.execution.bans import with_bans
from penstock.shard.execution.ids import NO_IDS, Ids
from penstock.shard.execution.slots import Slot, SlotTable


def prepare(rows: Sequence[Row], states: Sequence[Slot], positions: Sequence[int], slots: SlotTable
            ) -> dict[str, Array]:
    """Returns the columns of the biases of all samples, as far as the host knows them, to be uploaded with the step.

    `positions` are those of the samples in their outputs: output that is not long enough has bans of its own, and
    output that is long enough may be the beginning of a bad word, which `launch` finds out.
    """
    offsets = np.zeros(len(states) + 1, np.int64)
    if not any(len(state.bias_ids) or len(state.banned_ids) or state.bad_words for state in states):
        return {"bias_ids": NO_IDS, "bias_values": np.empty(0, np.float32), "bias_offsets": offsets}
    parts = [_of_sample(state, position) for state, position in zip(states, positions, strict=True)]
    np.cumsum([len(ids) for ids, _ in parts], out=offsets[1:])
    all_ids, all_values = (np.concatenate(column) for column in zip(*parts, strict=True))
    columns: dict[str, Array] = {"bias_ids": all_ids, "bias_values": all_values, "bias_offsets": offsets}
    return columns | _bad_words(rows, states, positions, offsets, slots)


def launch(columns: Mapping[str, Tensor], slots: SlotTable) -> Biases:
    """Returns the biases of all samples, with bans where the output so far is the beginning of a bad word.

    columns  those of `prepare`, on the device
    """
    values = columns["bias_values"]
    if "bad_word_places" in columns:
        values = with_bans(values, columns["bad_word_numbers"], columns["bad_word_before"],
                           slots.kept(columns["bad_word_places"]))
    return Biases(columns["bias_ids"], values, columns["bias_offsets"])


def _of_sample(state: Slot, position: int) -> tuple[Ids, Array]:
    """Returns the tokens that have biases, and these; those of bad words of several tokens, which come last, are 0."""
    ids, values = [state.bias_ids], [state.bias_values]
    if position < state.sampling.min_tokens:
        ids.append(state.banned_ids)
        values.append(np.full(len(state.banned_ids), -np.inf, np.float32))
    if state.bad_words is not None:
        words = state.bad_words.reached(position)
        ids.append(words.last_ids)
        values.append(np.where(words.num_before == 0, -np.inf, 0).astype(np.float32))
    return np.concatenate(ids), np.concatenate(values)


def _bad_words(
    rows: Sequence[Row], states: Sequence[Slot], positions: Sequence[int], offsets: Ids, slots: SlotTable
) -> dict[str, Array]:
    """Returns the columns by which bad words of several tokens are looked for; none if no sample may complete one."""
    slot_ids = [row.slot for row in rows for _ in range(row.num_samples)]
    width = max((state.bad_words.before.shape[1] for state in states if state.bad_words is not None), default=0)
    numbers, before, places = [], [], []
    for slot, state, position, end in zip(slot_ids, states, positions, offsets[1:].tolist(), strict=True):
        if state.bad_words is not None and width:
            words = state.bad_words.reached(position)
            ids, where = words.placed(slot * slots.max_history + state.prompt_length + position, width)
            several = words.num_before.nonzero()[0]
            numbers.append(end - len(words.last_ids) + several)
            before.append(ids[several])
            places.append(where[several])
    if not sum(map(len, numbers)):
        return {}
    return {"bad_word_numbers": np.concatenate(numbers), "bad_word_before": np.concatenate(before),
            "bad_word_places": np.concatenate(places)}
