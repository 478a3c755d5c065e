"""What the words of the standard mean, in NumPy.

Each file reads next to the chapter of the same name. The reference computes in
float64 unless asked otherwise; it is written to be read, and is itself judged
against the exact oracle.
"""

from attnspec.reference.attention import attention
from attnspec.reference.errors import ArgumentError
from attnspec.reference.masking import allowed_keys
from attnspec.reference.projection import projection
from attnspec.reference.scores import scores
from attnspec.reference.self_attention import self_attention
from attnspec.reference.softmax import softmax

__all__ = [
    "ArgumentError",
    "allowed_keys",
    "attention",
    "projection",
    "scores",
    "self_attention",
    "softmax",
]
