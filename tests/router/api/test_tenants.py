"""What the lines of the key file grant, as clients notice it."""

from pathlib import Path

import pytest

from penstock.router.api.http.access import Access
from penstock.router.keys import Keys
from tests.router.api.conftest import Start


async def test_a_request_is_one_of_the_tenant_whose_key_it_bears(start: Start, tmp_path: Path) -> None:
    """Until the file is read again nobody has a share, and nothing is counted."""
    (tmp_path / "keys").write_text("# name: alice\nsk-a\n# name: bob\nsk-b\n")
    keys = Keys((), tmp_path / "keys")
    server = await start(access=Access(keys))
    shares = server.engine._scheduler._waiting.shares

    async def ask(path: str, key: str, **body: object) -> None:
        response = await server.client.post(path, json=body, headers={"authorization": f"Bearer {key}"})
        assert response.status == 200, await response.text()

    await ask("/generate", "sk-b", inputs="a", parameters={"max_new_tokens": 3})
    assert not shares.is_on
    (tmp_path / "keys").write_text("# name: alice\n# share: 3\nsk-a\n# name: bob\nsk-b\n")
    keys.reload()
    await ask("/generate", "sk-b", inputs="b", parameters={"max_new_tokens": 3})
    before = {name: lane.served for name, lane in shares._lanes.items()}
    await ask("/v1/completions", "sk-a", model="tgi", prompt="c", max_tokens=3)
    served = {name: lane.served - before.get((False, "bob"), 0) for name, lane in shares._lanes.items()}
    assert before.keys() == {(False, "bob")}
    assert served[False, "alice"] * 3 == pytest.approx(before[False, "bob"]), "the same, for a share of three"
