"""Records of people's preferences and ratings: arenas, reward benchmarks, test sets of trained judges."""

from __future__ import annotations

from typing import Any

from shape_records import (
    ANSWER,
    ASSISTANT,
    BY_CRITERIA,
    CHECKED,
    DIALOGUE,
    GRADED,
    PAIR,
    SYSTEM,
    USER,
    Made,
    Reading,
    Record,
    Said,
    Shape,
    Texts,
    chat,
    dialogue,
    json_array,
    json_document,
    json_lines,
    parquet,
    sheet,
    two_files,
)

# --- LMArena


def battle(texts: Texts, rounds: int) -> tuple[list[str], list[str], list[str]]:
    """Return the user's texts and the texts of both systems."""
    return tuple([texts.text() for _ in range(rounds)] for _ in range(3))  # type: ignore[return-value]


def turns_of(asked: list[str], answered: list[str]) -> tuple[Said, ...]:
    """Return the turns of a conversation, the answers in between."""
    pairs = zip(asked, answered, strict=True)
    return tuple(turn for ask, answer in pairs for turn in (Said(USER, ask), Said(ASSISTANT, answer)))


def battle_reading(asked: list[str], a: list[str], b: list[str], **others: Any) -> Reading:
    """Return the reading of a battle: of several rounds, both conversations, each with its own answers."""
    if len(asked) == 1:
        return Reading((a[0], b[0]), instruction=asked[0], **others)
    return Reading((), trajectories=(turns_of(asked, a), turns_of(asked, b)), **others)


WINNERS = {"model_a": "a", "model_b": "b", "tie": "tie", "tie (bothbad)": "tie"}


def arena_conversations(texts: Texts, number: int) -> Made:
    """chatbot_arena_conversations (2023): `turn` is the number of rounds; a vote is for all of them."""
    asked, a, b = battle(texts, texts.rng.randint(1, 3))
    first, second = texts.names()
    winner = texts.rng.choice([*WINNERS])
    record = {
        "question_id": texts.word(),
        "model_a": first,
        "model_b": second,
        "winner": winner,
        "judge": f"arena_user_{number}",
        "conversation_a": chat(*turns_of(asked, a)),
        "conversation_b": chat(*turns_of(asked, b)),
        "turn": len(asked),
        "anony": True,
        "language": "English",
        "tstamp": 1.5e9 + number,
        "openai_moderation": {"categories": {"hate": False}, "flagged": False},
    }
    return Made(record, (battle_reading(asked, a, b, systems=(first, second)),), WINNERS[winner])


def mt_bench_human_judgments(texts: Texts, number: int) -> Made:
    """Both rounds stand in each record; with `turn` 1 the vote is for the first round alone."""
    asked, a, b = battle(texts, 2)
    first, second = texts.names()
    turn, winner = 1 + number % 2, texts.rng.choice(["model_a", "model_b", "tie"])
    record = {
        "question_id": 80 + number,
        "model_a": first,
        "model_b": second,
        "winner": winner,
        "judge": f"expert_{number % 3}",
        "conversation_a": chat(*turns_of(asked, a)),
        "conversation_b": chat(*turns_of(asked, b)),
        "turn": turn,
    }
    reading = battle_reading(asked[:turn], a[:turn], b[:turn], systems=(first, second))
    return Made(record, (reading,), WINNERS[winner])


def arena_parts(texts: Texts, number: int) -> Made:
    """arena-human-preference-140k: a content is a list of parts, with keys that are null."""
    asked, a, b = battle(texts, texts.rng.randint(1, 2))
    first, second = texts.names()
    winner = texts.rng.choice(["model_a", "model_b", "tie", "both_bad"])

    def parts(turns: tuple[Said, ...]) -> list[Record]:
        return [
            {
                "role": turn.role,
                "content": [{"type": "text", "text": turn.text, "image": None, "mimeType": None}],
                "num_tokens": 7,
            }
            for turn in turns
        ]

    record = {
        "id": texts.word(),
        "model_a": first,
        "model_b": second,
        "winner": winner,
        "evaluation_session_id": texts.word(),
        "evaluation_order": 1,
        "conversation_a": parts(turns_of(asked, a)),
        "conversation_b": parts(turns_of(asked, b)),
        "conv_metadata": {"sum_user_tokens": 7, "turns": len(asked)},
        "language": "en",
        "is_code": False,
    }
    label = {"both_bad": "tie"}.get(winner) or WINNERS[winner]
    return Made(record, (battle_reading(asked, a, b, systems=(first, second)),), label)


