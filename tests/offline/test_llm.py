"""`LLM` by vLLM's names: the answers, their order and parts, and how wrong requests are refused."""

import asyncio
import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from penstock import LLM, BeamSearchParams, CompletionOutput, LoRARequest, SamplingParams, StructuredOutputsParams
from tests.adapter_files import make_adapter
from tests.paths import DEMO_MODEL

GREEDY = SamplingParams(temperature=0, max_tokens=8)
PROMPTS = [f"def function_{number}(" for number in range(20)]


def answer(llm: LLM, prompt: Any = "def add(a, b):", **params: Any) -> CompletionOutput:
    [output] = llm.generate(prompt, SamplingParams(**{"temperature": 0, "max_tokens": 8, **params}), use_tqdm=False)
    return output.outputs[0]


def test_answers_come_in_the_order_of_prompts(llm: LLM) -> None:
    params = [SamplingParams(temperature=0, max_tokens=1 + number % 7, ignore_eos=True) for number in range(20)]
    outputs = llm.generate(PROMPTS, params, use_tqdm=False)
    assert [output.prompt for output in outputs] == PROMPTS
    assert [len(output.outputs[0].token_ids) for output in outputs] == [each.max_tokens for each in params]
    assert [int(output.request_id) for output in outputs] == [
        int(outputs[0].request_id) + number for number in range(20)]
    alone = [llm.generate(*each, use_tqdm=False)[0] for each in zip(PROMPTS, params, strict=True)]
    assert [output.outputs for output in outputs] == [output.outputs for output in alone]


def test_all_forms_of_a_prompt_have_the_same_answer(llm: LLM) -> None:
    text = "The value of"
    ids = llm.get_tokenizer().encode(text)
    forms: list[Any] = [text, ids, {"prompt": text}, {"prompt_token_ids": ids},
                        {"prompt": text, "prompt_token_ids": ids}]
    outputs = llm.generate(forms, GREEDY, use_tqdm=False) + llm.generate(ids, GREEDY, use_tqdm=False)
    assert len({output.outputs[0].text for output in outputs}) == 1
    assert {tuple(output.prompt_token_ids) for output in outputs} == {tuple(ids)}
    assert [output.prompt for output in outputs] == [text, None, text, None, text, None]


def test_seeds_follow_from_the_model_or_are_given(llm: LLM) -> None:
    params = SamplingParams(max_tokens=12, seed=5, ignore_eos=True)
    same = llm.generate([PROMPTS[0]] * 3, params, use_tqdm=False)
    assert len({output.outputs[0].text for output in same}) == 1
    params.seed = None
    drawn = llm.generate([PROMPTS[0]] * 3, params, use_tqdm=False)
    assert len({output.outputs[0].text for output in drawn}) == 3


def test_several_answers_to_a_prompt(llm: LLM) -> None:
    params = SamplingParams(n=3, max_tokens=6, seed=1, ignore_eos=True)
    [output] = llm.generate(PROMPTS[0], params, use_tqdm=False)
    assert [each.index for each in output.outputs] == [0, 1, 2]
    assert len({each.text for each in output.outputs}) == 3
    params.n, params.best_of = 2, 3
    [best] = llm.generate(PROMPTS[0], params, use_tqdm=False)
    by_logprob = sorted(output.outputs, key=lambda each: each.cumulative_logprob or 0.0, reverse=True)
    assert [each.text for each in best.outputs] == [each.text for each in by_logprob[:2]]


def test_beam_search(llm: LLM) -> None:
    prompt = "def add(a, b):"
    params = BeamSearchParams(beam_width=3, max_tokens=6, length_penalty=0.7)
    [output] = llm.beam_search(prompt, params)
    assert len(output.sequences) == 3
    scores = [each.score for each in output.sequences]
    assert scores == sorted(scores, reverse=True)
    ids = llm.get_tokenizer().encode(prompt)
    for each in output.sequences:
        assert each.text.startswith(prompt)
        assert each.tokens[:len(ids)] == ids
        assert each.score == pytest.approx(each.cum_logprob / (len(each.tokens) - len(ids)) ** 0.7)
    [greedy] = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=6), use_tqdm=False)
    [alone] = llm.beam_search({"prompt": prompt}, BeamSearchParams(beam_width=1, max_tokens=6))
    assert alone.sequences[0].tokens[len(ids):] == greedy.outputs[0].token_ids
    assert output.sequences[0].cum_logprob >= alone.sequences[0].cum_logprob
    [short] = llm.beam_search(prompt, BeamSearchParams(beam_width=1, max_tokens=6, length_penalty=0.5))
    assert short.sequences[0].score == pytest.approx(alone.sequences[0].cum_logprob / 6 ** 0.5)
    for wrong, sentence in (({"beam_width": 0}, "`beam_width` must be a number from 1 on. Given: 0"),
                            ({"num_return_sequences": 0}, "`num_return_sequences` must be a number from 1 on"),
                            ({"temperature": 1.0}, "`temperature` of a beam search must be 0"),
                            ({"num_return_sequences": 4}, "`num_return_sequences` must be >= 1 and <= "),
                            ({"length_penalty": 99.0}, "`length_penalty` must be >= ")):
        with pytest.raises(ValueError, match=sentence):
            llm.beam_search(prompt, replace(params, **wrong))


