"""Bodies of TGI's routes: fields, types and defaults as TGI takes them. generation/validation.py checks values."""

from pydantic import ConfigDict

from penstock.router.generation.parameters import Parameters
from penstock.router.shapes import Body


class GenerateBody(Body):
    """The body of `POST /generate`, `/generate_stream` and `/tokenize`. Without `parameters` an answer is sampled.

    Other fields are kept, for some are refused by name: `other_fields` has the rule.
    """

    model_config = ConfigDict(
        extra="allow",
        json_schema_extra={"examples": [{"inputs": "def open(path):", "parameters": {"max_new_tokens": 20}}]})

    inputs: str
    parameters: Parameters = Parameters(do_sample=True)


class CompatBody(GenerateBody):
    """The body of `POST /`."""

    stream: bool = False
