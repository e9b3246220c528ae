"""Pipelines, as they are listed among models."""

from collections.abc import Callable
from pathlib import Path

import pytest

from penstock.launcher import launch as launcher
from penstock.launcher.model_list import read_repository
from penstock.launcher.pipelines import pipelines_of
from penstock.launcher.served_models import ServedModels
from penstock.router.pipeline_settings import StepSettings
from tests.launcher.conftest import Invoke

FIRST = "models:\n  - {name: chat, model_id: /chat}\n"
Serve = Callable[[str], ServedModels]


@pytest.fixture
def refusal(invoke: Invoke, tmp_path: Path) -> Callable[[str], str]:
    """The sentence that refuses a file of models, beside which there is steps.py."""
    def refusal(text: str) -> str:
        (tmp_path / "steps.py").touch()
        (tmp_path / "models.yaml").write_text(text)
        result = invoke("--models", str(tmp_path / "models.yaml"))
        assert result.exit_code == 2
        return result.output

    return refusal


def test_steps_take_what_was_made_before(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[ServedModels] = []
    monkeypatch.setattr(launcher, "launch", lambda models: found.append(models) or 0)
    (tmp_path / "steps.py").touch()
    (tmp_path / "models.yaml").write_text(FIRST + """
  - name: piped
    pipeline:
      - {model: chat, task: embed}
      - {name: near, python: steps.py, function: near, seconds: 2, memory: 100MB}
      - {name: best, model: chat, task: rerank}
      - template: "{{ best }}"
      - {model: chat, name: text, parameters: {max_tokens: 3}}
      - {python: steps.py, inputs: [text, prompt]}
      - {check: [{kind: regex, name: a, must_match: [a]}], inputs: {text: text}}
aliases: {other: piped}
""")
    result = invoke("--models", str(tmp_path / "models.yaml"))
    assert result.exit_code == 0, result.output
    [piped] = found[-1].pipelines
    assert (found[-1].are_several, piped.name, piped.models, piped.answering) == (True, "piped", ["chat"], 4)
    assert [(step.name, dict(step.inputs)) for step in piped.steps] == [
        ("model", {"text": "prompt"}), ("near", {"": "model"}), ("best", {"query": "prompt", "texts": "near"}),
        ("template", {}), ("text", {"text": "template"}), ("python", {"text": "text", "prompt": "prompt"}),
        ("check", {"text": "text"})]
    near: StepSettings = piped.steps[1]
    assert (near.value, near.function, near.seconds, near.memory) == (str(tmp_path / "steps.py"), "near", 2, 10**8)


def test_a_folder_of_a_repository_may_be_a_pipeline(tmp_path: Path) -> None:
    (tmp_path / "zebra").mkdir()
    (tmp_path / "zebra/config.json").write_text("{}")
    (tmp_path / "assistant").mkdir()
    (tmp_path / "assistant/steps.py").touch()
    (tmp_path / "assistant/config.yaml").write_text("pipeline: [{python: steps.py}, {model: zebra}]")
    found = read_repository(tmp_path)
    assert [model.name for model in found.models] == ["zebra", "assistant"]  # the first is loaded here
    assert pipelines_of(found)[0].steps[0].value == str(tmp_path / "assistant/steps.py")


def test_a_server_without_models_of_its_own_may_have_some(
    invoke: Invoke, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    found: list[ServedModels] = []
    monkeypatch.setattr(launcher, "launch", lambda models: found.append(models) or 0)
    (tmp_path / "models.yaml").write_text(
        "models: [{name: far, url: 'http://x'}, {name: piped, pipeline: [{template: a}, {model: far}]}]")
    assert invoke("--models", str(tmp_path / "models.yaml")).exit_code == 0
    assert (found[-1].is_gateway, [each.name for each in found[-1].pipelines]) == (True, ["piped"])


@pytest.mark.parametrize(("steps", "said"), [
    ("1", "`pipeline` must be a list of steps. Given: 1"),
    ("[]", "`pipeline` must have a step whose model generates"),
    ("[{model: chat, task: embed}]", "`pipeline` must have a step whose model generates"),
    ("[{name: a}]", "step 1 must have one of template, tokenize, model, python, check. Given: {'name': 'a'}"),
    ("[{model: chat, template: a}]", "step 1 must have one of"),
    ("[{model: chat, size: 1}]", "step `model`: `size` is no field of a step `model`; those are task, param"),
    ("[{model: chat, name: prompt}]", "step 1: `name`: there is a value prompt already"),
    ("[{model: chat, name: a b}]", "step 1: `name` must have letters, digits and _ alone. Given: 'a b'"),
    ("[{model: chat, task: sing}]", "step `model`: `task` must be one of generate, embed, rerank, classify"),
    ("[{model: chat, parameters: {best_of: 2}}]", "step `model`: `parameters` must be an object of max_tokens"),
    ("[{model: chat, inputs: [near]}]", "step `model`: `inputs`: no step before makes near; there are prompt, mess"),
    ("[{model: chat, inputs: {query: prompt}}]", "step `model`: `inputs` must have text. Given: query"),
    ("[{model: nobody}]", "step `model`: `model`: there is no model nobody; there are chat, piped"),
    ("[{tokenize: piped}, {model: chat}]", "step `tokenize`: `tokenize`: piped is a pipeline, which generates"),
    ("[{python: absent.py}, {model: chat}]", "step `python`: `python`: there is no file"),
    ("[{python: steps.py, seconds: 0}, {model: chat}]", "step `python`: `seconds` must be > 0 and <= 600. Given: 0"),
    ("[{python: steps.py, memory: 1MB}, {model: chat}]", "`memory` must be at least 67108864 bytes. Given: 1MB"),
    ("[{python: steps.py, stream: true}, {model: chat}]", "step `python`: `stream` is for functions behind the answer"),
    ("[{model: piped}]", "pipelines must not ask one another in a circle: piped → piped"),
    ("[{model: chat}], pinned: true", "`pinned`, `keep_alive` and `fallback` are for models that are loaded"),
    ("[{model: chat}], num_shard: 2", "model piped: `num_shard` is no setting of a pipeline, which has steps alone"),
])
def test_a_pipeline_that_is_wrong_is_refused(refusal: Callable[[str], str], steps: str, said: str) -> None:
    assert said in refusal(f"{FIRST}  - {{name: piped, pipeline: {steps}}}\n")


@pytest.mark.parametrize(("text", "said"), [
    ("models: [{name: piped, pipeline: [{model: piped}]}]", "model piped: the first model can't have a `pipeline`"),
    (FIRST + "  - {name: a, pipeline: [{model: b}]}\n  - {name: c, pipeline: [{model: a}]}\naliases: {b: c}",
     "pipelines must not ask one another in a circle: "),
    (FIRST + "  - {name: far, url: 'http://x'}\n  - {name: a, pipeline: [{model: far}, {python: steps.py}]}",
     "model a: step `model`: `model`: far is answered by a server elsewhere, so that it must be the last step"),
    (FIRST + "  - {name: a, pipeline: [{model: chat}]}\naliases: {b: {targets: chat, shadow: a}}",
     "`aliases`: b: a is a pipeline, which can't be a shadow"),
])
def test_models_that_do_not_go_together_are_refused(refusal: Callable[[str], str], text: str, said: str) -> None:
    assert said in refusal(text)