def test_reasons_to_stop(llm: LLM) -> None:
    whole = answer(llm, max_tokens=20, ignore_eos=True)
    assert (whole.finish_reason, whole.stop_reason) == ("length", None)
    middle = whole.text[5:8]
    cut = answer(llm, max_tokens=20, stop=["never", middle])
    assert (cut.finish_reason, cut.stop_reason) == ("stop", middle)
    assert cut.text == whole.text[:whole.text.index(middle)]
    last = answer(llm, max_tokens=20, stop=[whole.text[6:10], middle])
    assert (last.stop_reason, last.text) == (middle, cut.text), "the one that ends first counts"
    kept = answer(llm, max_tokens=20, stop=middle, include_stop_str_in_output=True)
    assert kept.text == cut.text + middle
    by_id = answer(llm, max_tokens=20, stop_token_ids=(whole.token_ids[2],), stop=("never",))
    assert (by_id.finish_reason, by_id.stop_reason, by_id.token_ids) == (
        "stop", whole.token_ids[2], whole.token_ids[:3])
    kept = answer(llm, max_tokens=20, stop_token_ids=[whole.token_ids[2]], include_stop_str_in_output=True)
    assert kept.text.removeprefix(by_id.text)
    assert whole.text.startswith(kept.text)


def test_logprobs_of_answers_and_prompts(llm: LLM) -> None:
    prompt = "return the value"
    [output] = llm.generate(prompt, SamplingParams(temperature=0, max_tokens=4, logprobs=3, prompt_logprobs=2),
                            use_tqdm=False)
    completion = output.outputs[0]
    assert completion.logprobs is not None
    for token_id, position in zip(completion.token_ids, completion.logprobs, strict=True):
        assert len(position) == 3
        assert position[token_id].rank == 1
        assert all(first.logprob >= second.logprob for first, second in pairwise(position.values()))
    assert completion.cumulative_logprob == pytest.approx(sum(
        position[token_id].logprob for token_id, position in zip(
            completion.token_ids, completion.logprobs, strict=True)))
    assert output.prompt_logprobs is not None
    assert output.prompt_logprobs[0] is None
    for own, each in zip(output.prompt_token_ids[1:], output.prompt_logprobs[1:], strict=True):
        assert each is not None
        rank = each[own].rank
        assert rank is not None
        assert len(each) == 2 + (rank > 2), "two likeliest tokens, and its own"
    [score] = llm.score(prompt)
    assert score.prompt_token_ids == output.prompt_token_ids
    assert score.logprobs == [None if position is None else position[token_id].logprob for token_id, position in zip(
        output.prompt_token_ids, output.prompt_logprobs, strict=True)]
    assert score.cumulative_logprob == sum(filter(None, score.logprobs))


def test_the_form_of_an_answer(llm: LLM) -> None:
    schema = {"type": "object", "properties": {"size": {"type": "integer", "maximum": 9}}, "required": ["size"]}
    text = answer(llm, max_tokens=60, structured_outputs=StructuredOutputsParams(json=schema)).text
    assert json.loads(text)["size"] <= 9
    text = answer(llm, structured_outputs=StructuredOutputsParams(choice=["yes", "no"])).text
    assert text in ("yes", "no")
    with pytest.raises(ValueError, match=r"must have one of json, regex, .*Given: json, regex"):
        StructuredOutputsParams(json=schema, regex="a")


