"""`millrace bench gpu`: encoders on a GPU, through the platform and alone."""
