"""Fixtures of the app over real HTTP."""

from tests.serving import app_settings, keys, m2m_token, serve, user_token

__all__ = ["app_settings", "keys", "m2m_token", "serve", "user_token"]
