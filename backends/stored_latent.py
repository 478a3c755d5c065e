"""The inverse of projecting: keys and values are parts of latent vectors, which weights pick."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from attnspec.backends.backend import Backend
from attnspec.backends.errors import Unsupported
from attnspec.dtypes import SHORT
from attnspec.reference.budget.arithmetic import PLAIN, PROFILES

#: Each part begins at a multiple of the largest block of products, so that no block holds parts of two heads.
_BLOCK = 16
#: The rotary depth of all heads together, as in DeepSeek-V3.
_ROTARY = 64
#: The most numbers of the two weights, and the most products of a projection.
_MOST_NUMBERS, _MOST_PRODUCTS = 2**26, 2**36


@dataclass(frozen=True)
class Latent:
    """Where a latent vector and a rotary part hold the features of the keys and the values of each head.

    The last features of the keys lie in the rotary part, if the heads are few. A query is 0 at those of
    other heads.
    """

    backend: Backend
    heads: int
    key_heads: int
    depth: int
    value_depth: int
    rotary: int  # of each key head

    @classmethod
    def of(cls, backend: Backend, given: dict[str, Any]) -> "Latent":
        """Read the sizes of a call, and decline it where weights of 0 and 1 would not be enough."""
        (*batch, heads, queries, depth), key = given["query"].shape, given["key"].shape
        key_heads, keys = key[-3:-1]
        few = min(depth // 2, _ROTARY // key_heads) // _BLOCK * _BLOCK
        found = cls(
            backend,
            heads,
            key_heads,
            depth,
            given["value"].shape[-1],
            0 if backend.constraints.depths else few,
        )
        numbers = heads * found.width * (depth + found.value_depth)
        most = max(keys, queries) * int(np.prod(batch)) * numbers
        if numbers > _MOST_NUMBERS or most > _MOST_PRODUCTS:
            raise Unsupported("the projections of its heads would be too large")
        dtype = backend.to_numpy(given["query"][..., :0]).dtype.name
        profile = PROFILES[backend.profile].get(dtype, PLAIN) if backend.profile else PLAIN
        if profile.inputs or profile.left_out or profile.flushed:
            raise Unsupported("a projection of its results may be rounded in its profile")
        if "d_output" in given and heads > key_heads and dtype in SHORT:
            raise Unsupported("the gradients of heads that share a key may be stored before they are added")
        return found

    @property
    def parts(self) -> tuple[int, int]:
        """The depths of the keys and of the values of one head in a latent vector."""
        own, values = self.depth - self.rotary, self.value_depth
        return own + -own % _BLOCK, values + -values % _BLOCK

    @property
    def width(self) -> int:
        """The depth of a latent vector."""
        return self.key_heads * sum(self.parts)

    def store(self, given: dict[str, Any], taken: frozenset[str]) -> dict[str, Any]:
        """Return the arrays of latent attention in the place of keys and values."""
        xp, call, own = self.backend.xp, dict(given), self.depth - self.rotary
        query, key, value = (call.pop(name) for name in ("query", "key", "value"))
        latent = xp.concat(
            [self._wider(key[..., :own], self.parts[0]), self._wider(value, self.parts[1])], axis=-1
        )
        call |= {"query": query[..., :own], "latent": self._join(latent)}
        if self.rotary:
            places = self._like(query, self._key_heads()[:, None, :, None])
            apart = query[..., None, own:] * places  # (*B, Hq, L, Hkv, R)
            call["query_rotary"] = xp.reshape(apart, (*query.shape[:-1], -1))
            call["key_rotary"] = self._join(key[..., own:])
        else:  # it is 0 in each key
            call["query_rotary"] = self._like(query, np.ones((*query.shape[:-1], _BLOCK)))
            call["key_rotary"] = self._like(query, np.zeros((*key.shape[:-3], key.shape[-2], _BLOCK)))
        call["key_weight"] = self._like(query, self._weight(0, own))
        call["value_weight"] = self._like(query, self._weight(self.parts[0], self.value_depth))
        if own + call["query_rotary"].shape[-1] != self.depth and call.get("scale") is None:
            if "scale" not in taken or "SCORE-2" in self.backend.dialect:
                raise Unsupported("its function has the default scale of another depth")
            call["scale"] = 1 / float(np.sqrt(self.depth))
        return call

    def restore(self, results: dict[str, Any]) -> dict[str, Any]:
        """Return the gradients of queries, keys and values, and those of the other arrays of attention."""
        if "d_latent" not in results:
            return results
        xp, results, own = self.backend.xp, dict(results), self.depth - self.rotary
        latent, rotary = self._apart(results.pop("d_latent")), results.pop("d_key_rotary")
        of_query = results.pop("d_query_rotary")
        key, query = latent[..., :own], results["d_query"]
        if self.rotary:
            key = xp.concat([key, self._apart(rotary)], axis=-1)
            of_query = xp.reshape(of_query, (*of_query.shape[:-1], self.key_heads, -1))
            places = self._like(query, self._key_heads()[:, None, :, None])
            query = xp.concat([query, xp.sum(of_query * places, axis=-2)], axis=-1)
        first = self.parts[0]
        value = latent[..., first : first + self.value_depth]
        return results | {"d_query": query, "d_key": key, "d_value": value}

    def _key_heads(self) -> Any:
        """Say which key head each query head has, ``(Hq, Hkv)``."""
        return np.arange(self.heads)[:, None] // (self.heads // self.key_heads) == np.arange(self.key_heads)

    def _weight(self, first: int, depth: int) -> Any:
        """Make the weight that takes features of each head out of a latent vector, ``(Hq, Dc, depth)``."""
        features = np.arange(sum(self.parts))[:, None] == first + np.arange(depth)
        heads = self._key_heads()[:, :, None, None] & features
        return heads.reshape(self.heads, self.width, depth)

    def _join(self, array: Any) -> Any:
        """Join the features of all key heads, ``(*B, S, Hkv * depth)``."""
        array = self.backend.xp.moveaxis(array, -3, -2)
        return self.backend.xp.reshape(array, (*array.shape[:-2], -1))

    def _apart(self, array: Any) -> Any:
        """Give each key head its features again, ``(*B, Hkv, S, depth)``."""
        array = self.backend.xp.reshape(array, (*array.shape[:-1], self.key_heads, -1))
        return self.backend.xp.moveaxis(array, -2, -3)

    def _wider(self, array: Any, depth: int) -> Any:
        more = np.zeros((*array.shape[:-1], depth - array.shape[-1]))
        return self.backend.xp.concat([array, self._like(array, more)], axis=-1)

    def _like(self, array: Any, numbers: Any) -> Any:
        """Convert numbers to the library and the dtype of an array."""
        dtype = self.backend.to_numpy(array[(slice(0, 0),) * len(array.shape)]).dtype
        return self.backend.to_library(numbers.astype(dtype))