def lmsys_kaggle(texts: Texts, number: int) -> Made:
    """LMSYS's competition and its 55k set: cells are JSON lists of turns; one column is hot."""
    asked, a, b = battle(texts, texts.rng.randint(1, 2))
    first, second = texts.names()
    label = texts.rng.choice(["a", "b", "tie"])
    record = {
        "id": 30_000 + number,
        "model_a": first,
        "model_b": second,
        "prompt": asked,
        "response_a": a,
        "response_b": b,
        "winner_model_a": int(label == "a"),
        "winner_model_b": int(label == "b"),
        "winner_tie": int(label == "tie"),
    }
    return Made(record, (battle_reading(asked, a, b, systems=(first, second)),), label)


def wsdm_kaggle(texts: Texts, number: int) -> Made:
    """The competition of 2024: plain texts."""
    asked, a, b = battle(texts, 1)
    first, second = texts.names()
    winner = texts.rng.choice(["model_a", "model_b"])
    record = {
        "id": texts.word(),
        "prompt": asked[0],
        "response_a": a[0],
        "response_b": b[0],
        "winner": winner,
        "model_a": first,
        "model_b": second,
        "language": "English",
    }
    return Made(record, (battle_reading(asked, a, b, systems=(first, second)),), WINNERS[winner])


# --- Sets of preferences and ratings


def ultrafeedback(texts: Texts, number: int) -> Made:
    """Several completions, each with its system and its ratings; `custom_system_prompt` is a prompt."""
    instruction = texts.text()
    models = [f"{texts.name()}-{place}" for place in range(4)]
    completions, readings = [], []
    for model in models:
        response, rating, overall = texts.text(), str(texts.rng.randint(1, 5)), texts.rng.randint(1, 10) / 2
        completions.append(
            {
                "annotations": {"helpfulness": {"Rating": rating, "Rationale": texts.text(), "Type": ["1"]}},
                "critique": texts.text(),
                "custom_system_prompt": texts.text(),
                "model": model,
                "overall_score": overall,
                "principle": "helpfulness",
                "response": response,
            }
        )
        readings.append(
            Reading((response,), instruction=instruction, systems=(model,), columns={"overall_score": overall})
        )
    record = {
        "source": "made_up",
        "instruction": instruction,
        "models": models,
        "completions": completions,
        "correct_answers": ["None"],
        "incorrect_answers": ["None"],
    }
    return Made(record, tuple(readings))


def ultrafeedback_binarized(texts: Texts, number: int) -> Made:
    """`chosen` and `rejected` hold the prompt too; `messages` is `chosen` again."""
    prompt, chosen, rejected = texts.text(), texts.text(), texts.text()
    record = {
        "prompt": prompt,
        "prompt_id": texts.word(),
        "chosen": chat(Said(USER, prompt), Said(ASSISTANT, chosen)),
        "rejected": chat(Said(USER, prompt), Said(ASSISTANT, rejected)),
        "messages": chat(Said(USER, prompt), Said(ASSISTANT, chosen)),
        "score_chosen": 8.5,
        "score_rejected": 6.0,
    }
    return Made(record, (Reading((chosen, rejected), instruction=prompt),), "a")


def helpsteer2(texts: Texts, number: int) -> Made:
    prompt, response = texts.text(), texts.text()
    ratings = {
        name: texts.rng.randint(0, 4) for name in ("helpfulness", "correctness", "coherence", "complexity")
    }
    record = {"prompt": prompt, "response": response, **ratings, "verbosity": 2}
    return Made(record, (Reading((response,), instruction=prompt, columns=ratings),))


def by_sign(preference: int) -> str:
    """Return the label of HelpSteer's -3 to 3: below 0, the first response is better."""
    return "a" if preference < 0 else "b" if preference > 0 else "tie"


def helpsteer2_preference(texts: Texts, number: int) -> Made:
    prompt, first, second = texts.text(), texts.text(), texts.text()
    strength = texts.rng.randint(-3, 3)
    record = {
        "split": "train",
        "prompt": prompt,
        "response_1": first,
        "response_2": second,
        "preference_strength": strength,
        "preference_statement": texts.text(),
        "preference_elaboration": texts.text(),
        "three_most_similar_preferences": [{"statement": texts.text(), "strength": strength}],
    }
    return Made(record, (Reading((first, second), instruction=prompt),), by_sign(strength))


