"""The list of snapshots, which news reconciles with."""

from uuid import UUID

import pytest

from pin.rules.contract import SNAPSHOTS_PATH
from tests.selections.api import Api, refusal
from tests.serving import bearer


def listed(api: Api, **query: object) -> tuple[list[dict[str, object]], str | None]:
    response = api.client.get(
        SNAPSHOTS_PATH, params={name: str(value) for name, value in query.items()}, headers=api.news
    )
    assert response.status_code == 200, response.text
    body = response.json()
    return body["snapshots"], body["next"]


@pytest.mark.req("J29", "D15")
def test_pages_follow_each_other_in_the_order_of_ids_and_leave_tombstones_out(api: Api) -> None:
    made = sorted(api.snapshot() for _ in range(5))
    api.detach(made[1])
    assert api.detach(UUID(int=1 << 90)).status_code == 404  # leaves a tombstone

    seen, after, pages = [], None, 0
    while True:
        page, after = listed(api, limit=2, **({"after": after} if after else {}))
        seen += page
        pages += 1
        if after is None:
            break
    ours = [one for one in seen if UUID(str(one["snapshotId"])) in made]

    assert [str(one["snapshotId"]) for one in seen] == sorted(str(one["snapshotId"]) for one in seen)
    assert [str(one["snapshotId"]) for one in ours] == [str(one) for one in made]
    assert [one["status"] for one in ours] == ["Active", "Detached", "Active", "Active", "Active"]
    assert (ours[1]["detachReason"], ours[0]["detachedAt"]) == ("BlockReplaced", None)
    assert set(ours[0]) == {"snapshotId", "status", "createdAt", "detachedAt", "detachReason"}
    assert pages > 2
    assert str(UUID(int=1 << 90)) not in {one["snapshotId"] for one in seen}


@pytest.mark.req("D2", "G10")
@pytest.mark.case("A21")
def test_what_the_list_is_refused_for(api: Api) -> None:
    for query in ("limit=0", "limit=1001", "limit=-1", "limit=x", "limit=", "limit=٣", "after=7", "limit=1&limit=2"):
        assert refusal(api.client.get(f"{SNAPSHOTS_PATH}?{query}", headers=api.news)) == (400, "VALIDATION_ERROR")
    assert refusal(api.client.get(SNAPSHOTS_PATH)) == (401, "UNAUTHORIZED")
    other = bearer(api.keys.token(client="other"))
    assert refusal(api.client.get(f"{SNAPSHOTS_PATH}?limit=x", headers=other)) == (403, "FORBIDDEN")
