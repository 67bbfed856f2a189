"""Text to learn from: a small invented language, made from a seed, cut into batches by step.

A batch depends on the seed and the step alone. Every rank can therefore make the whole global
batch by itself and take its share of it, and all paradigms train on the same characters.
"""

from __future__ import annotations

import random
import string
from itertools import accumulate

import torch
from torch import Tensor

ALPHABET = string.ascii_lowercase + " .,?!\n"
VOCABULARY = len(ALPHABET)

_VOWELS = "aeiou"
_CONSONANTS = "".join(letter for letter in string.ascii_lowercase if letter not in _VOWELS)
_WORDS = 64
_SUCCESSORS = 4
_CORPUS_LENGTH = 1 << 16


def write_corpus(seed: int, length: int = _CORPUS_LENGTH) -> str:
    """Sentences of the seed's own language.

    There is something to learn at every range: consonants alternate with vowels (a few steps of
    training), words come from a short dictionary with common and rare ones, and each word is
    followed by one of only a few others.
    """
    rng = random.Random(f"corpus {seed}")  # noqa: S311 - reproducible, not secret
    syllables = [rng.choice(_CONSONANTS) + rng.choice(_VOWELS) for _ in range(24)]
    words = ["".join(rng.choices(syllables, k=rng.randint(1, 3))) for _ in range(_WORDS)]
    # Zipf's law: the n-th word is wanted with weight 1/n.
    popularity = list(accumulate(1.0 / place for place in range(1, _WORDS + 1)))
    followers = [
        rng.choices(range(_WORDS), cum_weights=popularity, k=_SUCCESSORS) for _ in range(_WORDS)
    ]
    pieces: list[str] = []
    written = 0
    word = 0
    while written < length:
        sentence = []
        for _ in range(rng.randint(4, 9)):
            word = rng.choice(followers[word])
            sentence.append(words[word] + ("," if rng.random() < 0.1 else ""))
        pieces.append(" ".join(sentence) + rng.choice(".?!") + rng.choice("  \n"))
        written += len(pieces[-1])
    return "".join(pieces)[:length]


class Text:
    """One seed's corpus as character numbers, from which each step draws its batch."""

    def __init__(self, seed: int) -> None:
        self._seed = seed
        number_of = {letter: number for number, letter in enumerate(ALPHABET)}
        self._characters = torch.tensor([number_of[letter] for letter in write_corpus(seed)])

    def batch(self, step: int, batch_size: int, seq_len: int) -> tuple[Tensor, Tensor]:
        """The global batch of a step: inputs and, one character further on, their targets."""
        rng = random.Random(f"batch {self._seed} {step}")  # noqa: S311 - reproducible, not secret
        last_start = len(self._characters) - seq_len - 1
        starts = torch.tensor([rng.randint(0, last_start) for _ in range(batch_size)])
        rows = self._characters[starts[:, None] + torch.arange(seq_len + 1)]
        return rows[:, :-1].contiguous(), rows[:, 1:].contiguous()
