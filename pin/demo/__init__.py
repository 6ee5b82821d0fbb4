"""`pin demo`: the main job shown end to end on real processes, then checked by SQL and by HTTP."""
