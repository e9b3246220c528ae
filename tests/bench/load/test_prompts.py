"""Where prompts come from."""

import json

import click
import pytest

from penstock.bench.load.apis import Prompt
from penstock.bench.load.prompts import FilePrompts, RandomPrompts, load_tokenizer, read_prompts
from tests.paths import DEMO_MODEL

CONVERSATIONS = [
    {"id": "a", "conversations": [{"from": "human", "value": "What is a lock?"}, {"from": "gpt", "value": "A gate."},
                                  {"from": "human", "value": "And a weir?"}]},
    {"id": "b", "conversations": [{"from": "gpt", "value": "I begin."}, {"from": "human", "value": "No."}]},
    {"id": "c", "conversations": [{"from": "human", "value": "Unanswered"}]},
    {"messages": [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hello, you!"}]},
]


def written(folder, name, text):
    file = folder / name
    file.write_text(text)
    return file


def test_lines_of_text(tmp_path):
    file = written(tmp_path, "prompts.txt", "One\n\nTwo words\n")
    assert list(read_prompts(file)) == [("One", None), ("Two words", None)]


def test_lines_of_json(tmp_path):
    lines = ['"One\u2028and more"', "", '{"prompt": "Two", "output_tokens": 5}', '{"text": "Three"}',
             '{"inputs": "Four"}']
    file = written(tmp_path, "prompts.jsonl", "\n".join(lines))
    assert list(read_prompts(file)) == [("One\u2028and more", None), ("Two", 5), ("Three", None), ("Four", None)]
    assert {prompt.output_tokens for prompt in FilePrompts(file).take(4, None)} == {5, 128}
    assert {prompt.output_tokens for prompt in FilePrompts(file).take(4, 9)} == {9}


def test_conversations(tmp_path):
    file = written(tmp_path, "sharegpt.json", json.dumps(CONVERSATIONS))
    assert list(read_prompts(file)) == [("What is a lock?", None), ("Hello", None)]
    tokenizer = load_tokenizer(str(DEMO_MODEL))
    lengths = [len(tokenizer.encode(text).ids) for text in ("A gate.", "Hello, you!")]
    assert [length for _, length in read_prompts(file, tokenizer)] == lengths
    assert all(length > 0 for length in lengths)


@pytest.mark.parametrize(("name", "text"), [
    ("a.json", '{"no": "list"}'), ("a.json", "[1, 2]"), ("a.json", "{"), ("a.jsonl", '{"question": "?"}'),
    ("a.jsonl", "not json"), ("a.txt", "\n \n")])
def test_a_file_without_prompts_is_refused_by_name(tmp_path, name, text):
    with pytest.raises(click.ClickException, match=f"{name} has"):
        FilePrompts(written(tmp_path, name, text))


def test_a_file_is_taken_in_an_order_of_the_seed_and_from_the_start_again(tmp_path):
    file = written(tmp_path, "prompts.txt", "\n".join(map(str, range(20))))
    orders = {seed: [prompt.text for prompt in FilePrompts(file, seed).take(40, 1)] for seed in (0, 0, 1)}
    assert orders[0][:20] == orders[0][20:]
    assert sorted(orders[0][:20], key=int) == [str(number) for number in range(20)]
    assert orders[0] != orders[1]
    assert [prompt.text for prompt in FilePrompts(file, 0).take(40, 1)] == orders[0]


def test_random_prompts_have_exactly_so_many_tokens():
    tokenizer = load_tokenizer(str(DEMO_MODEL))
    prompts = RandomPrompts(37, seed=3, tokenizer=tokenizer).take(5, 8)
    assert {len(tokenizer.encode(prompt.text).ids) for prompt in prompts} == {37}
    assert len(set(prompts)) == 5
    assert prompts == RandomPrompts(37, seed=3, tokenizer=tokenizer).take(5, 8)


def test_random_prompts_without_a_tokenizer_have_so_many_words():
    [prompt] = RandomPrompts(50).take(1, 8)
    assert len(prompt.text.split()) == 50
    assert isinstance(prompt, Prompt)
    assert RandomPrompts(50, seed=1).take(1, 8) != [prompt]


def test_a_missing_tokenizer_is_said(tmp_path):
    with pytest.raises(click.ClickException, match="there is no tokenizer in"):
        load_tokenizer(str(tmp_path))
