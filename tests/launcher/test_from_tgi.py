"""The page `docs/from-tgi.md` says of every flag of TGI's what the launcher does with it."""

import re
from pathlib import Path

import huggingface_hub
import pytest

from penstock.launcher.option_types import Noted, Unsupported
from penstock.launcher.options import OPTIONS
from penstock.launcher.without_effect import VARIABLES
from tests.compatibility.tgi import FLAGS
from tests.launcher.test_options import OTHERWISE
from tests.paths import ROOT

PAGE = (ROOT / "docs/from-tgi.md").read_text()
FLAG = r"(?<![\w-])--[a-z][a-z-]*[a-z]"
OF_OTHERS = {"--build-arg", "--index-url", "--ipc", "--shm-size", "--target"}
"""Docker's and pip's, which the page names."""
BY_FLAG = {option.opts[0]: option for option in OPTIONS}
NOTED = {flag for flag, option in BY_FLAG.items() if isinstance(option, Noted)}
REFUSED = {flag for flag, option in BY_FLAG.items() if isinstance(option, Unsupported)}
OBEYED = set(FLAGS) - NOTED - REFUSED


def part(title: str) -> str:
    """Returns what is below a heading, up to the next one."""
    found = re.search(rf"^#+ {title}\n(.*?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, f"the page has no part {title!r}"
    return found[1]


def first_column(title: str) -> list[str]:
    """Returns the flags in the first column of a part's table, in their order."""
    return [flag for row in re.findall(r"^\|([^|]*)\|", part(title), re.MULTILINE) for flag in re.findall(FLAG, row)]


def sources() -> str:
    folders = [*(ROOT / name for name in ("launcher", "router", "shard", "kernels", "system", "telemetry")),
               Path(huggingface_hub.__file__).parent]
    return "".join(path.read_text() for folder in folders for path in folder.rglob("*.py"))


def test_what_is_accepted_without_a_meaning():
    assert sorted(first_column("Accepted without a meaning")) == sorted(NOTED)


def test_what_is_refused():
    assert sorted(first_column("Refused")) == sorted(REFUSED)


def test_all_others_are_obeyed_and_what_has_another_default_is_said():
    assert set(BY_FLAG) >= OBEYED, "the page says that flags which it does not name are obeyed"
    differing = first_column("Obeyed")
    assert len(differing) == len(set(differing))
    assert set(OTHERWISE) - NOTED <= set(differing) <= OBEYED


def test_the_counts():
    counts = re.search(r"Of TGI's (\d+) flags, .*, (\d+) are obeyed, (\d+) accepted without a meaning and (\d+)\s+"
                       "refused", PAGE)
    assert counts
    assert [int(count) for count in counts.groups()] == [len(FLAGS), len(OBEYED), len(NOTED), len(REFUSED)]


def test_every_flag_on_the_page_is_one():
    assert set(re.findall(FLAG, PAGE)) - set(BY_FLAG) - {"--help"} == OF_OTHERS


def test_every_series_on_the_page_is_one():
    written = (ROOT / "router/metrics/metrics.py").read_text()
    names = re.findall(r"`((?:penstock|tgi)_\w*[a-z])`", PAGE)
    assert len(names) >= 6
    assert [name for name in names if f'"{name.removesuffix("_total")}"' not in written] == []


def test_the_sentence_of_a_refusal(invoke):
    sentence = re.search(r"`(Invalid argument: (--[a-z]+): [^`]*)`", part("Refused").replace("\n", " "))
    assert sentence
    result = invoke("--model-id", "m", sentence[2], "gptq")
    assert (result.exit_code, result.output) == (2, f"{sentence[1]}\n")
    assert f"exit code {result.exit_code} " in part("Refused")


def test_values_that_ask_for_nothing_are_accepted(parse):
    values = dict(re.findall(r"`([A-Z_]+)=(\w*)`", part("Refused")))
    assert {BY_FLAG[f"--{name.lower().replace('_', '-')}"] for name in values} <= {BY_FLAG[flag] for flag in REFUSED}
    assert len(values) >= 4
    parse(**values)


@pytest.mark.parametrize("beginning", ["Read", "Not read"])
def test_variables_that_are_no_flags(beginning):
    found = re.search(rf"^- {beginning}: (.*?)\.\s", part("Variables that are no flags"), re.MULTILINE | re.DOTALL)
    assert found
    names = re.findall(r"`([A-Z_]+)`", re.sub(r"\([^)]*\)", "", found[1]))
    text = sources()
    assert len(names) >= 7
    if beginning == "Read":
        assert [name for name in names if f'"{name}"' not in text] == []
    else:
        assert set(names) | {"HF_API_TOKEN", "TGI_TOOL_FINISH_REASON"} == set(VARIABLES)  # the last was ours


def test_variables_that_are_not_read_are_told(parse, caplog):
    parse(PREFIX_CACHING="0", ATTENTION="flashinfer", TGI_TOOL_FINISH_REASON="true")
    assert caplog.messages == [
        "the environment variable ATTENTION has no effect: the kernels follow from the device",
        "the environment variable PREFIX_CACHING has no effect: prefixes are always shared",
        "the environment variable TGI_TOOL_FINISH_REASON has no effect: give TGI_OPENAI_ROUTES"]


def test_the_page_is_short():
    assert len(PAGE.splitlines()) < 150
