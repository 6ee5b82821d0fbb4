"""The product's own packages are found first, whatever lies on the path before them (A34).

`actors`, `db`, `web` and `scheduler` lie beside this package under names that others use as well: a file `db.py` in a
folder of PYTHONPATH, or in the working folder of `python -m`, must not be taken for ours.
"""

import sys
from importlib.machinery import PathFinder
from pathlib import Path

_HOME = str(Path(__file__).resolve().parents[1])
_BESIDE = ("actors", "db", "web", "scheduler")


def _others_come_first() -> bool:
    for name in _BESIDE:
        found = PathFinder.find_spec(name)
        if found is None or found.origin is None or not Path(found.origin).resolve().is_relative_to(_HOME):
            return True
    return False


if _others_come_first():
    sys.path.insert(0, _HOME)
