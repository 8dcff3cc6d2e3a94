"""`millrace bench fairness`: what tenants notice of each other, and what telling them apart costs.

tenants      tenants of a platform: keys, weights, limits; what its tables say of them
flood        small clients, alone and beside one that floods
backlogs     whose device time it is while several always have work
throughput   the same load of one tenant, and of many
identity     the CPU of a key and limits
run          the figures, and their picture
"""
