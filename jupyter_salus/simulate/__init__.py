"""`jupyter salus simulate`: a virtual clock and virtual guests over the very core that the daemon drives."""