def helpsteer3(texts: Texts, number: int) -> Made:
    """`context` is the conversation, not a document to be faithful to."""
    turns = dialogue(texts, texts.rng.randint(1, 2))
    first, second = texts.text(), texts.text()
    preference = texts.rng.randint(-3, 3)
    record = {
        "domain": "general",
        "language": "english",
        "context": chat(*turns),
        "response1": first,
        "response2": second,
        "overall_preference": preference,
        "individual_preference": [
            {
                "score": preference,
                "reasoning": texts.text(),
                "feedback1": texts.text(),
                "feedback2": texts.text(),
            }
        ],
    }
    return Made(record, (Reading((first, second), turns=turns),), by_sign(preference))


def rewardbench(texts: Texts, number: int) -> Made:
    prompt, chosen, rejected = texts.text(), texts.text(), texts.text()
    first, second = texts.names()
    record = {
        "prompt": prompt,
        "chosen": chosen,
        "chosen_model": first,
        "rejected": rejected,
        "rejected_model": second,
        "subset": "made-up",
        "id": number,
    }
    return Made(record, (Reading((chosen, rejected), instruction=prompt, systems=(first, second)),), "a")


def rewardbench2_record(texts: Texts, number: int) -> tuple[Record, str, list[str], list[str]]:
    """Lists of responses: one is right, or several in the subset `Ties`; three or more are wrong."""
    prompt = texts.text()
    chosen = [texts.text() for _ in range(1 + number % 2)]
    rejected = [texts.text() for _ in range(3)]
    record = {
        "id": str(number),
        "prompt": prompt,
        "chosen": chosen,
        "rejected": rejected,
        "num_correct": len(chosen),
        "num_incorrect": len(rejected),
        "total_completions": len(chosen) + len(rejected),
        "models": [texts.name() for _ in (*chosen, *rejected)],
        "subset": "Ties" if number % 2 else "Math",
        "additional_metadata": {"category": None, "correct": None},
    }
    return record, prompt, chosen, rejected


def rewardbench2_pairs(texts: Texts, number: int) -> Made:
    """Each right response beside each wrong one, as a reward model must order them."""
    record, prompt, chosen, rejected = rewardbench2_record(texts, number)
    return Made(
        record,
        tuple(
            Reading((right, wrong), instruction=prompt, systems_optional=True)
            for right in chosen
            for wrong in rejected
        ),
        "a",
    )


def rewardbench2_responses(texts: Texts, number: int) -> Made:
    """Each response alone, as the four-way ranking scores them."""
    record, prompt, chosen, rejected = rewardbench2_record(texts, number)
    texts_of_all = (*chosen, *rejected)
    return Made(
        record, tuple(Reading((text,), instruction=prompt, systems_optional=True) for text in texts_of_all)
    )


def pandalm(texts: Texts, number: int) -> Made:
    """The test set: an input beside the instruction; annotators say 1, 2, or 0 for a tie."""
    instruction, given = texts.text(), texts.maybe(texts.text(), 0.8)
    first, second = texts.text(), texts.text()
    label = texts.rng.choice([0, 1, 2])
    record = {
        "idx": number,
        "cmp_key": "llama-7b_opt-7b",
        "motivation_app": texts.line(),
        "instruction": instruction,
        "input": given,
        "response1": first,
        "response2": second,
        "annotator1": label,
        "annotator2": label,
        "annotator3": texts.rng.choice([0, 1, 2]),
    }
    asked = (f"{instruction}\n{given}", f"{instruction}\n\n{given}") if given else instruction
    return Made(record, (Reading((first, second), instruction=asked),), ("tie", "a", "b")[label])


def auto_j(texts: Texts, number: int) -> Made:
    """The pairwise test set, whose codes are not PandaLM's: 0 is the first response, 1 the second, 2 a tie."""
    prompt, first, second = texts.text(), texts.text(), texts.text()
    label = texts.rng.choice([0, 1, 2])
    record = {"scenario": "advice", "label": label, "prompt": prompt, "response 1": first, "response 2": second}
    return Made(record, (Reading((first, second), instruction=prompt),), ("a", "b", "tie")[label])


LEVELS = range(1, 6)


