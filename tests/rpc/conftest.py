from tests.api.conftest import grammars, start  # noqa: F401 (fixtures)
