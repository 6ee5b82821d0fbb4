"""The job's fixtures serve here as well."""

from tests.job.conftest import app_settings, job_settings, keys, make_retry_job, selections_url, serve, tick

__all__ = ["app_settings", "job_settings", "keys", "make_retry_job", "selections_url", "serve", "tick"]
