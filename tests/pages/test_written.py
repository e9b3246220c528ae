"""The pages that are made from the code are up to date."""

from types import ModuleType

import pytest

from tests.pages import api, configuration


@pytest.mark.parametrize("page", [configuration, api], ids=lambda page: page.__name__.rpartition(".")[2])
def test_a_page_is_as_the_code_is(page: ModuleType) -> None:
    assert page.PAGE.read_text() == page.render(), "python -m tests.pages writes it anew"
