"""`millrace bench chaos`: real processes die on a seeded schedule while jobs run; nothing may be
lost, doubled, out of order or wrong.

    faults/     the faults with their proofs, the schedule, the targets, the functions served
    fleet       processes: two api, two keepers, three workers, PostgreSQL, Redis
    workload    items of jobs, and their expected results
    load        clients that submit jobs and make calls
    job_client  a client with its job: verbs, reading while it runs, breaking off and resuming
    client      HTTP with retries
    ledger      events with their proofs
    verify      checks at the end
    run         the main loop
    record      figures, and the page ops/docs/reliability.md
    plot        its picture
"""
