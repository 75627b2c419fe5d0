"""What backend, guest, guard and server say to one another: frames, messages, the address. Standard library alone."""
