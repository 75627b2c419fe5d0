"""Every constant of the scheduler, with its unit. One set of defaults serves all devices, policies and cases."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Config:
    """What the daemon and the simulator may set; the defaults are those that the acceptance cases are run with."""

    #: `auto`; `one`: one open lane a device; `off`: nobody shares a lane, each session has one of its own or waits.
    lanes: str = "auto"
    #: A turn lasts so long, at least one iteration, and ends only if somebody waits.
    quantum_s: float = 0.1
    #: A quantum lengthens until hand-overs cost at most this part of it, up to the limit.
    handover_share: float = 0.01
    quantum_limit_s: float = 2.0
    #: A runnable session that has had no turn for so long gets one before anybody newer; the second under `priority`.
    max_wait_s: float = 600.0
    max_wait_priority_s: float = 60.0
    #: Short-cell credit: the first seconds of device time in each window go first.
    credit_s: float = 2.0
    credit_window_s: float = 60.0
    #: A session whose kernel restarts keeps its seat for so long.
    seat_s: float = 60.0
    #: Weights of `fair`.
    weight_high: float = 4.0
    weight_normal: float = 2.0
    weight_low: float = 1.0
    #: Running side by side pays if it raises the total speed by this part; the second under `srtf`.
    pays: float = 0.03
    pays_srtf: float = 0.10
    #: A lane that pays stays until the figure is this much below, so that a decision isn't reversed by noise.
    pays_hysteresis: float = 0.02
    #: A measured slow-down of the device fades with this half-life, so that side by side is tried again.
    slowdown_half_life_s: float = 300.0
    #: Where nobody ran alone for so long, and so many iterations, lanes close until one was seen alone.
    stale_s: float = 60.0
    stale_iterations: float = 100.0
    #: At most so many lanes of a device are open side by side.
    lanes_limit: int = 64
    #: Whoever came back stays so long, and so many times its move's seconds, before it may go out for its class.
    residence_s: float = 5.0
    residence_moves: float = 20.0
    #: Part of the device's time that moves for sessions of the same class may take.
    moves_share: float = 0.05
    #: Seconds of such moves that may be saved up.
    moves_saved_s: float = 3.0
    #: Levels of the multi-level queue end at powers of this many seconds, the first of them here.
    level_base: float = 4.0
    level_first_s: float = 16.0
    #: A revoked turn has so many times its learned iteration to end, at least the second; unlearned ones the third.
    revoke_iterations: float = 1.5
    revoke_least_s: float = 2.0
    revoke_unknown_s: float = 60.0
    #: Waits between attempts to stop a turn that doesn't end; after the last one the books take it back.
    stop_waits_s: tuple[float, ...] = (1.0, 2.0, 4.0)
    #: What a move costs as long as none was seen: fixed seconds, and bytes a second.
    move_s: float = 0.05
    move_bytes_per_s: float = 10.0 * 2**30
    #: A device is looked at again no sooner than this.
    look_s: float = 0.001
    #: A return that failed is tried again, and a device with a starving session looked at again, after so long.
    retry_s: float = 1.0
    #: A session that shares a lane reads as running so long after its last turn.
    sharing_s: float = 2.0
    #: Learned E falls when no boundary needed as much for one to two of these windows.
    memory_window_s: float = 30.0
    #: So many waiting sessions are looked at, beyond the first, for one that can run now.
    scan: int = 8