def feedback_bench(texts: Texts, number: int) -> Made:
    """`instruction` is the prompt of a judge, `output` a judge's answer; what is judged is `orig_…`."""
    instruction, response, reference = texts.text(), texts.text(), texts.text()
    criteria, levels = texts.text(), [texts.text() for _ in LEVELS]
    feedback, score = texts.text(), str(texts.rng.randint(1, 5))
    record = {
        "orig_criteria": criteria,
        **{f"orig_score{level}_description": text for level, text in zip(LEVELS, levels, strict=True)},
        "orig_instruction": instruction,
        "orig_response": response,
        "orig_reference_answer": reference,
        "orig_feedback": feedback,
        "orig_score": score,
        "instruction": f"###The instruction:\n{instruction}\n\n###Response to evaluate:\n{response}",
        "output": f"{feedback} [RESULT] {score}",
        "input": "",
    }
    reading = Reading(
        (response,),
        instruction=instruction,
        reference=reference,
        shown={"rubric": (criteria, *levels)},
        columns={"orig_score": score},
    )
    return Made(texts.shuffled(record), (reading,))


def biggen(texts: Texts, number: int) -> Made:
    """A rubric of five levels for each instance; `system_prompt` is a prompt."""
    system, given, response, reference = (texts.text() for _ in range(4))
    criteria, levels = texts.text(), [texts.text() for _ in LEVELS]
    name = texts.name()
    record = {
        "id": f"planning_travel_plan_{number}",
        "capability": "planning",
        "task": "travel_plan",
        "instance_idx": number,
        "system_prompt": system,
        "input": given,
        "reference_answer": reference,
        "score_rubric": {
            "criteria": criteria,
            **{f"score{level}_description": text for level, text in zip(LEVELS, levels, strict=True)},
        },
        "model_name": name,
        "response": response,
        "human_score": texts.rng.randint(1, 5),
    }
    reading = Reading(
        (response,),
        turns=(Said(SYSTEM, system), Said(USER, given)),
        reference=reference,
        systems=(name,),
        shown={"rubric": (criteria, *levels)},
        columns={"human_score": record["human_score"]},
    )
    return Made(record, (reading,))


def biggen_responses(texts: Texts, number: int) -> Made:
    """What its own scripts write: an object whose keys are the ids, and another key for the system."""
    made = biggen(texts, number)
    record = dict(made.record)
    record["response_model_name"] = record.pop("model_name")
    del record["human_score"]
    (reading,) = made.readings
    return Made(
        record,
        (
            Reading(
                reading.responses,
                turns=reading.turns,
                reference=reading.reference,
                systems=reading.systems,
                shown=reading.shown,
            ),
        ),
    )


# --- HealthBench and PaperBench


def health_items(texts: Texts) -> tuple[list[Record], tuple[tuple[str, float], ...]]:
    points = [texts.rng.choice([-6, -2, 3, 5, 8]) for _ in range(texts.rng.randint(1, 4))]
    items = [
        {"criterion": texts.text(), "points": each, "tags": ["level:example", "axis:accuracy"]}
        for each in points
    ]
    return items, tuple((str(item["criterion"]), float(each)) for item, each in zip(items, points, strict=True))


def health_record(texts: Texts) -> tuple[Record, tuple[Said, ...], tuple[tuple[str, float], ...]]:
    turns = dialogue(texts, texts.rng.randint(1, 2))
    items, criteria = health_items(texts)
    record: Record = {
        "example_tags": ["theme:made_up"],
        "ideal_completions_data": None,
        "prompt": chat(*turns),
        "prompt_id": texts.word(),
        "rubrics": items,
        "canary": "made-up",
    }
    return record, turns, criteria


def healthbench_published(texts: Texts, number: int) -> Made:
    """As it is published, nothing is to be judged: the ideal completion is an answer to compare with.

    The last turn is the user's, so it is not a response either.
    """
    record, _, _ = health_record(texts)
    if number % 2:
        record["ideal_completions_data"] = {
            "ideal_completion": texts.text(),
            "ideal_completions_group": "Group 1",
            "ideal_completions_ref_completions": [texts.text()],
        }
    return Made(record)


def healthbench_completion(texts: Texts, number: int) -> Made:
    """With a `completion`, as the meta-evaluation names it."""
    record, turns, criteria = health_record(texts)
    answer = texts.text()
    record |= {"completion": answer, "completion_id": texts.word()}
    return Made(record, (Reading((answer,), turns=turns, criteria=criteria),))


