"""What the sampling tests share: rows as dictionaries, and one call of the op."""

import math

import torch
from torch import Tensor

from penstock.kernels.sample import Biases, History, SampleParameters, sample
from penstock.kernels.sample.parameters import COLUMNS, PARAMETERS
from penstock.kernels.top_logprobs import TopLogprobs

DEFAULTS: dict[str, float] = {
    "prompt_length": 0, "mask": -1, "position": 0, **{each.name: each.off for each in PARAMETERS}, "do_sample": True}


def columns(rows: list[dict]) -> dict[str, Tensor]:
    """The parameters of rows: each has those it names and the defaults."""
    given = set().union(*rows)
    assert given <= DEFAULTS.keys()
    return {
        name: torch.tensor([row.get(name, default) for row in rows], dtype=COLUMNS[name])
        if name in given else torch.full((len(rows),), default, dtype=COLUMNS[name])
        for name, default in DEFAULTS.items()
    }


def offsets_of(parts: list) -> Tensor:
    return torch.tensor([0, *(len(part) for part in parts)]).cumsum(0)


def pack_masks(allowed: list[list[int]], vocabulary: int) -> Tensor:
    """Masks that allow these tokens, int32 [M, words]; what lies behind the vocabulary is allowed too."""
    num_words = -(-vocabulary // 32)
    masks = torch.zeros(len(allowed), 32 * num_words, dtype=torch.int64)
    rows = torch.arange(len(allowed)).repeat_interleave(torch.tensor([len(ids) for ids in allowed], dtype=torch.int64))
    masks[rows, torch.tensor([token for ids in allowed for token in ids], dtype=torch.int64)] = 1
    masks[:, vocabulary:] = 1
    words = (masks.view(len(allowed), num_words, 32) << torch.arange(32)).sum(dim=2)
    return (words - (words >> 31 << 32)).int()


def arguments(logits: Tensor, rows: list[dict], histories: list[list[int]] | None = None) -> tuple:
    """What sample() takes for logits [R, V]. A row may have `allowed`, ids, and `bias`, pairs of id and value."""
    histories = histories or [[] for _ in rows]
    ids = torch.tensor([token for history in histories for token in history], dtype=torch.int64)
    biases = [row.get("bias", ()) for row in rows]
    pairs = [pair for bias in biases for pair in bias]
    allowed = [row["allowed"] for row in rows if "allowed" in row]
    numbers = iter(range(len(allowed)))
    rows = [{**row, "mask": next(numbers)} if "allowed" in row else row for row in rows]
    plain = [{name: row[name] for name in row if name not in ("bias", "allowed")} for row in rows]
    return (
        logits,
        SampleParameters(**columns(plain)),
        History(ids, offsets_of(histories)),
        Biases(
            torch.tensor([token for token, _ in pairs], dtype=torch.int64),
            torch.tensor([value for _, value in pairs], dtype=torch.float32),
            offsets_of(biases),
        ),
        pack_masks(allowed, logits.shape[1]),
    )


def draw(logits: Tensor, rows: list[dict], histories: list[list[int]] | None = None) -> tuple[Tensor, Tensor]:
    """The ids and log-probabilities of sample() of these `arguments`."""
    sampled = sample(*arguments(logits, rows, histories))
    return sampled.ids, sampled.logprobs


def told(top: TopLogprobs) -> list[list[tuple[int, float]]]:
    """The likeliest tokens of each row, without the places that are not used."""
    for ids, logprobs in zip(top.ids, top.logprobs, strict=True):
        count = int((ids >= 0).sum())
        assert (ids[count:] == -1).all()
        assert (logprobs[count:] == -torch.inf).all()
    return [
        [(token, logprob) for token, logprob in zip(ids, logprobs, strict=True) if token >= 0]
        for ids, logprobs in zip(top.ids.tolist(), top.logprobs.tolist(), strict=True)
    ]


def gumbel(seed: int, position: int, token: int, branch: int = 0) -> float:
    """The noise of one token, in Python's integers."""
    word = (token, position, branch, 0)
    key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
    for _ in range(10):
        first, second = word[0] * 0xD2511F53, word[2] * 0xCD9E8D57
        word = (
            second >> 32 ^ word[1] ^ key[0], second & 0xFFFFFFFF,
            first >> 32 ^ word[3] ^ key[1], first & 0xFFFFFFFF,
        )  # fmt: skip
        key = (key[0] + 0x9E3779B9 & 0xFFFFFFFF, key[1] + 0xBB67AE85 & 0xFFFFFFFF)
    return -math.log(-math.log((word[0] + 0.5) * 2.0**-32))
