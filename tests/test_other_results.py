"""A made-up kind of result plugs in: a mean of hidden states, which a side input of a made-up kind asks for."""

from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from aiohttp.test_utils import TestClient

from penstock.contract.side_inputs import SideInput
from penstock.router.generation.answers import answering, tokens_of
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish, identify
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.services import SERVICES
from penstock.router.generation.spec import GenerationSpec
from penstock.shard.execution import other_results, side_inputs
from penstock.shard.execution.other_results import Computed, Making
from tests.fakes import LIMITS
from tests.one_process import router_and_shard

NEW = 3
LENGTH = LIMITS.max_batch_prefill_tokens + 20
"""Of a prompt that takes a step more than one."""


def pooled(computed: Computed) -> Making | None:
    """The mean of what the model made of a row's tokens, of each row whose sequence asks for it."""
    places = [place for place, row in enumerate(computed.rows) if "pooling" in computed.slots[row.slot].side_inputs]
    if computed.hidden is None or not places:
        return None
    hidden = computed.hidden.x + computed.hidden.delta
    of_rows = hidden.split([row.num_inputs for row in computed.rows])
    slots = [computed.rows[place].slot for place in places]
    means = torch.stack([of_rows[place].mean(dim=0) for place in places]).float()
    return Making([means], lambda tensors: {
        slot: mean.numpy().tobytes() for slot, mean in zip(slots, tensors[0], strict=True)})


async def ask(client: TestClient, *inputs: SideInput) -> tuple[list[int], Mapping[tuple[str, int], bytes]]:
    """The answer's tokens and other results."""
    assert client.app is not None
    [service] = client.app[SERVICES]
    spec = GenerationSpec(tuple(range(100, 100 + LENGTH)), Parameters(max_new_tokens=NEW), side_inputs=inputs)
    identity = await identify(service, [spec], Wish(), [], is_stream=False)
    with Asking(service) as asking:
        async with answering(asking, [spec], identity, is_stream=False) as answers:
            [tokens] = await tokens_of(answers)
            return [token.id for token in tokens], answers.each[0].others


async def test_pooled_states(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They come of each row: of the first part of the prompt, which yields no token, and of each token."""
    monkeypatch.setitem(side_inputs.KINDS, "pooling", bytes.decode)
    monkeypatch.setitem(other_results.MAKERS, "pooled", pooled)
    async with router_and_shard(tmp_path) as client:
        without, *asked = [await ask(client, *inputs) for inputs in (
            (), *((SideInput("pooling", b"mean", name),) for name in (b"one", b"two")))]
    assert without[1] == {}
    assert [tokens for tokens, _ in asked] == [without[0]] * 2
    assert asked[0] == asked[1], "it has the same bits"
    (kind, first), *rest = [*asked[0][1]]
    assert kind == "pooled"
    assert 0 < first < LENGTH
    assert rest[-NEW:] == [("pooled", LENGTH + index) for index in range(NEW)]
    means = torch.stack([torch.frombuffer(bytearray(value), dtype=torch.float32) for value in asked[0][1].values()])
    assert len(means.unique(dim=0)) == len(means)
