"""What snapshots show, as selections has it; kept in this process, for it never changes (INV-SEL-001, J22)."""

import threading
from collections import OrderedDict
from collections.abc import Iterable
from datetime import timedelta
from time import monotonic
from uuid import UUID

from pin.outgoing.selections import SelectionsClient
from pin.rules.contract import Snapshot, SnapshotContent

CONTENT_TIMEOUT = timedelta(seconds=2)
"""How long a reader waits for the contents that this process has not seen yet; it gets the post without them then."""


class Contents:
    """The contents of the snapshots used last, at most `capacity` of them. Safe between threads."""

    def __init__(self, capacity: int = 2048) -> None:
        self._capacity = capacity
        self._kept: OrderedDict[UUID, SnapshotContent] = OrderedDict()
        self._lock = threading.Lock()

    def remember(self, snapshots: Iterable[Snapshot]) -> None:
        """Keep these contents; the ones used longest ago make room."""
        with self._lock:
            for snapshot in snapshots:
                self._kept[snapshot.snapshot_id] = snapshot.content
                self._kept.move_to_end(snapshot.snapshot_id)
            while len(self._kept) > self._capacity:
                self._kept.popitem(last=False)

    def of(self, snapshot_ids: Iterable[UUID], client: SelectionsClient) -> dict[UUID, SnapshotContent]:
        """The contents of these snapshots, in any status; those that selections does not give in time are absent."""
        wanted = set(snapshot_ids)
        found = self.recall(wanted)
        if missing := wanted - found.keys():
            deadline = monotonic() + CONTENT_TIMEOUT.total_seconds()
            fetched = client.get_snapshots(missing, deadline=deadline)
            self.remember(fetched.values())
            found |= {snapshot_id: snapshot.content for snapshot_id, snapshot in fetched.items()}
        return found

    def recall(self, snapshot_ids: Iterable[UUID]) -> dict[UUID, SnapshotContent]:
        """The contents among these that this process has; asks nobody."""
        with self._lock:
            found = {snapshot_id: self._kept[snapshot_id] for snapshot_id in snapshot_ids if snapshot_id in self._kept}
            for snapshot_id in found:
                self._kept.move_to_end(snapshot_id)
        return found
