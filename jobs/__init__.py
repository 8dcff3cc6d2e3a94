"""The domain: jobs, items, slices, leases, calls. Imports none of the other packages."""
