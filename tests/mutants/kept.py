"""The list that is kept: which requirement is broken, where, how, and which of its marked tests must notice."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Mutant:
    """`old` occurs once in `file`; with `new` in its place one of `tests` must fail. All of them bear `mark`.

    A test is named by its file below tests/ and its name without `test_`.
    """

    mark: str
    file: str
    old: str
    new: str
    tests: tuple[str, ...]

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.mark} {self.file}: {' '.join(self.old.split())[:70]}"

    @property
    def nodes(self) -> list[str]:
        """The node ids of its tests."""
        return [f"tests/{file}::test_{name}" for file, _, name in (test.partition("::") for test in self.tests)]


def _broken(mark: str, file: str, old: str, new: str, *tests: str) -> Mutant:
    return Mutant(mark, file, old, new, tests)


_CLAIM, _OUTCOME, _RULES = "db/outbox/claim.py", "db/outbox/outcome.py", "pin/rules/outbox.py"
_TICK, _STAGES, _DELIVERY = "pin/job/tick.py", "pin/job/stages.py", "pin/job/delivery.py"
_OBSERVE, _RECORD, _REPLIES = "pin/job/observe.py", "pin/job/record.py", "pin/rules/replies.py"
_SNAPSHOTS, _STORE = "pin/selections/snapshots.py", "db/selections.py"
_PROOFS = "cases/test_proofs.py"
_DOCUMENT, _JOB_CLAIM, _JOB_OUTCOME = "job/test_document.py", "job/test_claim.py", "job/test_outcome.py"

_JOB = (
    _broken(
        "J1",
        "scheduler.py",
        "seconds=job.options.polling_interval.total_seconds(),",
        "seconds=2 * job.options.polling_interval.total_seconds(),",
        "job/test_schedule.py::the_scheduler_ticks_at_once_and_then_every_polling_interval",
    ),
    _broken(
        "J2",
        "db/runner/lock.py",
        "return RunnerLock(connection, row.pid) if row.held else None",
        "return RunnerLock(connection, row.pid)",
        "job/test_lock.py::the_lock_has_one_holder_and_the_other_is_told_at_once",
    ),
    _broken(
        "J3",
        "db/runner/lock.py",
        'limits = ["idle_session_timeout", ',
        "limits = [",
        "job/test_lock.py::a_holder_that_hangs_loses_the_lock_at_its_ttl_and_learns_it",
    ),
    _broken(
        "J5",
        _TICK,
        "if taken.open and current.exhausted and not current.lost:",
        "if taken.open:",
        "job/test_run.py::a_run_repeats_full_batches_until_nothing_is_due",
    ),
    _broken(
        "J6",
        _TICK,
        "return self.stopping.is_set() or time.monotonic() >= self.deadline",
        "return time.monotonic() >= self.deadline",
        f"{_DOCUMENT}::a_stop_between_entries_tears_no_claim_and_keeps_what_is_committed",
    ),
    _broken(
        "J7",
        "pin/config/sections.py",
        "max_attempts: Annotated[int, Field(gt=0, le=1000)] = 12",
        "max_attempts: Annotated[int, Field(gt=0, le=1000)] = 13",
        "unit/test_settings.py::every_option_has_the_documents_default",
    ),
    _broken(
        "J9",
        _RULES,
        "late = entry.status == Status.DONE",
        "late = False",
        "unit/test_decide.py::done_is_terminal",
    ),
    _broken(
        "J10",
        _CLAIM,
        "AND next_attempt_at <= :due AND NOT outcome_due AND attempts <= :max_attempts\n        ORDER BY",
        "AND NOT outcome_due AND attempts <= :max_attempts\n        ORDER BY",
        f"{_DOCUMENT}::an_empty_run_succeeds_and_calls_nobody",
    ),
    _broken(
        "J11",
        _CLAIM,
        "attempts = attempts + 1,",
        "attempts = attempts,",
        f"{_JOB_CLAIM}::the_longest_due_are_claimed_first_and_marked_before_any_call",
    ),
    _broken(
        "J11",
        _RULES,
        "at = min(max(attempts, 1), len(self.schedule)) - 1",
        "at = min(max(attempts, 1), len(self.schedule) - 1)",
        f"{_PROOFS}::the_delay_of_an_attempt_is_its_place_in_the_schedule",
    ),
    _broken(
        "J13",
        _RECORD,
        "self._left[0:1] = [[one] for one in batch]",
        "del self._left[0]",
        f"{_JOB_OUTCOME}::when_one_row_cannot_be_recorded_its_neighbours_are",
    ),
    _broken(
        "J14",
        _REPLIES,
        'return Reply(verdict, f"HTTP {status}", http_status=status, retry_after=wait, duration=duration)',
        "return Reply(verdict, body.decode(errors='replace')[:50], http_status=status, retry_after=wait)",
        "client/test_replies_on_the_wire.py::no_text_of_a_reply_reaches_the_error",
    ),
    _broken(
        "J15",
        _RULES,
        "if permanent or entry.attempts >= policy.max_attempts:",
        "if permanent:",
        "unit/test_decide.py::the_lifecycle_table",
    ),
    _broken(
        "J16",
        _RULES,
        "if entry.status != Status.PENDING or entry.version != version:",
        "if entry.status != Status.PENDING:",
        "unit/test_decide.py::a_failure_of_an_older_version_changes_nothing",
    ),
    _broken(
        "J17",
        _RECORD,
        "if len(batch) == 1:\n",
        "if len(batch) == 1:\n                    raise\n",
        f"{_JOB_OUTCOME}::when_one_row_cannot_be_recorded_its_neighbours_are",
    ),
    _broken(
        "J18",
        "pin/news/writing.py",
        "gone = snapshots_of(shown, but_not=guarded.blocks)",
        "gone: list[UUID] = []",
        "news/test_writing.py::set_blocks_detaches_what_it_replaces_or_drops_and_keeps_the_rest",
    ),
    _broken(
        "J19",
        _RULES,
        "if entry.attempts == 0:\n        return Outcome(OutcomeKind.RETRIED, error)\n",
        "",
        f"{_JOB_OUTCOME}::a_first_attempt_that_fails_spends_no_budget_and_never_quarantines",
    ),
    _broken(
        "J21",
        "pin/news/status.py",
        "Reason.POST_DELETED",
        "Reason.BLOCK_REPLACED",
        "news/test_writing.py::deleting_a_post_archives_it_and_detaches_all_it_shows",
    ),
    _broken(
        "J21",
        "pin/news/status.py",
        "if post.status not in {PostStatus.PUBLISHED, PostStatus.UNPUBLISHED}:",
        "if False:",
        "news/test_writing.py::deleting_a_draft_is_refused_and_changes_nothing",
    ),
    _broken(
        "J22",
        _STORE,
        "FROM selections.snapshot WHERE id = :id AND status <> 'Tombstone'",
        "FROM selections.snapshot WHERE id = :id AND status = 'Active'",
        "news/test_reading.py::old_versions_render_after_detach_and_after_archiving",
    ),
    _broken(
        "J23",
        _OUTCOME,
        "ON id = entry_id AND version = entry_version\n    WHERE status = 'Pending'",
        "ON id = entry_id\n    WHERE status = 'Pending'",
        "job/test_run.py::a_lost_outcome_is_followed_by_a_call_of_its_own_after_the_backoff",
        "cases/test_shutdown.py::ended_without_grace_the_batch_is_abandoned_whole_and_taken_up_under_the_same_attempt",
    ),
    _broken(
        "J24",
        _STAGES,
        "                reason=str(entry.reason),\n",
        "",
        f"{_PROOFS}::a_quarantine_without_a_call_is_logged_with_its_reason",
    ),
    _broken(
        "J24",
        _OBSERVE,
        'return line("info", "entry retry", snapshotId=snapshot, attempts=attempts, errorCode=error)',
        'return line("info", "entry retry", snapshotId=snapshot, attempts=attempts)',
        "telemetry/test_events.py::the_six_events_have_their_fields",
    ),
    _broken(
        "J25",
        _OBSERVE,
        "    metrics.LAG.observe(max(0.0, (now - decided.entry.created_at).total_seconds()))\n",
        "",
        f"{_PROOFS}::a_detach_within_the_request_is_observed_with_its_lag",
    ),
    _broken(
        "J25",
        "db/views/backlog.py",
        "min(created_at) FILTER (WHERE status = 'Pending') AS oldest",
        "max(created_at) FILTER (WHERE status = 'Pending') AS oldest",
        f"{_PROOFS}::the_oldest_age_is_that_of_the_oldest",
    ),
    _broken(
        "J30.1",
        _OUTCOME,
        'OutcomeKind.SUCCEEDED: "Done"',
        'OutcomeKind.SUCCEEDED: "Pending"',
        f"{_DOCUMENT}::a_pending_entry_is_detached_and_done",
    ),
    _broken(
        "J30.5",
        _OUTCOME,
        'OutcomeKind.QUARANTINED: "Quarantined"',
        'OutcomeKind.QUARANTINED: "Pending"',
        f"{_DOCUMENT}::when_the_attempts_are_spent_the_entry_is_quarantined_with_its_event_and_alert",
    ),
    _broken(
        "J20",
        "db/outbox/intents.py",
        "    ON CONFLICT (snapshot_id) WHERE status <> 'Done' DO NOTHING\n",
        "",
        f"{_DOCUMENT}::a_second_enqueue_of_a_snapshot_makes_no_second_active_row",
    ),
    _broken(
        "J31",
        _TICK,
        '"actor": "system"',
        '"actor": "nobody"',
        f"{_PROOFS}::a_run_acts_as_system_and_is_its_own_correlation",
    ),
    _broken(
        "J29",
        "db/outbox/quarantine.py",
        "status = 'Pending', attempts = 0, version = version + 1,",
        "status = 'Pending', version = version + 1,",
        "job/test_operations.py::requeue_answers_each_id_and_moves_only_what_is_quarantined",
    ),
    _broken(
        "J32",
        "db/migrate.py",
        'return "the database\'s schema is older than this code"',
        "return None",
        "web/test_health.py::ready_means_a_schema_that_this_code_knows_or_a_newer_one",
    ),
    _broken(
        "J33",
        "actors/consumer.py",
        "state = 'queued' or mtime < now() - %(lease)s",
        "state = 'queued' and mtime > now()",
        f"{_DOCUMENT}::a_pending_entry_is_detached_and_done",
    ),
)

_ENDPOINT = (
    _broken(
        "D1",
        "web/selections/routes.py",
        "    status_code=200,\n    guards=[internal_news_only],",
        "    guards=[internal_news_only],",
        "selections/test_acceptance.py::block_replaced_on_an_active_snapshot",
    ),
    _broken(
        "D2",
        "web/auth.py",
        "if authenticate(connection).client != NEWS_CLIENT:",
        "if authenticate(connection) is None:",
        "selections/test_acceptance.py::a_caller_that_is_not_news_is_forbidden",
    ),
    _broken(
        "D3",
        "web/body.py",
        "            if not value.int:\n",
        "            if False:\n",
        "selections/test_detach.py::empty_ids_and_incomplete_bodies_are_refused",
    ),
    _broken(
        "D4",
        "pin/rules/contract.py",
        'MESSAGE_SNAPSHOT_NOT_FOUND = "Snapshot не найден"',
        'MESSAGE_SNAPSHOT_NOT_FOUND = "Snapshot не нашёлся"',
        "selections/test_acceptance.py::an_unknown_snapshot_is_not_found",
    ),
    _broken(
        "D5",
        _SNAPSHOTS,
        "return Detached(state.id, state.detached_at, state.detach_reason, noop=True)",
        "return Detached(state.id, state.detached_at, Reason.POST_DELETED, noop=True)",
        "selections/test_acceptance.py::a_repeat_with_the_same_and_with_another_reason_changes_nothing",
    ),
    _broken(
        "D6",
        _STORE,
        "detach_reason = :reason, updated_at = :now, version",
        "detach_reason = :reason, version",
        "selections/test_acceptance.py::block_replaced_on_an_active_snapshot",
    ),
    _broken(
        "D7",
        _SNAPSHOTS,
        "if seen.status is SnapshotRowStatus.ACTIVE:\n",
        "if True:\n",
        "selections/test_acceptance.py::a_repeat_with_the_same_and_with_another_reason_changes_nothing",
    ),
    _broken(
        "D8",
        _SNAPSHOTS,
        "state = store.read_state(connection, seen.id) if seen.status is SnapshotRowStatus.ACTIVE else seen",
        "state = seen",
        "selections/test_races.py::all_have_read_active_before_any_writes",
    ),
    _broken(
        "D10",
        "web/selections/routes.py",
        "    wanted = decode(request, body, DetachRequest)\n",
        '    wanted = DetachRequest(reason="BlockReplaced", requested_by_user_id=id_)  # type: ignore\n',
        "selections/test_detach.py::empty_ids_and_incomplete_bodies_are_refused",
    ),
    _broken(
        "D11",
        _SNAPSHOTS,
        "        requestedByUserId=str(requested_by_user_id),\n",
        "",
        "selections/test_detach.py::each_detach_is_logged_and_says_whether_it_was_a_no_op",
    ),
    _broken(
        "D12",
        _SNAPSHOTS,
        "idempotent_hit=str(done.noop).lower()",
        'idempotent_hit="false"',
        "selections/test_detach.py::each_detach_is_counted_by_reason_and_idempotent_hit",
    ),
    _broken(
        "D13",
        "pin/news/writing.py",
        "if post.author_id != author.user_id:",
        "if False:",
        "news/test_writing.py::a_reader_who_is_not_the_author_changes_nothing_and_calls_nobody",
    ),
    _broken(
        "D14",
        "pin/rules/contract.py",
        '    POST_DELETED = "PostDeleted"\n',
        '    POST_DELETED = "PostDeleted"\n    UNHEARD_OF = "UnheardOf"\n',
        "selections/test_detach.py::every_reason_of_the_contract_is_one_the_database_admits",
    ),
    _broken(
        "D9",
        _STORE,
        '_READ_STATE = text("SELECT id, status, version,',
        '_READ_STATE = text("SELECT content, id, status, version,',
        "selections/test_snapshots.py::detach_neither_reads_nor_writes_content",
    ),
)

_DECIDED = (
    _broken(
        "G1",
        "pin/news/detaching.py",
        "Intent(desk.new_id(), snapshot_id, post.id, reason, user_id, due_at)",
        "Intent(desk.new_id(), snapshot_id, post.id, reason, post.author_id, due_at)",
        f"{_PROOFS}::an_intent_names_who_deletes_and_not_who_wrote",
    ),
    _broken(
        "G2",
        "web/body.py",
        "if _CANONICAL.fullmatch(text) is None or not (found := UUID(text)).int:",
        "if not (found := UUID(text)).int:",
        "selections/test_detach.py::one_snapshot_whatever_the_spelling_of_its_id",
    ),
    _broken(
        "G3",
        _REPLIES,
        "_SAME_FOR_EVERY_ROW = {401, 403}",
        "_SAME_FOR_EVERY_ROW = {401}",
        "unit/test_replies.py::a_refused_credential_is_the_same_for_every_row",
    ),
    _broken(
        "G4",
        _REPLIES,
        "return result.snapshot_id == snapshot_id",
        "return True",
        "unit/test_replies.py::any_other_2xx_is_an_invalid_response",
    ),
    _broken(
        "G6",
        _CLAIM,
        "            version = version + 1,\n            outcome_due = true,",
        "            outcome_due = true,",
        f"{_JOB_CLAIM}::each_claim_raises_the_version_so_that_it_fences",
    ),
    _broken(
        "G6",
        _CLAIM,
        "AND NOT paused AND halted_by IS NULL AND unconsumed = 0",
        "AND NOT paused AND halted_by IS NULL",
        "job/test_run.py::without_workers_one_batch_is_claimed_however_long_they_stay_away",
    ),
    _broken(
        "G7",
        _CLAIM,
        "AND next_attempt_at <= :due AND NOT outcome_due AND attempts",
        "AND next_attempt_at <= :due AND attempts",
        f"{_JOB_CLAIM}::a_row_whose_outcome_was_lost_is_claimed_alone_and_once_more_at_the_limit",
    ),
    _broken(
        "G8",
        "pin/news/detaching.py",
        "due_at = now + desk.detach_call_timeout",
        "due_at = now",
        "news/test_first_attempts.py::with_selections_down_the_request_succeeds_and_the_row_waits_for_the_job",
    ),
    _broken(
        "G9",
        _RECORD,
        "return decided.outcome.kind is OutcomeKind.SUCCEEDED and decided.entry.status == Status.QUARANTINED",
        "return False",
        f"{_JOB_OUTCOME}::a_late_success_is_the_truth_also_after_quarantine_and_leaves_an_audit_row",
    ),
    _broken(
        "G10",
        "web/auth.py",
        """raise _unauthorized("A bearer token is required.", "Bearer")""",
        """raise forbidden("A bearer token is required.")""",
        "selections/test_detach.py::the_checks_come_in_the_order_401_403_400_404",
    ),
    _broken(
        "G13",
        _RULES,
        "if reply.verdict is Verdict.NOT_FOUND and entry.is_guard:",
        "if False:",
        f"{_JOB_OUTCOME}::a_guard_that_meets_snapshot_not_found_is_done",
    ),
    _broken(
        "G13",
        _SNAPSHOTS,
        "if seen is None and not store.leave_tombstone(connection, snapshot_id, now):",
        "if seen is None and False:",
        "selections/test_races.py::an_id_once_answered_not_found_can_never_be_made",
    ),
    _broken(
        "G14",
        "pin/news/blocks.py",
        "if block.snapshot_id not in free:",
        "if False:",
        "news/test_writing.py::a_block_may_keep_only_what_the_current_version_shows",
    ),
    _broken(
        "G16",
        _OBSERVE,
        "            metrics.QUARANTINED.inc()\n",
        "            metrics.QUARANTINED.inc()\n            metrics.RETRIED.inc()\n",
        f"{_PROOFS}::a_quarantine_is_counted_as_failed_and_not_as_retried",
    ),
    _broken(
        "G17",
        _RULES,
        "return now + min(retry_after, policy.backoff_cap)",
        "return now + retry_after",
        "unit/test_decide.py::retry_after_is_later_than_now_and_at_most_the_cap_away",
    ),
    _broken(
        "G18",
        _RECORD,
        "        announce(connection, [event.id for event in events])\n",
        "",
        f"{_DOCUMENT}::when_the_attempts_are_spent_the_entry_is_quarantined_with_its_event_and_alert",
    ),
    _broken(
        "G19",
        _RULES,
        "return waits + self.max_attempts * polling_interval + polling_interval + max_run_duration",
        "return waits + self.max_attempts * polling_interval",
        "unit/test_backoff.py::the_default_window_is_the_sum_of_its_parts",
    ),
    _broken(
        "G20",
        "db/outbox/runs.py",
        "WHERE result IN ('Completed', 'OutOfTime')",
        "WHERE result IN ('Completed', 'OutOfTime', 'HeldBack')",
        f"{_PROOFS}::a_run_that_was_held_back_is_no_successful_one",
    ),
    _broken(
        "G21",
        _OUTCOME,
        "WHERE id = ANY(CAST(:ids AS uuid[])) ORDER BY id FOR UPDATE",
        "WHERE id = ANY(CAST(:ids AS uuid[])) FOR UPDATE",
        f"{_PROOFS}::outcomes_lock_their_rows_in_the_order_of_their_ids",
    ),
    _broken(
        "G21",
        "db/outbox/quarantine.py",
        "WHERE id = ANY(CAST(:ids AS uuid[])) AND status = 'Quarantined'",
        "WHERE id = ANY(CAST(:ids AS uuid[]))",
        f"{_PROOFS}::requeue_moves_only_what_is_quarantined_whatever_it_is_given",
    ),
    _broken(
        "G22",
        _OUTCOME,
        "attempts = o.attempts - CASE WHEN d.outcome = 'NotCalled' THEN 1 ELSE 0 END,",
        "attempts = o.attempts,",
        "cases/test_not_called.py::a_batch_whose_time_is_up_gives_back_what_it_did_not_call",
    ),
    _broken(
        "G24",
        _TICK,
        "return self.lost[0] if self.lost and (self.lone_turn or self.exhausted) else None",
        "return self.lost[0] if self.lost else None",
        "cases/test_not_called.py::rows_whose_outcome_was_lost_take_turns_with_full_batches_whatever_is_due_first",
    ),
    _broken(
        "G25",
        _TICK,
        "return self.started + timedelta(seconds=time.monotonic() - self.began)",
        "return utc_now()",
        "cases/test_runs.py::a_clock_that_steps_in_mid_run_claims_no_row_twice_and_quarantines_none",
    ),
    _broken(
        "G27",
        "db/outbox/alerts.py",
        "WHERE sink = s.sink AND state = 'Untold' AND next_try_at <= :now",
        "WHERE sink = 'log' AND state = 'Untold' AND next_try_at <= :now",
        "cases/test_alert_outbox.py::a_sink_that_is_down_for_an_hour_is_told_once_it_is_back",
    ),
    _broken(
        "G30",
        "db/errors.py",
        '"55": Meaning.BUSY,',
        '"55": Meaning.FAULT,',
        "cases/test_what_the_database_says.py::each_error_has_one_meaning_by_either_way_to_meet_it",
    ),
)

KEPT = (*_JOB, *_ENDPOINT, *_DECIDED)
