"""The pure scheduler: `Scheduler.handle(event, now) -> list[Decision]`, `next_deadline()`, `snapshot()`.

No clock, socket, thread, driver, environment or randomness. The daemon and the simulator drive the same core.
"""
