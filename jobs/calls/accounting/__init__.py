"""Accounting of calls: what they used, and what scripts charge to quotas."""
