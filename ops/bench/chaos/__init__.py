"""`millrace bench chaos`: real processes die on a seeded schedule while jobs run; at the end nothing
is lost, doubled, out of order or wrong.

    schedule    which fault comes when
    faults      what each fault does, and how it proves that it fired
    fleet       the processes: two api, two keepers, three workers, PostgreSQL, Redis
    work        what jobs consist of, and what a plain loop makes of them
    functions   the functions that the fleet's workers serve
    load        clients: they submit, use verbs, read, break off, go on
    verify      the end: everything against the plain loop and the invariants
    record      figures, picture, and the page ops/docs/reliability.md
"""
