"""One model on one device: decide, close, launch, deliver."""
