"""Hands the masks that come while the model runs from the event loop, where they arrive, to the thread that samples."""

import threading
from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from penstock.contract.plan import Plan

WORD = 32                                # tokens

Mask = npt.NDArray[np.int32]
"""Has a bit for each token that may be sampled, the lowest bit of the first word first: [..., ceil(V / 32)]."""
Masks = Mapping[int, Mask]
"""For some slots, a mask for each token that is sampled: [samples, ceil(V / 32)]."""


class LateMasks:
    """Keeps the masks of one stream until they are taken.

    The stream's reader calls `expect` and `put`, the sampling thread `take`, and anyone `end`.
    """

    def __init__(self, vocab_size: int) -> None:
        self._vocab_size = vocab_size
        self._expected: dict[int, dict[int, int]] = {}  # by step and slot: how many masks
        self._arrived: dict[int, Masks] = {}
        self._change = threading.Condition()
        self._has_ended = False

    @property
    def expected_steps(self) -> list[int]:
        """Returns the steps whose masks have not come yet."""
        return list(self._expected)

    def expect(self, step: Plan) -> None:
        """Note the rows of a step that will wait for masks; to be called before the step can run."""
        if slots := {row.slot: row.num_samples for row in step.rows if row.late_mask}:
            self._expected[step.step_id] = slots

    def put(self, step_id: int, bits: Mapping[int, bytes]) -> None:
        """Take in the masks of a step. Raises ValueError, naming slot, limit and value, for one that no row waits for
        or could use."""
        if step_id not in self._expected:
            raise ValueError(f"masks.step_id is {step_id}, the steps that wait for masks are {self.expected_steps}")
        masks = {slot: self._read(step_id, slot, data) for slot, data in bits.items()}
        del self._expected[step_id]
        with self._change:
            self._arrived[step_id] = masks
            self._change.notify_all()

    def take(self, step_id: int) -> Masks:
        """Wait for the masks of a step and return them; returns none if the stream ends before they come."""
        with self._change:
            self._change.wait_for(lambda: self._has_ended or step_id in self._arrived)
            return self._arrived.pop(step_id, {})

    def end(self) -> None:
        """Tell that no more masks will come: whoever waits goes on without."""
        with self._change:
            self._has_ended = True
            self._change.notify_all()

    def _read(self, step_id: int, slot: int, data: bytes) -> npt.NDArray[np.int32]:
        where = f"masks of step {step_id}, slot {slot}"
        if slot not in self._expected[step_id]:
            raise ValueError(f"{where}: the slots that wait for a mask are {sorted(self._expected[step_id])}")
        num_words, number = -(-self._vocab_size // WORD), self._expected[step_id][slot]
        if len(data) != 4 * num_words * number:
            raise ValueError(f"{where}: {len(data)} bytes, the row samples {number} tokens and a mask of "
                             f"{self._vocab_size} tokens has {4 * num_words}")
        masks = np.frombuffer(data, "<i4").astype(np.int32).reshape(number, num_words)
        in_last = self._vocab_size - WORD * (num_words - 1)
        used = masks.copy()
        used[:, -1] &= np.int64((1 << in_last) - 1).astype(np.int32)
        if not used.any(axis=1).all():
            raise ValueError(f"{where}: none of {self._vocab_size} tokens is allowed")
        return masks
