"""Permanent random numbers: what is drawn by its smallest number is drawn the same by anyone, in any order, anywhere.

A thing has one number for each seed, a hash of the seed and of what the thing is. A sample is the smallest numbers, so
that a larger sample holds the smaller one, and tomorrow's sample most of today's things.
"""

from hashlib import sha256


def permanent_number(seed: str, *parts: str) -> str:
    """SHA-256 of the seed and of the texts that identify a thing, such as its hashes; 64 hex digits."""
    return sha256("|".join([seed, *parts]).encode()).hexdigest()