def test_special_tokens_and_no_text(llm: LLM) -> None:
    assert answer(llm, detokenize=False).text == ""
    tokenizer = llm.get_tokenizer()
    bias = {tokenizer.all_special_ids[0]: 100.0}
    special = tokenizer.decode([tokenizer.all_special_ids[0]])
    assert answer(llm, logit_bias=bias, ignore_eos=True, max_tokens=2).text == ""
    assert answer(llm, logit_bias=bias, ignore_eos=True, max_tokens=2, skip_special_tokens=False).text == special * 2


def test_conversations(llm: LLM) -> None:
    messages = [{"role": "user", "content": "What does it do?"}]
    [output] = llm.chat(messages, GREEDY, use_tqdm=False)
    tokenizer = llm.get_tokenizer()
    prompt = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert output.prompt == prompt
    assert output.prompt_token_ids == tokenizer.apply_chat_template(messages, add_generation_prompt=True)
    assert output.prompt_token_ids == tokenizer.encode(prompt, add_special_tokens=False)
    several = llm.chat([messages, messages], GREEDY, False, None, [1, 2])
    assert [each.outputs for each in several] == [output.outputs] * 2
    [own] = llm.chat(messages, GREEDY, use_tqdm=False, chat_template="{{ kind }}: {{ messages[0].content }}",
                     chat_template_kwargs={"kind": "Q"})
    assert own.prompt == "Q: What does it do?"
    begun = [*messages, {"role": "assistant", "content": "It adds"}]
    [output] = llm.chat(begun, GREEDY, use_tqdm=False, add_generation_prompt=False, continue_final_message=True)
    assert output.prompt is not None
    assert output.prompt.endswith("It adds")


@pytest.mark.slow
def test_another_file_has_the_chat_template(tmp_path: Path) -> None:
    path = tmp_path / "tokenizer_config.json"
    path.write_text(json.dumps({"chat_template": "Q: {{ messages[0].content }}"}))
    with LLM(str(DEMO_MODEL), kv_memory="16MiB", threads=1, tokenizer_config_path=str(path)) as llm:
        [output] = llm.chat([{"role": "user", "content": "Hi"}], GREEDY, use_tqdm=False)
    assert output.prompt == "Q: Hi"


@pytest.mark.slow
def test_adapters_are_loaded_when_they_are_named(llm: LLM, tmp_path: Path) -> None:
    adapter = LoRARequest("other", 1, str(make_adapter(tmp_path / "other", DEMO_MODEL, strength=3.0)))
    outputs = llm.generate(PROMPTS[:4], GREEDY, use_tqdm=False, lora_request=[adapter, None, adapter, None])
    plain = llm.generate(PROMPTS[:4], GREEDY, use_tqdm=False)
    differ = [own.outputs[0].text != other.outputs[0].text for own, other in zip(outputs, plain, strict=True)]
    assert differ == [True, False, True, False]
    assert outputs[0].lora_request == adapter
    with pytest.raises(ValueError, match="there is an adapter 'other' already"):
        llm.generate("a", GREEDY, use_tqdm=False, lora_request=LoRARequest("other", 1, "/elsewhere"))
    with pytest.raises(ValueError, match="`lora_request`: there is no directory /nowhere"):
        llm.generate("a", GREEDY, use_tqdm=False, lora_request=LoRARequest("third", 2, "/nowhere"))


