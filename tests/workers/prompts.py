"""Mixed prompts, made with a seed: questions, repetitive text, code, other scripts, long and short."""

import random

from kernels.vocabulary import Vocabulary
from workers.job import Job, Sampling

_SUBJECTS = (
    "the tides of the Bay of Fundy",
    "how a heat pump warms a house",
    "why the sky is dark at night",
    "the treaty that ended the Thirty Years' War",
    "binary search in a sorted list",
    "the life of a honey bee in winter",
    "what an index does in a database",
    "der Bau des Gotthardtunnels",
    "la cuisine de Lyon",
    "東京の鉄道",
    "the difference between weather and climate",
    "emoji 🙂🚀 and what they mean",
)
_FORMS = (
    "Tell me about {}.",
    "Write one short sentence about {}.",
    "Explain {} to a child, then to an expert.",
    "List three facts about {}:\n1.",
    "Translate into French: I read a book about {} yesterday.",
    "def describe(subject: str) -> str:\n    # {}\n    return",
    "Repeat this line five times: {}",
)
_SHARED = (
    "You answer for a small library in a harbour town. Be brief and friendly, say where a book "
    "stands, and never invent a title. The library opens at nine and closes at six; on Sundays it "
    "is closed. Visitors may borrow five books for three weeks, and may renew once by telephone. "
)


def mixed_jobs(vocabulary: Vocabulary, count: int, tokens: int, seed: int = 7) -> list[Job]:
    """`count` jobs of `tokens` tokens: every second one greedy, the others drawn in many ways."""
    chance = random.Random(seed)
    jobs = []
    for i in range(count):
        text = chance.choice(_FORMS).format(chance.choice(_SUBJECTS))
        if i % 4 == 1:
            text = _SHARED + text
        if i % 6 == 2:  # long: several prompt chunks
            text = (
                " ".join(_FORMS[j % 7].format(chance.choice(_SUBJECTS)) for j in range(24)) + text
            )
        if i % 6 == 3:  # repeats itself: drafts are right
            text = "one two three four five six seven eight nine ten " * 4 + text
        ids = vocabulary.encode_pieces(
            [
                ("<|im_start|>user\n", True),
                (text, False),
                ("<|im_end|>\n<|im_start|>assistant\n", True),
            ]
        )
        jobs.append(
            Job(
                request_id=f"r{i}",
                attempt=1,
                prompt_ids=ids,
                max_tokens=tokens,
                sampling=_sampling(i, chance),
            )
        )
    return jobs


def _sampling(i: int, chance: random.Random) -> Sampling:
    greedy = i % 2 == 0
    return Sampling(
        temperature=0.0 if greedy else chance.choice([0.3, 0.8, 1.0, 1.3]),
        top_p=1.0 if greedy else chance.choice([1.0, 0.95, 0.5]),
        top_k=0 if greedy else chance.choice([0, 0, 40]),
        min_p=0.0 if greedy else chance.choice([0.0, 0.0, 0.05]),
        presence_penalty=chance.choice([0.0, 0.0, 0.0, 0.5]),
        repetition_penalty=chance.choice([1.0, 1.0, 1.0, 1.1]),
        seed=chance.getrandbits(64),
        logprobs=True,
        top_logprobs=2,
        ignore_eos=chance.random() < 0.5,
        min_tokens=chance.choice([0, 4]),
    )
