"""`millrace bench chaos`: real processes die on a seeded schedule while jobs run; at the end
nothing is lost, doubled, out of order or wrong.

    schedule    which fault comes when
    faults      what each fault does, and how it proves that it fired
    stage       where faults happen, and how they wait for what they hit
    fleet       the processes: two api, two keepers, three workers, PostgreSQL, Redis
    work        what jobs consist of, and what a plain loop makes of them
    functions   the functions that the fleet's workers serve
    load        clients: they submit jobs and make calls
    following   a client with its job: verbs, reading while it runs, breaking off and going on
    client      HTTP that tries again
    ledger      what happened, with its proof
    verify      the end: everything against the plain loop and the invariants
    run         the main loop
    record      figures, and the page ops/docs/reliability.md
    picture     its picture
"""
