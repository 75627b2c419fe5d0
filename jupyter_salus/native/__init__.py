"""The guard in C (`guard/`), a stand-in driver for its tests (`standin/`), and how both are built (`build`)."""
