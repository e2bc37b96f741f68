"""The formats of thoughts that models write before an answer, as data.

To add a format, add an entry to `FORMATS`, with the place where its texts can be read. A tag whose name says
that it encloses a thought needs no entry: `thought_marks` finds it.
"""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class ThoughtFormat:
    """The texts around a thought.

    Attributes:
        opens: the text that opens a thought.
        ends: the text that ends it; empty if that is not known.
        then: what follows before the answer.
        is_channel: whether the thought is a message of its own (a channel). The text that ends it ends other
            messages, too, so the format is recognized only by a prompt that ends in the text that opens it.
        begun_after: of a channel that the model opens by itself, the end of the prompt after which it does.
        token: of such a channel, an added token that template and vocabulary have only in this format.
        models: who writes it.
        source: where its texts can be read.
    """

    opens: str
    ends: str
    then: str = ""
    is_channel: bool = field(default=False, compare=False)
    begun_after: str = field(default="", compare=False)
    token: str = field(default="", compare=False)
    models: str = field(default="", compare=False)
    source: str = field(default="", compare=False)


FORMATS = (
    ThoughtFormat(
        opens="<think>",
        ends="</think>",
        models="DeepSeek R1 to V4, Qwen3, GLM, SmolLM3, Kimi K2 Thinking and most others",
        source="huggingface.co/deepseek-ai/DeepSeek-R1, chat template",
    ),
    ThoughtFormat(
        opens="[THINK]",
        ends="[/THINK]",
        models="Magistral, Ministral 3 Reasoning",
        source="vLLM, vllm/reasoning/mistral_reasoning_parser.py",
    ),
    # Reflections on the budget, <seed:cot_budget_reflect>…</seed:cot_budget_reflect>, are parts of a thought.
    ThoughtFormat(
        opens="<seed:think>",
        ends="</seed:think>",
        models="Seed-OSS",
        source="vLLM, vllm/reasoning/seedoss_reasoning_parser.py; "
        "llama.cpp, models/templates/ByteDance-Seed-OSS.jinja",
    ),
    ThoughtFormat(
        opens="<thought>",
        ends="</thought>",
        models="EXAONE Deep",
        source="huggingface.co/LGAI-EXAONE/EXAONE-Deep-7.8B, chat template",
    ),
    ThoughtFormat(
        opens="<|START_THINKING|>",
        ends="<|END_THINKING|>",
        models="Command A Reasoning, Command R7B",
        source="vLLM, vllm/reasoning/cohere_command_reasoning_parser.py",
    ),
    ThoughtFormat(
        opens="<|inner_prefix|>",
        ends="<|inner_suffix|>",
        models="Apertus",
        source="vLLM, vllm/reasoning/apertus_reasoning_parser.py",
    ),
    ThoughtFormat(
        opens="<|channel>thought\n",
        ends="<channel|>",
        models="Gemma 4",
        source="vLLM, vllm/reasoning/gemma4_reasoning_parser.py",
    ),
    ThoughtFormat(
        opens="Here are my reasoning steps:\n",
        ends="[BEGIN FINAL RESPONSE]",
        models="Apriel Thinker",
        source="llama.cpp, models/templates/Apriel-1.6-15b-Thinker-fixed.jinja",
    ),
    ThoughtFormat(
        opens="<|channel|>analysis<|message|>",
        ends="<|end|>",
        then="<|start|>assistant<|channel|>final<|message|>",
        is_channel=True,
        begun_after="<|start|>assistant",
        token="<|channel|>",
        models="gpt-oss",
        source="OpenAI's harmony format, github.com/openai/harmony, docs/format.md",
    ),
    ThoughtFormat(
        opens=" to=self<|message|>",
        ends="<|eom|>",
        then="<|start|>assistant to=user<|message|>",
        is_channel=True,
        begun_after="<|start|>assistant",
        token="<|eom|>",
        models="Muse Glimmer",
        source="vLLM, vllm/reasoning/muse_glimmer_utils.py; TorchTitan's renderer of Muse Glimmer",
    ),
    ThoughtFormat(
        opens="<|open|>think<|sep|>",
        ends="<|close|>",
        then="think<|sep|><|open|>response<|sep|>",
        is_channel=True,
        models="Kimi K3",
        source="vLLM, vllm/tokenizers/encoding_k3.py; llama.cpp, models/templates/Kimi-K3.jinja",
    ),
)
"""The formats, most usual first."""
CLOSING_WORDS = {"begin": "end", "start": "end", "START": "END", "open": "close", "prefix": "suffix"}
"""The word that stands in a closing tag without a slash in place of the word of the opening tag."""