def healthbench_metadata(texts: Texts, number: int) -> Made:
    """What the evaluation writes of an example: `completion` is a list of one message, items have verdicts."""
    record, turns, criteria = health_record(texts)
    answer = texts.text()
    items = [
        {**item, "criteria_met": texts.rng.random() < 0.5, "explanation": texts.text()}
        for item in record["rubrics"]
    ]
    written = {
        "score": 0.5,
        "usage": {"input_tokens": 5},
        "rubric_items": items,
        "prompt": record["prompt"],
        "completion": chat(Said(ASSISTANT, answer)),
        "prompt_id": record["prompt_id"],
        "completion_id": texts.word(),
    }
    return Made(written, (Reading((answer,), turns=turns, criteria=criteria),))


def healthbench_answer_in_prompt(texts: Texts, number: int) -> Made:
    """The answer is the last turn of `prompt`, the assistant's."""
    record, turns, criteria = health_record(texts)
    answer = texts.text()
    record["prompt"] = chat(*turns, Said(ASSISTANT, answer))
    return Made(record, (Reading((answer,), turns=turns, criteria=criteria),))


def paper_tree(texts: Texts, depth: int, share: float) -> tuple[Record, list[tuple[str, float]]]:
    """Return a node and the leaves below it: each with the product of its shares of the weights."""
    requirements = texts.text()
    node: Record = {
        "id": texts.word(),
        "requirements": requirements,
        "weight": 1,
        "sub_tasks": [],
        "task_category": None,
        "finegrained_task_category": None,
    }
    if depth == 0:
        node["task_category"] = "Code Development"
        return node, [(requirements, share)]
    weights = [texts.rng.choice([1, 1, 2]) for _ in range(2)]
    leaves: list[tuple[str, float]] = []
    for weight in weights:
        child, below = paper_tree(
            texts, depth - 1 if texts.rng.random() < 0.7 else 0, share * weight / sum(weights)
        )
        child["weight"] = weight
        node["sub_tasks"].append(child)
        leaves += below
    return node, leaves


def paperbench(texts: Texts, number: int) -> Made:
    """A submission beside the tree of its paper."""
    tree, leaves = paper_tree(texts, 2, 1.0)
    instruction, answer = texts.text(), texts.text()
    record = {"instruction": instruction, "response": answer, "rubric": tree, "paper_id": texts.word()}
    return Made(record, (Reading((answer,), instruction=instruction, criteria=tuple(leaves)),))


def paperbench_tree(texts: Texts, number: int) -> Made:
    """`rubric.json` of a paper: a tree without a submission."""
    return Made(paper_tree(texts, 2, 1.0)[0])


# --- MT-Bench and Arena-Hard v0.1: answers beside their questions


def mt_bench(texts: Texts, number: int) -> Made:
    """A file of answers and the file of questions; both have two turns."""
    asked, answered, name = [texts.text(), texts.text()], [texts.text(), texts.text()], texts.name()
    record = {
        "question_id": 81 + number,
        "answer_id": texts.word(),
        "model_id": name,
        "choices": [{"index": 0, "turns": answered}],
        "tstamp": 1.69e9,
    }
    question = {"question_id": 81 + number, "category": "writing", "turns": asked}
    if number % 3 == 0:  # of mathematics, reasoning and coding: a reference for each turn
        question["reference"] = [texts.text(), texts.text()]
    turns = (Said(USER, asked[0]), Said(ASSISTANT, answered[0]), Said(USER, asked[1]))
    return Made(record, (Reading((answered[1],), turns=turns, systems=(name,)),), beside=question)


def arena_hard(texts: Texts, number: int) -> Made:
    """v0.1 as it is published today: `messages` hold the question too, and the last content is an object."""
    asked, answered, name, uid = texts.text(), texts.text(), texts.name(), texts.word()
    record = {
        "uid": uid,
        "ans_id": texts.word(),
        "model": name,
        "messages": [
            {"role": "user", "content": asked},
            {"role": "assistant", "content": {"answer": answered}},
        ],
        "tstamp": 1.71e9,
        "metadata": {"token_len": 7},
    }
    question = {"uid": uid, "category": "arena-hard-v0.1", "cluster": texts.line(), "prompt": asked}
    return Made(record, (Reading((answered,), instruction=asked, systems=(name,)),), beside=question)


