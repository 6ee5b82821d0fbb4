"""Use cases of news: posts that show snapshots of selections (G12–G15, J18–J22). One module a verb."""