@pytest.mark.parametrize(("params", "sentence"), [
    ({"temperature": -1.0}, "`temperature` must be >= 0.0. Given: -1.0"),
    ({"temperature": "hot"}, "`temperature`: Input should be a valid number"),
    ({"top_p": 2.0}, "`top_p` must be >= 0.0 and <= 1.0. Given: 2.0"),
    ({"max_tokens": 0}, "`max_tokens` must be strictly positive"),
    ({"logprobs": 21}, "`logprobs` must be >= 0 and <= 20. Given: 21"),
    ({"logprobs": -1}, "`logprobs` must be a number from 0 on. Given: -1"),
    ({"min_tokens": 9}, "`min_tokens` must be <= `max_tokens`. Given: 9 and 8"),
    ({"n": 0}, "`n` must be a number from 1 on. Given: 0"),
    ({"n": 2, "best_of": 1}, "`best_of` must be >= `n`. Given: 1 and 2"),
    ({"stop": ["a"], "detokenize": False}, "`stop` needs `detokenize`"),
    ({"structured_outputs": StructuredOutputsParams(regex="(")}, "grammar is not valid"),
    ({"stop_token_ids": [10**6]}, "`stop_token_ids` must have token ids < "),
])
def test_wrong_parameters_are_refused_by_name(llm: LLM, params: dict[str, Any], sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        answer(llm, **params)


@pytest.mark.parametrize(("arguments", "sentence"), [
    ({"sampling_params": {"temperature": 0}}, "sampling_params must be SamplingParams. Given: dict"),
    ({"sampling_params": SamplingParams(structured_outputs={"json": {}})},  # type: ignore[arg-type]
     "`structured_outputs` must be a StructuredOutputsParams. Given: dict"),
    ({"lora_request": 3}, "`lora_request` must be a LoRARequest. Given: int"),
])
def test_wrong_types_are_refused_by_name(llm: LLM, arguments: dict[str, Any], sentence: str) -> None:
    with pytest.raises(TypeError, match=sentence):
        llm.generate("a", use_tqdm=False, **arguments)


def test_shards_that_are_away_too_long_are_told_of(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    [member] = llm._model.service.engine._members  # type: ignore[attr-defined]
    monkeypatch.setattr(member.engine, "is_healthy", False)
    with pytest.raises(RuntimeError, match="the shards are away for longer than `max_shard_downtime`"):
        answer(llm)


def test_a_fork_that_asks_is_told_why_it_cannot(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.getpid", lambda: 1)
    with pytest.raises(RuntimeError, match=r"the LLM belongs to process \d+, of which this one is a fork"):
        llm.generate("a", GREEDY, use_tqdm=False)


def test_wrong_prompts_are_refused(llm: LLM) -> None:
    wrong: list[Any] = [5, [None], {"prompt": 3}, {"multi_modal_data": {}, "prompt": "a"}, [[-1]]]
    for prompt in wrong:
        with pytest.raises((TypeError, ValueError), match="prompt"):
            llm.generate(prompt, GREEDY, use_tqdm=False)
    with pytest.raises(ValueError, match=r"`sampling_params` must be one, or one for each of 2 prompts. Given: 1"):
        llm.generate(["a", "b"], [GREEDY], use_tqdm=False)
    with pytest.raises(TypeError, match="unexpected keyword argument 'logits_processors'"):
        SamplingParams(logits_processors=[])  # type: ignore[call-arg]
    for fields, told in (({"bad_words": [""]}, "`bad_words` cannot have an empty word"),
                         ({"bad_words": "no", "allowed_token_ids": []}, "`allowed_token_ids`: List should have at"),
                         ({"truncate_prompt_tokens": -2}, "`truncate_prompt_tokens`: Input should be greater")):
        with pytest.raises(ValueError, match=told):
            answer(llm, **fields)
    with pytest.raises(ValueError, match="`cache_salt`: String should have at least 1 character"):
        answer(llm, {"prompt": "a", "cache_salt": ""})
    with pytest.raises(ValueError, match=r"`prompt` must have token ids < .*Given: 1000000"):
        llm.generate([[10**6]], GREEDY, use_tqdm=False)
    with pytest.raises(ValueError, match=r"`prompt` and `max_tokens` are too long: .* maximum context length is"):
        llm.generate([[20] * 5000], GREEDY, use_tqdm=False)
    assert llm.generate([], GREEDY, use_tqdm=False) == []


async def test_it_works_beside_an_event_loop_and_in_threads(llm: LLM) -> None:
    expected = answer(llm)
    assert asyncio.get_running_loop().is_running()
    assert answer(llm) == expected
    with ThreadPoolExecutor(4) as threads:
        assert [*threads.map(lambda _: answer(llm), range(8))] == [expected] * 8


def test_a_salt_keeps_what_is_computed_apart(llm: LLM) -> None:
    salted = {"cache_salt": "a"}
    prompts: list[Any] = [{"prompt": "salt " * 40, **salt} for salt in ({}, {}, salted, salted)]
    outputs = [llm.generate(prompt, GREEDY, use_tqdm=False)[0] for prompt in prompts]
    assert [bool(output.num_cached_tokens) for output in outputs] == [False, True, False, True]
    assert len({output.outputs[0].text for output in outputs}) == 1


def test_a_prompt_is_cut_to_what_fits(llm: LLM) -> None:
    params = replace(GREEDY, truncate_prompt_tokens=-1)
    [output] = llm.generate([[20] * 5000], params, use_tqdm=False)
    assert len(output.prompt_token_ids) + 8 <= 5000
    assert len(output.outputs[0].token_ids) == 8
