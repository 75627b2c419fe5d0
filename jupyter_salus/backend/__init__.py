"""The backend: knows every session and device of a host and decides who runs. Holds no GPU memory itself."""
