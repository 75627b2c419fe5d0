"""What one simulation is asked to do, checked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..backend.core.config import Config
from .model import DeviceModel

POLICIES = ("fair", "fifo", "pack", "srtf", "priority")
KNOWLEDGE = ("declared", "progress", "none")
MEMORY = ("known", "learned")
LANES = ("auto", "one", "off")


@dataclass(frozen=True, slots=True)
class Settings:
    """The options of the command that shape a run over the core."""

    policy: str
    model: DeviceModel
    #: What the core may know: the declared duration, the iterations to come, or neither.
    knowledge: str = "progress"
    #: P and E at arrival, or by growth.
    memory: str = "known"
    #: Kept durations by model name.
    history: Mapping[str, tuple[float, ...]] = field(default_factory=dict)
    devices: int = 1
    #: Jobs begin with host work of their workload's start-up time.
    startup: bool = False
    #: The core's own settings.
    core: Config = field(default_factory=Config)
