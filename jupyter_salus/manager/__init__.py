"""The Jupyter side of a kernel's life: which kernels the backend hears of, and how the guest gets into them.

- `Manager`: for `--ServerApp.kernel_manager_class=jupyter_salus.Manager`; `SalusKernelManager` is its class for one kernel.
- `SalusManagerMixin`, `SalusKernelManagerMixin`: the same for people who have classes of their own.
- `NotebookKernelManager`: for `nbclient.NotebookClient(kernel_manager_class=…)` and the command line's `run`. Its settings
  `salus_name`, `salus_path`, `salus_priority` and `salus_socket` are traits: pass an instance as `km=`, or a `config`.
- `SalusProvisioner`: `salus-provisioner`, the second door, for whatever starts kernels without any of these classes.
"""

from __future__ import annotations

from .kernel import NotebookKernelManager, SalusKernelManager, SalusKernelManagerMixin
from .mapping import Manager, SalusManagerMixin
from .provisioner import SalusProvisioner

__all__ = [
    "Manager",
    "NotebookKernelManager",
    "SalusKernelManager",
    "SalusKernelManagerMixin",
    "SalusManagerMixin",
    "SalusProvisioner",
]
