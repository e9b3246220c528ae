"""Has answers take a form: one of some words, a regular expression, a JSON schema, a grammar.

    python examples/offline/structured_outputs.py [MODEL]
"""

import json
import sys

from penstock import LLM, SamplingParams, StructuredOutputsParams

BOOK = {"type": "object", "additionalProperties": False, "required": ["title", "year"], "properties": {
    "title": {"type": "string", "maxLength": 12}, "year": {"type": "integer", "minimum": 1900, "maximum": 2030}}}
SUM = 'start: NUMBER (" + " NUMBER){1,2}\nNUMBER: /[1-9][0-9]?/\n'


def ask(llm: LLM, prompt: str, form: StructuredOutputsParams) -> str:
    [output] = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=60, structured_outputs=form),
                            use_tqdm=False)
    return output.outputs[0].text


def main(llm: LLM) -> None:
    print(ask(llm, "Is Python compiled? ", StructuredOutputsParams(choice=["yes", "no", "in a way"])))
    print(ask(llm, "My address is ", StructuredOutputsParams(regex=r"[a-z]{3,8}@example\.org")))
    print(json.loads(ask(llm, "A book as JSON: ", StructuredOutputsParams(json=BOOK))))
    print(ask(llm, "A sum: ", StructuredOutputsParams(grammar=SUM)))


if __name__ == "__main__":
    with LLM(sys.argv[1] if len(sys.argv) > 1 else "deploy/demo_model/checkpoint") as llm:
        main(llm)
