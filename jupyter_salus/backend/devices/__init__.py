"""What the daemon governs: one small protocol, and the devices that keep it. Never imports the daemon."""
