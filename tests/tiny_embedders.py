"""An embedder and a reranker of random weights, with all files that a server reads."""

import json
import string
from pathlib import Path

import tokenizers
from tokenizers import models, normalizers, pre_tokenizers, processors

from tests.encoder_models import make_encoder

SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
LETTERS = string.ascii_lowercase + string.digits
WORDS = (*SPECIAL, *LETTERS, *(f"##{letter}" for letter in LETTERS), *string.punctuation, "water", "italy", "rome",
         "##ing", "the", "and")
MOST = 64
"""How many tokens a text of these models may have."""


def make_embedder(path: Path) -> Path:
    """Writes an embedder whose vectors are means, as sentence-transformers has it, into the folder `path`."""
    make_encoder(path, "bert", vocab_size=len(WORDS), pad_token_id=0)
    _write_tokenizer(path)
    kinds = [("", "Transformer"), ("1_Pooling", "Pooling"), ("2_Normalize", "Normalize")]
    _write(path / "modules.json", [
        {"idx": index, "name": str(index), "path": folder, "type": f"sentence_transformers.models.{kind}"}
        for index, (folder, kind) in enumerate(kinds)])
    (path / "1_Pooling").mkdir()
    _write(path / "1_Pooling" / "config.json", {"word_embedding_dimension": 64, "pooling_mode_mean_tokens": True})
    _write(path / "sentence_bert_config.json", {"max_seq_length": MOST, "do_lower_case": False})
    _write(path / "config_sentence_transformers.json", {"prompts": {"query": "query: ", "document": "text: "}})
    return path


def make_reranker(path: Path) -> Path:
    """Writes a cross-encoder with one label into the folder `path`."""
    return make_classifier(path, 1)


def make_classifier(path: Path, num_labels: int = 3) -> Path:
    """Writes a classifier of texts into the folder `path`."""
    make_encoder(path, "bert, classes", vocab_size=len(WORDS), pad_token_id=0, num_labels=num_labels)
    _write_tokenizer(path)
    return path


def _write_tokenizer(path: Path) -> None:
    tokenizer = tokenizers.Tokenizer(models.WordPiece(
        {word: number for number, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    first, last = [(token, WORDS.index(token)) for token in ("[CLS]", "[SEP]")]
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[first, last])
    tokenizer.add_special_tokens([*SPECIAL])
    tokenizer.save(str(path / "tokenizer.json"))
    _write(path / "tokenizer_config.json", {
        "tokenizer_class": "BertTokenizerFast", "model_max_length": MOST, "pad_token": "[PAD]", "unk_token": "[UNK]",
        "cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"})


def _write(path: Path, content: object) -> None:
    path.write_text(json.dumps(content))
