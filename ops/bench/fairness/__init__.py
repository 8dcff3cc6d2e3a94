"""`millrace bench fairness`: effects of tenants on each other, and the cost of identifying them.

flood        small clients, alone and next to a tenant that floods
lanes        short texts, alone and next to another's bursts of long ones
backlogs     device time while several tenants always have work
run          figures, the picture, the throughput of one tenant and of many, the cost of a key
"""
