"""What the files say that sentence-transformers saves, and old ones, and sentences for those that make no sense."""

import json
from pathlib import Path
from typing import Any

import pytest

from penstock.checkpoints.sentence_modules import (
    DenseModule,
    LogitScoreModule,
    NormalizeModule,
    PoolingModule,
    SpladeModule,
)
from penstock.checkpoints.sentence_transformers import (
    SentenceTransformer,
    read_score_activation,
    read_sentence_transformer,
)
from penstock.system.fields import FileError

DENSE = {"in_features": 8, "out_features": 4, "activation_function": "torch.nn.modules.activation.Tanh"}


def write(folder: Path, files: dict[str, Any]) -> Path:
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return folder


def modules(*kinds: str) -> list[dict[str, Any]]:
    """modules.json, as older versions wrote it."""
    return [{"idx": index, "name": str(index), "path": f"{index}_{kind}" * (index > 0),
             "type": f"sentence_transformers.models.{kind}"} for index, kind in enumerate(kinds)]


def test_absent_files_say_the_usual(tmp_path: Path) -> None:
    assert read_sentence_transformer(tmp_path) == SentenceTransformer()
    assert read_score_activation(tmp_path) is None


def test_all_that_the_files_say_is_read(tmp_path: Path) -> None:
    write(tmp_path, {
        "modules.json": modules("Transformer", "Pooling", "Dropout", "Dense", "Normalize"),
        "1_Pooling/config.json": {"word_embedding_dimension": 8, "pooling_mode_mean_tokens": True,
                                  "pooling_mode_cls_token": True, "include_prompt": False},
        "3_Dense/config.json": DENSE, "3_Dense/model.safetensors": "",
        "sentence_bert_config.json": {"max_seq_length": 256, "do_lower_case": True},
        "config_sentence_transformers.json": {
            "prompts": {"query": "q: ", "document": None}, "default_prompt_name": "query",
            "similarity_fn_name": "dot", "truncate_dim": 16}})
    assert read_sentence_transformer(tmp_path) == SentenceTransformer(
        has_modules=True, pooling=PoolingModule(("cls", "mean"), includes_prompt=False),
        layers=(DenseModule(tmp_path / "3_Dense", 8, 4, True, "tanh"),), is_normalized=True,
        max_seq_length=256, do_lower_case=True, prompts={"query": "q: ", "document": ""}, default_prompt_name="query",
        similarity="dot", truncate_dim=16)


def test_new_files_name_their_poolings(tmp_path: Path) -> None:
    write(tmp_path, {"modules.json": modules("Transformer", "Pooling"),
                     "1_Pooling/config.json": {"pooling_mode": ["max", "cls"]},
                     "tokenizer_config.json": {"model_max_length": 512}})
    found = read_sentence_transformer(tmp_path)
    assert found.pooling == PoolingModule(("max", "cls"))
    assert (found.is_normalized, found.max_seq_length) == (False, 512)
    write(tmp_path, {"1_Pooling/config.json": {"pooling_mode": "lasttoken", "pooling_mode_cls_token": True},
                     "tokenizer_config.json": {"model_max_length": 10**15}})
    found = read_sentence_transformer(tmp_path)
    assert found.pooling == PoolingModule(("lasttoken",))
    assert found.max_seq_length is None


def test_only_what_normalises_in_the_end_is_told_apart(tmp_path: Path) -> None:
    write(tmp_path, {
        "modules.json": modules("Transformer", "Pooling", "Normalize", "Dense"), "1_Pooling/config.json": {},
        "3_Dense/config.json": DENSE | {"activation_function": "torch.nn.modules.linear.Identity", "bias": False},
        "3_Dense/model.safetensors": ""})
    found = read_sentence_transformer(tmp_path)
    assert found.layers == (NormalizeModule(), DenseModule(tmp_path / "3_Dense", 8, 4, False, "identity"))
    assert not found.is_normalized


def test_heads_of_other_kinds(tmp_path: Path) -> None:
    write(tmp_path, {"modules.json": modules("MLMTransformer", "SpladePooling"), "1_SpladePooling/config.json": {
        "pooling_strategy": "sum", "activation_function": "log1p_relu"}})
    assert read_sentence_transformer(tmp_path).splade == SpladeModule(sums=True, is_double=True)
    write(tmp_path, {"modules.json": modules("Transformer", "LogitScore"), "1_LogitScore/config.json": {
        "true_token_id": 7, "false_token_id": 3}})
    assert read_sentence_transformer(tmp_path).logit_score == LogitScoreModule(7, 3)


