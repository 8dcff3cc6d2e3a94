"""The models file: entries, engine specs, validation without torch, the registry, its watcher."""
