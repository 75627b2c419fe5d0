"""The scopes of the service page, for `c.JupyterHub.custom_scopes` and for roles."""

from __future__ import annotations

from typing import Any

READ = "custom:salus:read"
ADMIN = "custom:salus:admin"

custom_scopes: dict[str, dict[str, Any]] = {
    READ: {"description": "See all users' sessions, devices and limits on the GPU hosts"},
    ADMIN: {"description": "Move, pin and order all users' sessions; drain devices", "subscopes": [READ]},
}
