"""A résumé becomes JSON: a model reads the text, and its answer has the form that a program wants.

    python examples/lectures/resume_to_json.py --url http://127.0.0.1:3000

While the answer is sampled, tokens that would break the schema are masked, so every model gives an object that pydantic
reads. What stands in it is the model's work: the demo model has learnt Python alone, and invents. `make serve` starts
one that reads. The schema bounds all lengths, for an answer that `MOST_TOKENS` cut off would be no JSON.
"""

import argparse
from typing import Annotated

from openai import OpenAI
from pydantic import BaseModel, Field

RESUME = """\
Maria Rossi, hydraulic engineer. maria@example.org, Turin.
2016 to 2019: Acme Turbines, draughtswoman. Drew runners of Francis turbines.
Since 2019: Northern Dams, engineer. Computes penstocks, and what waves of pressure do to them.
Speaks Italian and English, writes Python and Fortran."""
MOST_TOKENS = 600
Short = Annotated[str, Field(max_length=24)]
Year = Annotated[int, Field(ge=1950, le=2050)]


class Job(BaseModel):
    """A job and its years; a job that is held today has no last one."""

    company: Short
    title: Short
    first_year: Year
    last_year: Year | None


class Resume(BaseModel):
    """What a program wants to know of a person."""

    name: Short
    email: Short
    jobs: Annotated[list[Job], Field(min_length=1, max_length=3)]
    skills: Annotated[list[Short], Field(max_length=4)]


def read(url: str, text: str) -> Resume:
    """Returns what the model of a server reads in a résumé."""
    client = OpenAI(base_url=f"{url}/v1", api_key="-")
    answer = client.chat.completions.parse(
        model="-", response_format=Resume, temperature=0, max_tokens=MOST_TOKENS, messages=[
            {"role": "system", "content": "Write what the résumé says as JSON."}, {"role": "user", "content": text}])
    found = answer.choices[0].message.parsed
    assert found, "the schema holds for every whole answer"
    return found


def main() -> None:
    options = argparse.ArgumentParser()
    options.add_argument("--url", default="http://127.0.0.1:3000")
    print(read(options.parse_args().url, RESUME).model_dump_json(indent=2))


if __name__ == "__main__":
    main()
