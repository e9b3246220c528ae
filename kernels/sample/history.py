"""What a history must be."""

from torch import Tensor


def check_history(history_ids: Tensor, history_offsets: Tensor, vocabulary: int) -> None:
    """Raise ValueError unless the offsets cut all of `history_ids` and each of them is one of the vocabulary's."""
    lengths = history_offsets.diff()
    if history_offsets[0] != 0 or len(history_ids) != history_offsets[-1] or lengths.min() < 0:
        raise ValueError(f"sample: {len(history_ids)} history_ids, but the offsets are {history_offsets.tolist()}")
    low, high = int(history_ids.min()), int(history_ids.max())
    if low < 0 or high >= vocabulary:
        raise ValueError(f"sample: history_ids are between {low} and {high}, the vocabulary has {vocabulary} ids")
