"""Pages of jobs: lists, one job, its items, and forms that make one."""
