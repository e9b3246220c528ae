"""The tool and the schema that agents are given by the programs beside this one; the model answers by the script of
`tests/clients/test_agents.py`."""

import pydantic


class City(pydantic.BaseModel):
    """A city."""

    city: str
    population: int


def weather(city: str) -> str:
    """Tells the weather of a city."""
    return f"22 degrees in {city}"
