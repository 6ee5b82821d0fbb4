"""The age by which the backoff window is judged."""

from datetime import timedelta

import pytest
from sqlalchemy import Engine

from db.outbox import runs
from db.outbox.runs import RunResult
from db.views.backlog import read_backlog
from pin.clock import new_id, utc_now
from tests.job.scene import stage


@pytest.mark.req("G23", "G19")
def test_the_windows_age_leaves_out_the_time_in_which_runs_were_halted_or_paused(engine: Engine) -> None:
    now = utc_now()
    stage(engine, [new_id()], now=now - timedelta(hours=4))
    ticks = [
        (5.0, RunResult.HALTED),  # stands until the next one, of which the entry has seen half an hour
        (3.5, RunResult.COMPLETED),
        (3.0, RunResult.PAUSED),
        (2.9, RunResult.SKIPPED),  # another runner's; says nothing of the pause
        (2.5, RunResult.HELD_BACK),
        (1.0, RunResult.HALTED),
    ]
    with engine.begin() as connection:
        for hours, result in ticks:
            run_id, moment = new_id(), now - timedelta(hours=hours)
            runs.start(connection, run_id=run_id, runner="r", now=moment)
            runs.end(connection, run_id=run_id, result=result, batches=0, claimed=0, now=moment)
        stood = read_backlog(connection, now)
        assert (stood.oldest_age, stood.window_age) == (4 * 3600, 2 * 3600)
        runs.start(connection, run_id=new_id(), runner="r", now=now)  # calls are made again
        later = read_backlog(connection, now + timedelta(hours=1))
    assert (later.oldest_age, later.window_age) == (5 * 3600, 3 * 3600)
