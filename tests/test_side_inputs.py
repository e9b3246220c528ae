"""A made-up kind of side input plugs in: a picture, of which nobody but the shard's list of kinds and the spec know."""

from pathlib import Path

import pytest
from aiohttp.test_utils import TestClient

from penstock.contract.plan import Plan
from penstock.contract.side_inputs import SideInput
from penstock.router.generation.answers import answering, tokens_of
from penstock.router.generation.asking import Asking
from penstock.router.generation.identity import Wish, identify
from penstock.router.generation.parameters import Parameters
from penstock.router.generation.services import SERVICES
from penstock.router.generation.spec import GenerationSpec
from penstock.shard.execution import side_inputs
from penstock.shard.execution.slots import SlotTable
from tests.one_process import router_and_shard

TEXT = "def open(path):\n    return path.open()\n" * 4


async def ask(client: TestClient, *pictures: SideInput) -> tuple[list[int], int, str]:
    """The answer's tokens, how many of the prompt's were cached, and the name of the answer."""
    assert client.app is not None
    [service] = client.app[SERVICES]
    spec = GenerationSpec(TEXT, Parameters(max_new_tokens=4), side_inputs=pictures)
    identity = await identify(service, [spec], Wish(key="the same seed"), [], is_stream=False)
    with Asking(service) as asking:
        async with answering(asking, [spec], identity, is_stream=False) as answers:
            [tokens] = await tokens_of(answers)
            return [token.id for token in tokens], answers.each[0].hit_tokens, identity.name.digest


def picture(value: bytes, identity: bytes) -> SideInput:
    return SideInput("picture", value, identity)


async def test_a_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It arrives in its sequence's slot as its kind reads it, and sequences of another one share nothing with it."""
    seen, apply = [], SlotTable.apply

    def apply_and_see(slots: SlotTable, step: Plan) -> None:
        apply(slots, step)
        seen.extend(slots[row.slot].side_inputs for row in step.rows if row.initial_state)

    monkeypatch.setitem(side_inputs.KINDS, "picture", lambda value: value.decode().split("x"))
    monkeypatch.setattr(SlotTable, "apply", apply_and_see)
    cat, dog = picture(b"3x4", b"cat"), picture(b"5x6", b"dog")
    async with router_and_shard(tmp_path) as client:
        without, first, second, other = [await ask(client, *each) for each in ((), (cat,), (cat,), (dog,))]
    assert seen == [{}, {"picture": ["3", "4"]}, {"picture": ["3", "4"]}, {"picture": ["5", "6"]}]
    assert (without[0], without[0], without[0]) == (first[0], second[0], other[0]), "this model looks at no picture"
    assert [each[1] > 0 for each in (without, first, second, other)] == [False, False, True, False]
    assert first[2] == second[2]
    assert len({without[2], first[2], other[2]}) == 3