def arena_hard_first(texts: Texts, number: int) -> Made:
    """v0.1 as it was published first: turns of objects on both sides, joined by `question_id`."""
    asked, answered, name, uid = texts.text(), texts.text(), texts.name(), texts.word()
    record = {
        "question_id": uid,
        "answer_id": texts.word(),
        "model_id": name,
        "choices": [{"index": 0, "turns": [{"content": answered, "token_len": 7}]}],
        "tstamp": 1.71e9,
    }
    question = {
        "question_id": uid,
        "category": "arena-hard-v0.1",
        "cluster": texts.line(),
        "turns": [{"content": asked}],
    }
    return Made(record, (Reading((answered,), instruction=asked, systems=(name,)),), beside=question)


PREFERENCES = (
    Shape("LMArena 2023", arena_conversations, parquet("train.parquet"), read=(PAIR,), labels=True),
    Shape("LMArena 140k", arena_parts, parquet("train.parquet"), read=(PAIR,), labels=True, records=24),
    Shape("LMSYS Kaggle", lmsys_kaggle, sheet("train.csv"), read=(PAIR,), labels=True),
    Shape("WSDM Kaggle", wsdm_kaggle, parquet("train.parquet"), read=(PAIR,), labels=True),
    Shape(
        "MT-Bench human judgments", mt_bench_human_judgments, parquet("h.parquet"), read=(PAIR,), labels=True
    ),
    Shape("UltraFeedback", ultrafeedback, json_lines("evol.jsonl"), read=(ANSWER,), refuse=(GRADED,)),
    Shape("UltraFeedback binarized", ultrafeedback_binarized, parquet("t.parquet"), read=(PAIR,), labels=True),
    Shape("HelpSteer2", helpsteer2, json_lines("train.jsonl"), refuse=(GRADED, PAIR)),
    Shape("HelpSteer2 preference", helpsteer2_preference, json_lines("p.jsonl"), read=(PAIR,), labels=True),
    Shape("HelpSteer3", helpsteer3, json_lines("train.jsonl"), read=(PAIR,), labels=True),
    Shape("RewardBench", rewardbench, parquet("filtered.parquet"), read=(PAIR,), labels=True),
    Shape(
        "RewardBench 2, pairs",
        rewardbench2_pairs,
        parquet("test.parquet"),
        read=(PAIR,),
        untold=(ANSWER,),
        labels=True,
    ),
    Shape(
        "RewardBench 2, responses",
        rewardbench2_responses,
        parquet("test.parquet"),
        refuse=(GRADED,),
        untold=(PAIR,),
    ),
    Shape("PandaLM", pandalm, json_array("testset-v1.json"), read=(PAIR,)),
    Shape("Auto-J", auto_j, json_lines("testdata_pairwise.jsonl"), read=(PAIR,), labels=True),
    Shape("Feedback Bench", feedback_bench, parquet("test.parquet"), read=(ANSWER, GRADED, BY_CRITERIA)),
    Shape("BiGGen Bench", biggen, parquet("results.parquet"), read=(ANSWER, GRADED, BY_CRITERIA, DIALOGUE)),
    Shape(
        "BiGGen Bench responses",
        biggen_responses,
        json_document("responses.json", lambda made: {each.record["id"]: each.record for each in made}),
        read=(ANSWER, GRADED, BY_CRITERIA),
    ),
    Shape(
        "HealthBench as published",
        healthbench_published,
        json_lines("oss_eval.jsonl"),
        read=(),
        refuse=(CHECKED, ANSWER, DIALOGUE),
    ),
    Shape("HealthBench with completion", healthbench_completion, json_lines("c.jsonl"), read=(CHECKED, ANSWER)),
    Shape("HealthBench metadata", healthbench_metadata, json_array("m.json"), read=(CHECKED, ANSWER)),
    Shape(
        "HealthBench, answer in prompt", healthbench_answer_in_prompt, json_lines("p.jsonl"), read=(CHECKED,)
    ),
    Shape("PaperBench", paperbench, json_lines("submissions.jsonl"), read=(CHECKED,)),
    Shape("PaperBench tree", paperbench_tree, json_lines("rubrics.jsonl"), read=(), refuse=(CHECKED, ANSWER)),
    Shape("MT-Bench", mt_bench, two_files("m.jsonl", "question.jsonl"), read=(DIALOGUE,)),
    Shape("Arena-Hard v0.1", arena_hard, two_files("m.jsonl", "question.jsonl"), read=(ANSWER, DIALOGUE)),
    Shape(
        "Arena-Hard v0.1, first form", arena_hard_first, two_files("m.jsonl", "question.jsonl"), read=(ANSWER,)
    ),
)
