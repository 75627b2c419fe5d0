"""The backend's process: the only loop and clock. Frames → events → core → effects → events."""
