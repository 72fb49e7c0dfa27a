"""Addresses of readings and turns: what decides a result, as hashes. A changed input can't pick up a stale result."""

import hashlib
import json
import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingAddress:
    """Where the turn log keeps a reading. Equal inputs have equal addresses, under any ids."""

    document_hash: str
    """SHA-256 of the document's text in UTF-8, 64 hex digits."""
    question_hash: str
    """SHA-256 of the question's text in UTF-8, 64 hex digits."""
    sample: int
    """Which of the readings of this document and question, from 0."""
    fingerprint: str
    """Hash of everything else that decides the result, 64 hex digits."""

    def turn_seed(self, path: str, *, seed: int) -> int:
        """Seed of one turn's draws, 0 to 2^31 - 1: the same at every try, another for each turn, sample and agent."""
        key = [self.fingerprint, self.document_hash, self.question_hash, self.sample, path, seed]
        return int.from_bytes(hashlib.sha256(json.dumps(key).encode()).digest()[:4], "big") >> 1


def text_hash(text: str) -> str:
    """SHA-256 of a text in UTF-8, as 64 hex digits.

    Raises:
        UnicodeEncodeError: the text holds a lone surrogate.
    """
    return hashlib.sha256(text.encode()).hexdigest()


def token_hash(token_ids: Sequence[int]) -> str:
    """Short hash of a prompt, 16 hex digits. A replay compares it with the hash in the log."""
    if isinstance(token_ids, array) and token_ids.itemsize == 4:  # seven times as fast
        words = array(token_ids.typecode, token_ids)
        if sys.byteorder == "little":
            words.byteswap()
        return hashlib.sha256(words).hexdigest()[:16]
    return hashlib.sha256(struct.pack(f">{len(token_ids)}I", *token_ids)).hexdigest()[:16]


def fingerprint(parts: Mapping[str, Any]) -> str:
    """Hash of named JSON values, independent of their order, as 64 hex digits."""
    return hashlib.sha256(json.dumps(parts, sort_keys=True, ensure_ascii=True).encode()).hexdigest()


def permanent_number(seed: str, *parts: str) -> str:
    """SHA-256 of the seed and of the texts that identify a thing, such as its hashes; 64 hex digits."""
    return sha256("|".join([seed, *parts]).encode()).hexdigest()
