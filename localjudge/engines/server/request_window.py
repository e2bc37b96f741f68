"""A bound on the requests in flight to a server."""

from __future__ import annotations


class RequestWindow:
    """A bound on the requests in flight, which follows what the server answers.

    It doubles with each round of answers up to a threshold and grows by one a round above it. A server that is
    busy halves it; a request that is lost, by a time-out or with its connection, sets it to one, and the
    threshold to half of what it was (RFC 5681, sections 3.1 and 3.2). Requests that were in flight together
    count as one event. It does not grow while answers take longer than `patience_seconds`.

    Args:
        largest: the largest number of requests in flight.
        patience_seconds: if an answer takes longer than this, the server counts as fully loaded.
    """

    FIRST = 8

    def __init__(self, largest: int, patience_seconds: float) -> None:
        self._largest, self._patience = largest, patience_seconds
        self._size = float(min(self.FIRST, largest))
        self._threshold = float(largest)
        self._sent = self._counts_from = 0

    @property
    def size(self) -> int:
        """The number of requests that may be in flight, at least 1."""
        return int(self._size)

    def send(self) -> int:
        """Count a request that is sent; return its number."""
        self._sent += 1
        return self._sent

    def answered(self, seconds: float) -> None:
        """Count an answer, and the time that it took."""
        if seconds <= self._patience:
            self._size += 1.0 if self._size < self._threshold else 1.0 / self._size
            self._size = min(self._size, float(self._largest))

    def busy(self, number: int) -> None:
        """Count a request that the server was too busy for."""
        if number > self._counts_from:
            self._threshold = self._size = max(1.0, self._size / 2)
            self._counts_from = self._sent

    def lost(self, number: int) -> None:
        """Count a request that got no answer."""
        if number > self._counts_from:
            self._threshold, self._size = max(1.0, self._size / 2), 1.0
            self._counts_from = self._sent
