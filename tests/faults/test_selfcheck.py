"""The harness notices a product that is broken on purpose, each time by the invariant that was broken."""

import pytest

from tests.faults.orders import NEVER
from tests.faults.site import Site
from tests.faults.trial import Fault, attempt


@pytest.mark.req("G6", "G13", "J12", "J16", "J18")
@pytest.mark.parametrize(
    ("breakage", "path", "fault", "number", "named", "broken"),
    [
        ("no_guard", "set-blocks", Fault.KILLED, 1, "http reply POST snapshots", "I1 Active, not shown"),
        ("intent_apart", "set-blocks", Fault.KILLED, 2, "commit after", "I1 shown, and not Active"),
        ("intent_after", "set-blocks", Fault.KILLED, 2, "commit after", "I1 Active, not shown"),
        ("transaction_on_the_wire", "delete-post", Fault.KILLED, 1, "http sent", "I5"),
        ("unfenced_outcome", "batch", Fault.FROZEN, 1, "http reply POST detach 503", "fence: Done was left"),
        ("hand_over_of_its_own", "tick", Fault.KILLED, NEVER, "", "I4 a message without its attempt"),
    ],
)
def test_a_broken_product_is_noticed(
    site: Site, breakage: str, path: str, fault: Fault, number: int, named: str, broken: str
) -> None:
    site.lay(path)
    whole = attempt(site, path, number, fault, named=named)
    assert whole.violations == []
    found = attempt(site, path, number, fault, named=named, breakage=breakage).violations
    assert any(one.startswith(broken) for one in found), found
