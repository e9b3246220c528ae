"""Renders `docs/tools.md` from the descriptions of how families of models call tools."""

from penstock.router.chat.tools.call_format import CallFormat, Keywords, Tagged
from penstock.router.chat.tools.families import FORMATS
from tests.paths import ROOT
from tests.router.chat.tools.calls import written

PAGE = ROOT / "docs/tools.md"

HEAD = """\
# Tools

Each model was trained to call tools in a form of its own. Penstock knows the forms below, and finds the one of a model
by the text of its chat template. Where it does not find it, `--tool-call-parser NAME` names it; the names are vLLM's.
[Structured output and tools](structured-output.md#tools) tells how clients ask for tools.

```sh
text-generation-launcher --model-id mistralai/Devstral-Small-2507 --tool-call-parser mistral
```

Whatever the form is, clients get the same: a name, and arguments in JSON.

- Arguments come as they are written. Values between tags and in Python are converted piece by piece, by the types of
  the tool's schema. A string comes while it is written, any other value between tags when it is whole.
- Text that is no call in the form stays text. It is never an error, and nothing is lost.
- Calls can't be malformed: a grammar in the model's own form binds them, with schemas where arguments are JSON, and a
  rule for each parameter between tags and in Python. `--disable-grammar-support` leaves them to the model.
- A closing tag counts only where another parameter or the call's end follows. So strings may have tags in them.
- Where the model itself writes an id of the call (Kimi's, Mistral's), clients get that id.
- Models whose names stand without quotes can call functions whose names have letters, digits and `./$@_-`.
- Names of parameters may have all characters but quotes and angle brackets where they stand in tags, and only the
  characters above in Python. A parameter of another name is left out; a tool that requires it, or is strict, is
  refused.
- Custom tools (of [responses](responses.md)) have one parameter, `input`, whose text comes raw. A grammar binds it
  where the form has a mark behind the arguments, or tags around them.

gpt-oss calls in channels of its own, which `--reasoning-parser` names ([thinking](thinking.md)). Where a template
says nothing of tools, a message describes them, and asks the model to call in the form of Llama 3. Gemma 4, Kimi K3,
MiniMax M3 and MiniCPM5 call in forms that are not known yet: their calls stay text.

`python -m tests.pages` writes this page from the code that reads the calls, and a test fails when it is not up to date.

## Forms

"""


def render() -> str:
    """Returns the page."""
    rows = ["| models | `--tool-call-parser` | arguments |", "|---|---|---|"]
    rows += [f"| {form.models} | {', '.join(f'`{name}`' for name in form.names)} | {_arguments(form)} |"
             for form in FORMATS]
    return HEAD + "\n".join(rows) + "\n\n## How a call looks\n\n" + "\n".join(map(_example, FORMATS))


def _arguments(form: CallFormat) -> str:
    match form.arguments:
        case Tagged():
            return "parameters between tags"
        case Keywords():
            return "Python"
    return "JSON"


def _example(form: CallFormat) -> str:
    call = written(form, ("weather", {"city": "Rome", "days": 2}))
    fence = "````" if "```" in call else "```"
    return f"{form.models}:\n\n{fence}text\n{form.opened}{call.strip()}\n{fence}\n"
