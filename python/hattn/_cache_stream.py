"""The stream of a cache on a device, and calls of the cache with arrays that live there."""

from __future__ import annotations

from typing import Any, Optional

from hattn import _devices, _hattn


class CacheStream:
    """Where a cache on a device works: a stream that it was given, or the library's own queue, of CUDA the default stream."""

    def __init__(self, place: _devices.Place, given: Any) -> None:
        self.place, self._given, self.handle = place, given, _devices.stream_handle(given)
        if given is not None and not self.on_device:
            raise ValueError("stream: is given, but the cache is on the host")

    @property
    def on_device(self) -> bool:
        return self.place[0] != _hattn.Device.cpu

    def holds(self, name: str, array: Any) -> bool:
        """Whether an array lives where the cache does, else it is on the host. Raises ValueError for another device."""
        where = _devices.home(name, array)
        if where is not None and where != self.place:
            places = _devices.place_text(where), _devices.place_text(self.place)
            raise ValueError(f"{name}: the {type(array).__name__} lives on {places[0]}, but the cache is on {places[1]}")
        return where is not None

    def rows(self, name: str, array: Any) -> Any:
        """An array as an append takes it."""
        return _devices.InStream(array, self.handle) if self.holds(name, array) else array

    def keep(self, *arrays: Any) -> bool:
        """Tells libraries that the stream reads their arrays. Whether all that are on the device were told."""
        told = True
        for array in arrays:
            if self.holds("k", array):
                streams = None
                if self.place[0] == _hattn.Device.cuda:
                    streams = _devices.Streams.of(array, 0 if self._given is None else self._given)
                told = streams is not None and streams.keep(array) and told
        return told

    def chosen(self, asked: Any) -> Any:
        """The stream of a call: the cache's. Raises ValueError if another one is asked for."""
        if asked is None:
            return self._given
        handle = _devices.stream_handle(asked)
        if self._normal(handle) != self._normal(self.handle):
            own = "the library's own" if self.handle is None else self.handle
            raise ValueError(f"stream: is {handle}, but that of the cache, which KVCache() is given, is {own}")
        return asked

    def _normal(self, handle: Optional[int]) -> Optional[int]:
        is_default = self.place[0] == _hattn.Device.cuda and handle in (None, _devices.DEFAULT_STREAM)
        return 0 if is_default else handle


def attend(
    cache: _hattn.KvCache, q: Any, out: Any, value_dim: int, problem: _hattn.Problem, return_lse: bool, given_stream: Any
) -> Any:
    """KVCache.attend() of arrays on the cache's device, in its stream."""
    _devices.check_together("q", q, out=out, bias=problem.bias, mask=problem.mask)

    def workspace_bytes(queries: Any, taken: Any) -> int:
        return cache.device_workspace(queries, taken, problem)

    def execute(queries: Any, to: Any) -> Any:
        return cache.attend(queries, to, problem, return_lse)

    return _devices.compute(q, out, value_dim, problem, return_lse, given_stream, workspace_bytes, execute, ())
