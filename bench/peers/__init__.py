"""Other systems at the same work, each by a small program of ours; installed on demand, never part of the product."""
