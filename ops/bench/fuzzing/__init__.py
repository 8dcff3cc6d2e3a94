"""What a hostile client may send, made up by the million, and fed to what reads it."""
