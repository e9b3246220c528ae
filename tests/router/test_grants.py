"""The lines of the key file that grant something to a key."""

import re
from pathlib import Path

import pytest

from penstock.router.grants import NOTHING, Grants, Rate
from penstock.router.keys import Keys
from penstock.router.scheduling.tenant import KvQuota
from penstock.system.arguments import InvalidArgument

RATE = "a number > 0 and a unit of time, s, min, h or d, as in `60/min`"
QUOTA = "a number of tokens > 0, or a part of the memory from `1%` to `100%`"


def keys_of(tmp_path: Path, text: str, given: tuple[str, ...] = ()) -> Keys:
    file = tmp_path / "keys"
    file.write_text(text)
    return Keys(given, file)


def test_comments_before_a_key_grant_it_something(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "# of the team, since: 2026\n# name: alice\n#share:3\nsk-a\nsk-b\n", given=("sk-c",))
    assert [keys.name_of(key) for key in ("sk-a", "sk-b", "sk-c")] == ["alice", "file-2", "key-1"]
    assert keys.grants_of("alice") == Grants(share=3)
    assert keys.grants_of("file-2") == keys.grants_of("key-1") == Grants(share=1), "others have one, too, then"
    assert keys_of(tmp_path, "# name: alice\nsk-a\n").grants_of("alice") == NOTHING


def test_every_word_grants_what_it_says(tmp_path: Path) -> None:
    text = "# name: b\n# kv-quota: 25%\n# rate: 5/s\n# tokens: 1000/min\n# priority: -3\n# salt: own\nsk-b\n"
    assert keys_of(tmp_path, text).grants_of("b") == Grants(
        None, KvQuota(25, True), Rate(5, "s"), Rate(1000, "min"), priority=-3, has_own_salt=True)


def test_keys_of_one_name_are_those_of_one_tenant(tmp_path: Path) -> None:
    keys = keys_of(tmp_path, "# name: alice\n# share: 2\nold\n\n# name: alice\nnew\n")
    assert (keys.name_of("old"), keys.name_of("new"), keys.grants_of("alice")) == ("alice", "alice", Grants(share=2))


@pytest.mark.parametrize(("text", "sentence"), [
    ("# share: 0\nsk-a\n", "line 1: `# share` must be an integer from 1 to 1000. Given: `0`"),
    ("\n# share: 1001\nsk-a\n", "line 2: `# share` must be an integer from 1 to 1000. Given: `1001`"),
    ("# share: 1.5\nsk-a\n", "line 1: `# share` must be an integer from 1 to 1000. Given: `1.5`"),
    ("# share:\nsk-a\n", "line 1: `# share` must be an integer from 1 to 1000. Given: ``"),
    ("# share: 1\n# share: 1\nsk-a\n", "line 2: `# share` stands before this key twice"),
    ("# kv-quota: 0\nsk-a\n", f"line 1: `# kv-quota` must be {QUOTA}. Given: `0`"),
    ("# kv-quota: 101%\nsk-a\n", f"line 1: `# kv-quota` must be {QUOTA}. Given: `101%`"),
    ("# rate: 5\nsk-a\n", f"line 1: `# rate` must be {RATE}. Given: `5`"),
    ("# rate: 0/s\nsk-a\n", f"line 1: `# rate` must be {RATE}. Given: `0/s`"),
    ("# tokens: 5/week\nsk-a\n", f"line 1: `# tokens` must be {RATE}. Given: `5/week`"),
    ("# priority: 101\nsk-a\n", "line 1: `# priority` must be an integer from -100 to 100. Given: `101`"),
    ("# salt: mine\nsk-a\n", "line 1: `# salt` must be `own`. Given: `mine`"),
    ("sk-a\n# of the team\n# share: 3\nsk-b\n",
     "line 3: `# share: 3` takes a line `# name: NAME` beside it, by which the tenant is known"),
    ("# share: 1\n\nsk-a\n", "line 1: `# share: 1` stands before no key"),
    ("sk-a\n# share: 1\n", "line 2: `# share: 1` stands before no key"),
    ("# name: a\n# share: 1\nx\n# name: a\n# share: 2\ny\n",
     "the keys of the name a are those of one tenant: what is granted to it must stand before the first of them"),
])
def test_a_line_that_cannot_be_is_named(tmp_path: Path, text: str, sentence: str) -> None:
    with pytest.raises(InvalidArgument, match=f"^{re.escape(f'`api_key_file`: {sentence}')}$"):
        keys_of(tmp_path, text)
