"""What --groups may say."""

import socket
from pathlib import Path

import pytest

from penstock.router.fleet.groups_spec import GroupsSpec


async def test_a_list_of_addresses() -> None:
    assert await GroupsSpec.parse("a:1, [::1]:2").addresses() == ("a:1", "[::1]:2")


async def test_a_name_stands_for_its_addresses() -> None:
    found = await GroupsSpec.parse("dns:localhost:4000").addresses()
    assert found
    assert set(found) <= {"127.0.0.1:4000", "[::1]:4000"}
    with pytest.raises(socket.gaierror):
        await GroupsSpec.parse("dns:no-such-name.invalid:4000").addresses()


async def test_a_file_is_read_when_it_is_asked(tmp_path: Path) -> None:
    file = tmp_path / "groups.yaml"
    spec = GroupsSpec.parse(str(file))
    with pytest.raises(FileNotFoundError):
        await spec.addresses()
    file.write_text("groups:\n  - a:1\n  - '[::1]:2'\n")
    assert await spec.addresses() == ("a:1", "[::1]:2")


@pytest.mark.parametrize(("content", "complaint"), [
    ("- a:1", "it must have one key, `groups`"), ("groups: []", "one key"), ("groups: [1]", "one key"),
    ("groups: [a:1]\nmore: 1", "one key"), ("groups: [a]", "'a' is no HOST:PORT"), ("groups: [", "while parsing"),
    ("groups: [a:1, a:1]", "a:1 is named more than once")])
async def test_a_file_that_names_no_groups(tmp_path: Path, content: str, complaint: str) -> None:
    file = tmp_path / "groups.yaml"
    file.write_text(content)
    with pytest.raises(ValueError, match=complaint) as error:
        await GroupsSpec.parse(str(file)).addresses()
    assert str(error.value).startswith(f"{file}: ")


@pytest.mark.parametrize(("text", "complaint"), [
    ("nothing", "'nothing' is none of HOST:PORT,HOST:PORT, dns:NAME:PORT, or the path of a YAML file"),
    ("a:1,b", "'b' is no HOST:PORT"), ("a:1,a:1", "a:1 is named more than once"),
    ("dns:name", "'name' is no HOST:PORT"),
    ("a:1,", "'' is no HOST:PORT"), ("a:0", "'a:0' is no HOST:PORT")])
def test_what_names_no_groups(text: str, complaint: str) -> None:
    with pytest.raises(ValueError, match=complaint):
        GroupsSpec.parse(text)
