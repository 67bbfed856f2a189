"""The model that every loop trains: a small pre-norm transformer over characters.

It is a plain chain of parts (embedding, blocks, head), each a module from one tensor to one
tensor, so that every paradigm can cut it its own way. Nothing here knows of several processes.
"""

from __future__ import annotations

import argparse
import math
from typing import cast

import torch
import torch.nn.functional as F  # noqa: N812 - torch's own customary name
from torch import Tensor, nn

from tracekit_loops.text import VOCABULARY


class Embedding(nn.Module):
    """Characters and their places, as vectors."""

    def __init__(self, seq_len: int, hidden: int) -> None:
        super().__init__()
        self.character = nn.Embedding(VOCABULARY, hidden)
        self.place = nn.Embedding(seq_len, hidden)

    def forward(self, tokens: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return cast(Tensor, self.character(tokens) + self.place(places))


class Attention(nn.Module):
    """Causal self-attention over whole heads.

    The rows of `qkv` are grouped by head, not by query, key and value: a contiguous share of
    them is a number of whole heads, so tensor parallelism can split one matrix in place of three.
    """

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.head_width = hidden // heads
        self.qkv = nn.Linear(hidden, 3 * hidden, bias=False)
        self.out = nn.Linear(hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        batch, length, _ = x.shape
        # -1 heads: under tensor parallelism a rank sees only its own.
        heads = self.qkv(x).view(batch, length, -1, 3, self.head_width)
        query, key, value = heads.permute(3, 0, 2, 1, 4)
        mixed = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return cast(Tensor, self.out(mixed.transpose(1, 2).reshape(batch, length, -1)))


class Mlp(nn.Module):
    """The feed-forward half of a block."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.up = nn.Linear(hidden, 4 * hidden, bias=False)
        self.down = nn.Linear(4 * hidden, hidden, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.down(F.gelu(self.up(x))))


class Block(nn.Module):
    """One transformer layer, normalised before each half."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.attention_norm = nn.LayerNorm(hidden)
        self.attention = Attention(hidden, heads)
        self.mlp_norm = nn.LayerNorm(hidden)
        self.mlp = Mlp(hidden)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.attention_norm(x))
        return cast(Tensor, x + self.mlp(self.mlp_norm(x)))


class Head(nn.Module):
    """From vectors to a score for every next character."""

    def __init__(self, hidden: int) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(hidden)
        self.scores = nn.Linear(hidden, VOCABULARY, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        return cast(Tensor, self.scores(self.norm(x)))


class LanguageModel(nn.Module):
    """The whole model; `parts()` is the same model as a chain to cut."""

    def __init__(self, seq_len: int, layers: int, hidden: int, heads: int) -> None:
        super().__init__()
        self.embedding = Embedding(seq_len, hidden)
        self.blocks = nn.ModuleList(Block(hidden, heads) for _ in range(layers))
        self.head = Head(hidden)

    def parts(self) -> list[nn.Module]:
        """Embedding, blocks and head in the order in which they run."""
        return [self.embedding, *self.blocks, self.head]

    def forward(self, tokens: Tensor) -> Tensor:
        x = tokens
        for part in self.parts():
            x = part(x)
        return x


def build_model(args: argparse.Namespace) -> LanguageModel:
    """The model that the options describe, on the CPU, its weights a function of the seed.

    Every rank builds the whole model before it keeps its part, so that the weights do not
    depend on how the model is cut.
    """
    model = LanguageModel(args.seq_len, args.layers, args.hidden, args.heads)
    generator = torch.Generator().manual_seed(args.seed)
    for name, parameter in model.named_parameters():
        if parameter.dim() < 2:
            continue  # norms start as the identity
        deviation = 0.02
        if name.startswith("embedding."):
            # Large beside an AdamW step: from 0.02 the norms amplify the first steps so much
            # that the loss rises as often as it falls.
            deviation = 0.5
        elif name.endswith(("attention.out.weight", "mlp.down.weight")):
            # They write to the residual stream, two a block, whose variance they would swell.
            deviation = 0.02 / math.sqrt(2 * args.layers)
        nn.init.normal_(parameter, std=deviation, generator=generator)
    return model


def next_character_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean cross entropy, in nats a character."""
    return F.cross_entropy(scores.flatten(0, 1), targets.flatten())
