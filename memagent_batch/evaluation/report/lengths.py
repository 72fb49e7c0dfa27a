"""Lengths of documents as the report orders and writes them."""

import pyarrow as pa

KIBI = 1024


def with_lengths(scores: pa.Table) -> pa.Table:
    """Gives readings a length where the suite asked for none: the power of two at or above the document's own.

    A reading that failed before its document was measured takes the length that another variant measured. It stays
    without one where none did.

    Args:
        scores: A table of `SCORES`, all variants together.
    """
    documents, measured = scores["document_id"].to_pylist(), scores["num_document_tokens"].to_pylist()
    known = {name: tokens for name, tokens in zip(documents, measured, strict=True) if tokens}
    lengths = [
        _power_of_two(known.get(name)) if asked is None else asked
        for name, asked in zip(documents, scores["length_tokens"].to_pylist(), strict=True)
    ]
    place = scores.schema.get_field_index("length_tokens")
    return scores.set_column(place, scores.schema.field(place), pa.array(lengths, pa.int64()))


def length_label(tokens: int | None) -> str:
    """A length as it stands on an axis: 1K for 1,024 and for 1,000, 1M for 1,048,576."""
    if tokens is None:
        return "unknown"
    for base in (KIBI, 1000):
        if tokens >= base**2 and tokens % base**2 == 0:
            return f"{tokens // base**2}M"
        if tokens >= base and tokens % base == 0:
            return f"{tokens // base}K"
    return magnitude(tokens)


def magnitude(number: float) -> str:
    """A number to three digits, with K or M."""
    for size, letter in ((1_000_000_000, "G"), (1_000_000, "M"), (1_000, "K")):
        if number >= 0.9995 * size:
            return f"{number / size:.3g}{letter}"
    return f"{number:.3g}"


def _power_of_two(tokens: int | None) -> int | None:
    return None if tokens is None else 1 << (tokens - 1).bit_length()
