"""Scaler, the process that sets decided numbers in Kubernetes (`millrace scaler`)."""
