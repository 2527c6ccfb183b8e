"""Byte pair encoding: text to numbers and back (Sennrich and others, arXiv 1508.07909; on bytes, as in GPT-2)."""

import re
from collections import Counter
from itertools import pairwise

import torch
from torch import Tensor

WORDS = re.compile(r" ?\w+| ?[^\w\s]+|\s+")  # no token reaches across two of these


class Tokenizer:
    """Tokens 0 to 255 are the bytes; token 256 + i stands for the pair `merges[i]` of earlier tokens."""

    def __init__(self, merges: list[tuple[int, int]]):
        self.merges = [tuple(pair) for pair in merges]
        self.rank = {pair: 256 + i for i, pair in enumerate(self.merges)}
        self.bytes = [bytes([i]) for i in range(256)]
        for left, right in self.merges:
            self.bytes.append(self.bytes[left] + self.bytes[right])
        self._known: dict[str, list[int]] = {}

    def __len__(self) -> int:
        return len(self.bytes)

    @classmethod
    def train(cls, text: str, vocabulary: int) -> "Tokenizer":
        """Merge the most frequent pair (of equals, the smaller one) until there are `vocabulary` tokens."""
        words = [(list(word.encode()), count) for word, count in Counter(WORDS.findall(text)).items()]
        pairs, found, merges = Counter(), {}, []
        for i, (tokens, count) in enumerate(words):
            for pair in pairwise(tokens):
                pairs[pair] += count
                found.setdefault(pair, set()).add(i)
        while len(merges) < vocabulary - 256 and pairs:
            most = max(pairs.values())
            best = min(pair for pair, count in pairs.items() if count == most)
            merges.append(best)
            for i in found[best]:  # only these words change
                tokens, count = words[i]
                for pair in pairwise(tokens):
                    pairs[pair] -= count
                tokens[:] = merge(tokens, best, 255 + len(merges))
                for pair in pairwise(tokens):
                    pairs[pair] += count
                    found.setdefault(pair, set()).add(i)
            del pairs[best]
        return cls(merges)

    def encode(self, text: str) -> Tensor:
        """int64 [tokens]"""
        return torch.tensor([token for word in WORDS.findall(text) for token in self._word(word)], dtype=torch.int64)

    def _word(self, word: str) -> list[int]:
        if word not in self._known:
            tokens = list(word.encode())
            while pair := min((p for p in pairwise(tokens) if p in self.rank), key=self.rank.get, default=None):
                tokens = merge(tokens, pair, self.rank[pair])
            self._known[word] = tokens
        return self._known[word]

    def decode(self, tokens: Tensor | list[int]) -> str:
        """The text. A token may end within a character: what is no UTF-8 becomes �."""
        return b"".join(self.bytes[token] for token in tokens).decode(errors="replace")


def merge(tokens: list[int], pair: tuple[int, int], new: int) -> list[int]:
    """The tokens with `new` in place of each `pair`, from the left."""
    merged = []
    for token in tokens:
        if merged and (merged[-1], token) == pair and merged[-1] != new:
            merged[-1] = new
        else:
            merged.append(token)
    return merged
