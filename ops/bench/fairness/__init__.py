"""`millrace bench fairness`, `flood`: effects of tenants on each other, and what it costs to tell
them apart.

flood        small clients, alone and next to a tenant that floods
lanes        short texts, alone and next to another's bursts of long ones
backlogs     device time while several tenants always have work
beyond       `millrace bench flood`: small clients next to calls at several times what is carried
run          figures, the picture, the throughput of one tenant and of many, the cost of a key
"""
