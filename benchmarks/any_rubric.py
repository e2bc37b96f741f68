"""Stress test of the promise for any rubric: random aspects, rationales and vocabularies.

    python benchmarks/any_rubric.py TOKENIZER TOKENIZER … [--answers 20000] [--rubrics 40]

For each tokenizer, and for small vocabularies cut out of answers, random rubrics of one to three aspects:
scales from -12 to 130, choices with codes and with labels, booleans, in JSON and in forms. The "model" never
closes a text unless it has to, and picks values at random. Each answer must be whole within its limit, be read
back, and keep each text within its own tokens (a text of a form may hold a beginning of the literal text that
closes it besides); each value must be reachable; and where the table says that probabilities are known, the
values must begin with different tokens.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections import Counter
from contextlib import suppress
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import results_table
from jsonschema import Draft202012Validator
from pydantic import ValidationError
from random_model import load_tokenizer

from localjudge.constraint.compiler import closing_margin_for, token_table
from localjudge.constraint.token_table import TokenTable
from localjudge.constraint.vocabulary import Vocabulary, read_vocabulary
from localjudge.rubrics.answer import AnswerLayout, JsonLayout
from localjudge.rubrics.answer_keys import RationalePlace
from localjudge.rubrics.rubric import Rubric

BUDGETS = (1, 2, 7, 40)
WORDS = [
    "correct",
    "incorrect",
    "not attempted",
    "richtig",
    "falsch",
    "正しい",
    "no",
    "not",
    "n",
    "A",
    "AB",
    "🙂",
]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tokenizers", nargs="*", type=Path, help="folders that hold a tokenizer.json")
    parser.add_argument("--answers", type=int, default=20_000)
    parser.add_argument("--rubrics", type=int, default=40, help="rubrics for each vocabulary")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--results", type=Path, default=results_table.RESULTS)
    options = parser.parse_args()
    begin, random = time.perf_counter(), Random(options.seed)
    vocabularies = {folder.name: vocabulary_in(folder) for folder in options.tokenizers} | {"small": None}
    each = -(-options.answers // (len(vocabularies) * options.rubrics))
    counts = {name: Counter[str]() for name in vocabularies}
    for name, known in vocabularies.items():
        for _ in range(options.rubrics):
            check(random_rubric(random), known, each, random, counts[name])
        print(f"{name}: {dict(counts[name])}", file=sys.stderr)
    total = sum(counts.values(), Counter())
    columns = [
        "rubrics",
        "forms",
        "answers",
        "whole",
        "read_back",
        "texts_within_budget",
        "values",
        "values_reachable",
    ]
    rows = [[name, *(found[column] for column in columns)] for name, found in {**counts, "all": total}.items()]
    results_table.table("any rubric", ["vocabulary", *columns], rows)
    found = {"counts": {name: dict(each) for name, each in counts.items()}, "total": dict(total)}
    seconds = round(time.perf_counter() - begin, 1)
    results_table.write("any-rubric", {**found, "seconds": seconds}, options.results)
    if (
        not total["answers"] == total["whole"] == total["read_back"]
        or total["values"] != total["values_reachable"]
    ):
        sys.exit(1)


def vocabulary_in(folder: Path) -> Vocabulary:
    tokenizer = load_tokenizer(folder)
    size = len(tokenizer)
    return read_vocabulary(tokenizer, size + 1, [size])


def random_rubric(random: Random) -> Rubric:
    aspects = {name: random_aspect(random) for name in ("first", "second", "third")[: random.randint(1, 3)]}
    place = random.choice(get_args(RationalePlace))
    answer = {"rationale_place": place, "scores": random.choice(["scores", ""])}
    prompt = {"template": "{$instruction} {$candidate} {$aspects}"}
    if random.random() < 0.4:
        with suppress(ValidationError):  # not every random form can be read back
            form = {"form": random_form([*aspects], random)}
            return Rubric.model_validate({"name": "r", "aspects": aspects, "answer": form, "prompt": prompt})
    return Rubric.model_validate({"name": "r", "aspects": aspects, "answer": answer, "prompt": prompt})


def random_form(aspects: list[str], random: Random) -> str:
    fields = [*aspects, *["rationale", "remark"][: random.randint(0, 2)]]
    random.shuffle(fields)
    literals = ["Feedback: ", " [RESULT] ", "\nScore: ", "; ", " so: ", "###", "aab"]
    form = random.choice(["", random.choice(literals)])
    for field in fields:
        form += "{" + field + "}" + random.choice(literals)
    return form if random.random() < 0.5 else form[: form.rindex("}") + 1]


def random_aspect(random: Random) -> dict[str, Any]:
    kind = random.choice(["scale", "codes", "labels", "boolean"])
    if kind == "boolean":
        return {"boolean": True}
    if kind == "scale":
        lowest = random.randint(-12, 20)
        return {"scale": {"lowest": lowest, "highest": lowest + random.randint(1, 110)}}
    labels = random.sample(WORDS, random.randint(2, 5))
    choices = labels if kind == "labels" else dict(zip("ABCDE", labels, strict=False))
    return {"choices": choices, "ordered": random.random() < 0.5}


def check(rubric: Rubric, known: Vocabulary | None, answers: int, random: Random, count: Counter[str]) -> None:
    layout = rubric.answer_layout
    is_json = isinstance(layout, JsonLayout)
    vocabulary = known or small_vocabulary(layout, random)
    table = token_table(layout, vocabulary)
    validator = Draft202012Validator(layout.schema) if is_json else None
    count["rubrics"] += 1
    count["forms"] += not is_json
    for _ in range(answers):
        budget = random.choice(BUDGETS)
        tokens, lengths = longest_answer(table, budget, random)
        count["answers"] += 1
        count["whole"] += len(tokens) <= table.limit(budget)
        text = layout.opening + vocabulary.decode(tokens)
        answer = layout.parse(text)
        if validator:
            validator.validate(json.loads(text.removeprefix("```json\n")))
        codes = {field.name: code_of(field.values, answer.scores[field.name]) for field in layout.values}
        escaped = layout.parse(layout.write(answer.texts | codes))
        count["read_back"] += escaped == answer
        most = budget if is_json else budget + max(len(part) for part in layout.parts if isinstance(part, str))
        count["texts_within_budget"] += all(length <= most for length in lengths)
    for state, tokens, field in zip(table.score_state, table.score_token, layout.values, strict=True):
        first = tokens[: len(field.values)].tolist()
        decides = table.first_token_decides[layout.values.index(field)]
        assert decides == (len(set(first)) == len(first))
        count["values"] += len(field.values)
        count["values_reachable"] += len(
            {*written(table, vocabulary, int(state), field.values)} & {*field.values}
        )


def code_of(values: Any, value: Any) -> str:
    return next(code for code, each in values.items() if each == value and type(each) is type(value))


def small_vocabulary(layout: AnswerLayout, random: Random) -> Vocabulary:
    """Return all bytes, and tokens cut out of an answer at random places."""
    values = {field.name: random.choice([*field.values]) for field in layout.values}
    answer = layout.write({text.name: "Good. 评 no" for text in layout.texts} | values).encode()
    pieces = [bytes([byte]) for byte in range(256)]
    for _ in range(random.randint(0, 40)):
        begin = random.randrange(len(answer))
        pieces.append(answer[begin : begin + random.randint(2, 9)])
    return Vocabulary(dict(enumerate(pieces)), frozenset({len(pieces)}), len(pieces) + 2)


def longest_answer(table: TokenTable, budget: int, random: Random) -> tuple[list[int], list[int]]:
    """Return the answer of a model that never closes a text unless it has to, and the length of each text."""
    allowances, margin = table.allowances(budget), closing_margin_for(budget)
    state, tokens, lengths = table.start, list[int](), [0] * len(table.text_start)
    left = int(allowances[state])
    while not table.is_complete(state):
        allowed = np.flatnonzero(table.allowed(state, left, margin))
        after = table.next_state[state, allowed]
        stays = allowed[(table.text[after] >= 0) & (table.text[after] == table.text[state])]
        token = int(random.choice(stays if len(stays) else allowed))
        tokens.append(token)
        if len(stays):
            lengths[table.text[state]] += 1
        following = int(table.next_state[state, token])
        left = int(allowances[following]) if allowances[following] and following != state else left - 1
        state = following
    return tokens, lengths


def written(table: TokenTable, vocabulary: Vocabulary, state: int, values: Any) -> list[str]:
    """Return the values that the states after this one can write."""
    found, longest = list[str](), max(len(value.encode()) for value in values)
    paths = [(state, b"")]
    while paths:
        at, text = paths.pop()
        for token in np.flatnonzero(table.next_state[at] >= 0).tolist():
            piece = vocabulary.pieces.get(token, b"\xff")
            # In a form, a space may be a part of a value's first token.
            more = text + piece if text else piece.lstrip(b" ")
            if any(value.encode().startswith(more) for value in values) and len(more) <= longest:
                found += [value for value in values if value.encode() == more]
                paths.append((int(table.next_state[at, token]), more))
    return found


if __name__ == "__main__":
    main()
