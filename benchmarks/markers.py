"""Text that spells a model's own tokens: how often it becomes such a token, with every chat template.

    python benchmarks/markers.py TOKENIZER TOKENIZER … --templates templates.json --rows rows.jsonl …

The benchmark tests every added token of every tokenizer, special or not, in every field of a row, alone and
inside a word, with every chat template and without one. It compares localjudge, the whole tokenizer on the
filled template, and the same with `split_special_tokens`, which is the tokenizers' own protection. For ordinary
rows it counts the prompts that localjudge encodes differently from the whole tokenizer. If a TOKENIZER has no
tokenizer.json, the tokens of its tokenizer_config.json are added to the first tokenizer that has one.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import results_table
from transformers import PreTrainedTokenizerFast
from transformers.utils import logging

from localjudge import ModelError, Row, Rubric, read_rows
from localjudge.prompts.encoder import PromptEncoder, markers
from localjudge.prompts.rendered_turns import NO_ARGS, ROW, render_turns
from localjudge.rows.columns import USED_FIELDS

# The markers of a chat template are tokens in the model that the template belongs to.
_IN_TEMPLATE = re.compile(r"<[|\uff5c]?[\w/▁:.-]+[|\uff5c]?>|\[/?[A-Z_]+\]")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="+", type=Path, help="folders that hold a tokenizer.json")
    parser.add_argument("--templates", type=Path, required=True, help='{"templates": {name: template}}')
    parser.add_argument("--rows", nargs="+", default=["examples"], help="files of ordinary rows")
    parser.add_argument("--ordinary", type=int, default=10, help="number of rows from each file")
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    logging.set_verbosity_error()
    rubric = Rubric.load()
    templates = {"none": None, **json.loads(options.templates.read_text("utf-8"))["templates"]}
    ordinary = [rubric.text(row) for row in ordinary_rows(options.rows, options.ordinary, rubric)]
    count: Counter[str] = Counter()
    refused = set()
    for folder in options.tokenizers:
        for name, template in templates.items():
            tokenizer = tokenizer_of(folder, options.tokenizers, template)
            try:
                encoder = PromptEncoder(tokenizer)
            except ModelError:
                refused.add(name)
                continue
            hostile(tokenizer, encoder, rubric, count)
            differences(tokenizer, encoder, ordinary, count)
        print(f"{folder.name}: {dict(count)}", file=sys.stderr)
    shown = ("tried", "ours", "switch", "whole", "ordinary", "different")
    headings = [
        "tried",
        "became a token: ours",
        "with the switch",
        "plain",
        "ordinary prompts",
        "encoded differently",
    ]
    results_table.table("markers", headings, [[count[name] for name in shown]])
    found = {
        "tokenizers": [folder.name for folder in options.tokenizers],
        "templates": len(templates) - len(refused),
        "templates_refused": sorted(refused),
        **{name: count[name] for name in shown},
    }
    results_table.write("markers", found, options.results)
    if count["ours"] or count["different"]:
        sys.exit(1)


def ordinary_rows(files: Sequence[str], most: int, rubric: Rubric) -> Iterator[Row]:
    for file in files:
        rows = (row for row in read_rows([file]) if isinstance(row, Row) and row.reference is not None)
        yield from islice(rows, most)


def tokenizer_of(folder: Path, others: Sequence[Path], template: str | None) -> Any:
    file = folder / "tokenizer.json"
    own = (
        file if file.is_file() else next(other for other in others if (other / file.name).is_file()) / file.name
    )
    tokenizer = PreTrainedTokenizerFast(tokenizer_file=str(own))
    config = folder / "tokenizer_config.json"
    other_tokens = (
        json.loads(config.read_text("utf-8")).get("added_tokens_decoder", {}) if config.is_file() else {}
    )
    named = {*_IN_TEMPLATE.findall(template or ""), *(each["content"] for each in other_tokens.values())}
    known = {each.content for each in tokenizer.backend_tokenizer.get_added_tokens_decoder().values()}
    tokenizer.add_special_tokens({"additional_special_tokens": sorted(named - known)})
    tokenizer.chat_template = template
    return tokenizer


def hostile(tokenizer: Any, encoder: PromptEncoder, rubric: Rubric, count: Counter[str]) -> None:
    """Count the prompts in which a row's text became one of the model's own tokens."""
    own = markers(tokenizer.backend_tokenizer)
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    plain = {"instruction": "Which?", "candidate": "This.", "reference": "That."}
    expected = sum(token in own for token in encoder.encode(rubric.text(Row.from_response(**plain))))
    texts = []
    for token in own:
        spelled = added[token].content
        for field in USED_FIELDS:
            texts += [
                rubric.text(Row.from_response(**plain | {field: text})) for text in (spelled, f"a{spelled}b")
            ]
    count["tried"] += len(texts)
    count["ours"] += sum(became_token(encoder.encode(text), own, expected) for text in texts)
    around = [text_around(encoder, tokenizer, text) for text in texts]
    backend = tokenizer.backend_tokenizer
    for name, switch in (("whole", False), ("switch", True)):
        backend.encode_special_tokens = switch
        # The switch also splits the markers of the template.
        (alone,) = backend.encode_batch(
            [text_around(encoder, tokenizer, rubric.text(Row.from_response(**plain)))]
        )
        least = sum(token in own for token in alone.ids)
        count[name] += sum(became_token(each.ids, own, least) for each in backend.encode_batch(around))
    backend.encode_special_tokens = False


def became_token(tokens: Sequence[int], own: set[int], expected: int) -> bool:
    return sum(token in own for token in tokens) > expected


def differences(tokenizer: Any, encoder: PromptEncoder, ordinary: Sequence[str], count: Counter[str]) -> None:
    own = markers(tokenizer.backend_tokenizer)
    added = tokenizer.backend_tokenizer.get_added_tokens_decoder()
    spelled = [added[token].content for token in own]
    texts = [text for text in ordinary if not any(each in text for each in spelled)]
    whole = [text_around(encoder, tokenizer, text) for text in texts]
    encoded = tokenizer.backend_tokenizer.encode_batch(whole, add_special_tokens=not encoder.has_template)
    count["ordinary"] += len(texts)
    count["different"] += sum(
        encoder.encode(text) != theirs.ids for text, theirs in zip(texts, encoded, strict=True)
    )


def text_around(encoder: PromptEncoder, tokenizer: Any, text: str) -> str:
    """Return the chat template's text with this content inserted unchanged."""
    if not encoder.has_template:
        return text
    around = render_turns(tokenizer, "", thinking=False, template_args=NO_ARGS).text
    return around.replace(ROW, text)


if __name__ == "__main__":
    main()
