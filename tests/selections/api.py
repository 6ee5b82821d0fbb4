"""The selections API as tests speak it."""

from typing import Any
from uuid import UUID, uuid4

import httpx
from sqlalchemy import Engine, text

from pin.rules.contract import DETACH_PATH, SNAPSHOT_PATH, SNAPSHOTS_PATH
from tests.serving import Keys, bearer


class Api:
    """One user (owner) of one tenant, and the news service, against one server."""

    def __init__(self, client: httpx.Client, keys: Keys) -> None:
        self.client, self.keys = client, keys
        self.owner, self.tenant = uuid4(), uuid4()
        self.news = bearer(keys.token(client="news"))

    def user(self, user_id: UUID | None = None, tenant_id: UUID | None = None) -> dict[str, str]:
        """The header of a user; of the owner, unless told otherwise."""
        return bearer(self.keys.token(user_id=user_id or self.owner, tenant_id=tenant_id or self.tenant))

    def selection(self, title: str = "Best of", items: tuple[str, ...] = ("one", "two")) -> UUID:
        """A new selection's id."""
        response = self.client.post(
            "/api/v1/selections", json={"title": title, "items": list(items)}, headers=self.user()
        )
        assert response.status_code == 201, response.text
        return UUID(response.json()["id"])

    def create(self, snapshot_id: UUID, selection_id: UUID, **changed: Any) -> httpx.Response:
        """Ask for a snapshot."""
        body = {
            "snapshotId": str(snapshot_id),
            "selectionId": str(selection_id),
            "tenantId": str(self.tenant),
            "requestedByUserId": str(self.owner),
        }
        return self.client.post(SNAPSHOTS_PATH, json=body | changed, headers=self.news)

    def snapshot(self, selection_id: UUID | None = None) -> UUID:
        """A new Active snapshot's id."""
        snapshot_id = uuid4()
        response = self.create(snapshot_id, selection_id or self.selection())
        assert response.status_code == 201, response.text
        return snapshot_id

    def get(self, snapshot_id: object) -> httpx.Response:
        """Get a snapshot."""
        return self.client.get(SNAPSHOT_PATH.format(id=snapshot_id), headers=self.news)

    def detach(
        self,
        snapshot_id: object,
        reason: str = "BlockReplaced",
        user: object | None = None,
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> httpx.Response:
        """Detach a snapshot, as news unless other headers are given."""
        body = {"reason": reason, "requestedByUserId": str(user or self.owner)} | more
        given = self.news if headers is None else headers
        return self.client.post(DETACH_PATH.format(id=snapshot_id), json=body, headers=given)


def row(engine: Engine, snapshot_id: UUID) -> dict[str, Any]:
    """The snapshot's row as it stands."""
    with engine.connect() as connection:
        found = connection.execute(text("SELECT * FROM selections.snapshot WHERE id = :id"), {"id": snapshot_id})
        return dict(found.mappings().one())


def events(engine: Engine, snapshot_id: UUID) -> list[dict[str, Any]]:
    """The SelectionSnapshotDetachedEvents of a snapshot."""
    statement = text("SELECT * FROM selections.snapshot_detached_event WHERE snapshot_id = :id")
    with engine.connect() as connection:
        return [dict(found) for found in connection.execute(statement, {"id": snapshot_id}).mappings()]


def refusal(response: httpx.Response) -> tuple[int, str]:
    """(status, code) of an answer that must be a whole problem document."""
    assert response.headers["content-type"] == "application/problem+json", response.text
    body = response.json()
    assert body["status"] == response.status_code
    assert body["instance"]
    assert body["type"] == f"urn:pin:problem:{body['code'].lower().replace('_', '-')}"
    return response.status_code, body["code"]
