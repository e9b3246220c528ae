from tests.api.conftest import grammars, start  # noqa: F401 (fixtures)
from tests.api.test_access import certificate  # noqa: F401 (a fixture)