@pytest.mark.parametrize(("files", "activation"), [
    ({"config.json": {"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"},
                      "sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}}, "sigmoid"),
    ({"config.json": {"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}}, "identity"),
    ({"config_sentence_transformers.json": {"activation_fn": "torch.nn.modules.activation.Softmax"}}, "softmax"),
])
def test_the_activation_of_a_cross_encoder(tmp_path: Path, files: dict[str, Any], activation: str) -> None:
    assert read_score_activation(write(tmp_path, files)) == activation


GOOD = {"modules.json": modules("Transformer", "Pooling", "Dense"), "1_Pooling/config.json": {},
        "2_Dense/config.json": DENSE, "2_Dense/model.safetensors": ""}


@pytest.mark.parametrize(("files", "said"), [
    ({"modules.json": "[1"}, "modules.json: it is not JSON"),
    ({"modules.json": {}}, "modules.json: it is no list of modules"),
    ({"modules.json": modules(*["Dropout"] * 40)}, "modules.json: it has 40 modules, and 32 are the most"),
    ({"modules.json": modules("Transformer", "LSTM")}, "type: expected a module of sentence-transformers that is"),
    ({"modules.json": modules("Dropout", "Pooling")}, "its modules are no Transformer, then"),
    ({"modules.json": modules("Transformer", "Normalize")}, "Dense or Normalize without a Pooling before"),
    ({"modules.json": [*modules("Transformer"), {"type": "x.Pooling", "path": "../1_Pooling"}]},
     "path: expected a folder below the model's"),
    ({"modules.json": [{"type": "x.Transformer", "path": "0_Transformer"}]},
     "path: expected an empty one, for the transformer's files have to lie beside"),
    ({"1_Pooling/config.json": {"pooling_mode": "median"}}, "pooling_mode: expected one or several of cls, max"),
    ({"1_Pooling/config.json": {"pooling_mode_mean_tokens": 1}}, "pooling_mode_mean_tokens: expected true or false"),
    ({"2_Dense/config.json": DENSE | {"activation_function": "mine.Own"}}, "activation_function: expected a class"),
    ({"2_Dense/config.json": DENSE | {"module_input_name": "token_embeddings"}}, "module_input_name: expected sent"),
    ({"2_Dense/config.json": DENSE | {"out_features": 0}}, "out_features: expected a whole number from 1"),
    ({"2_Dense/config.json": DENSE | {"use_residual": True}}, "use_residual: expected false"),
    ({"config_sentence_transformers.json": {"prompts": {"query": 1}}}, "prompts: expected an object of texts"),
    ({"config_sentence_transformers.json": {"default_prompt_name": "query"}}, "default_prompt_name: expected one of"),
    ({"config_sentence_transformers.json": {"similarity_fn_name": "near"}}, "similarity_fn_name: expected one of cos"),
    ({"config_sentence_transformers.json": {"truncate_dim": 0}}, "truncate_dim: expected a whole number from 1"),
    ({"sentence_bert_config.json": {"max_seq_length": "all"}}, "max_seq_length: expected a whole number from 1"),
])
def test_files_that_make_no_sense_are_refused(tmp_path: Path, files: dict[str, Any], said: str) -> None:
    write(tmp_path, GOOD | files)
    with pytest.raises(FileError) as error:
        read_sentence_transformer(tmp_path)
    assert said in str(error.value)


def test_pickled_weights_are_refused_with_what_helps(tmp_path: Path) -> None:
    write(tmp_path, GOOD | {"2_Dense/pytorch_model.bin": ""})
    (tmp_path / "2_Dense" / "model.safetensors").unlink()
    with pytest.raises(FileError, match=r"it is missing; weights in safetensors format are needed.*`penstock convert "):
        read_sentence_transformer(tmp_path)


def test_an_activation_that_is_not_known_is_refused(tmp_path: Path) -> None:
    write(tmp_path, {"config.json": {"sbert_ce_default_activation_function": "mine.Own"}})
    with pytest.raises(FileError, match="sbert_ce_default_activation_function: expected a class of torch, one of ide"):
        read_score_activation(tmp_path)
