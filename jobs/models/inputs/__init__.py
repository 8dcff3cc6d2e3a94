"""Jobs/models/inputs."""
