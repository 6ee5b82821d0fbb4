"""The job's parts, as its own tests have them."""

from tests.job.conftest import job_settings, make_retry_job, selections_url, tick
from tests.serving import app_settings, keys, serve

__all__ = ["app_settings", "job_settings", "keys", "make_retry_job", "selections_url", "serve", "tick"]
