from tests.integration.jobs.blobs.conftest import blob_settings, s3, s3_endpoint, store

__all__ = ["blob_settings", "s3", "s3_endpoint", "store"]
