"""The Jupyter event of changes, and its schema."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from jupyter_events import EventLogger
from jupyter_events.schema_registry import SchemaRegistryException

SCHEMA_ID = "https://schema.jupyter-salus.org/state/v1"
SCHEMA_PATH = Path(__file__).parent / "state_v1.yaml"


def register(logger: EventLogger) -> None:
    """Make the event known to the server; a second time does nothing."""
    if SCHEMA_ID in logger.schemas:
        return
    try:
        logger.register_event_schema(SCHEMA_PATH)
    except SchemaRegistryException:
        return  # Another instance of the extension in this process was quicker.


def emit(logger: EventLogger, data: dict[str, Any]) -> None:
    """Tell everybody who listens on `api/events/subscribe`."""
    logger.emit(schema_id=SCHEMA_ID, data=data)
