"""`millrace bench chaos`: real processes die on a seeded schedule while jobs run; nothing may be
lost, doubled, out of order or wrong.

    faults/     the table of faults with their proofs, the targets, the functions served
    small_disk  file system for the home, and the file that fills it
    fleet       processes: two api, two keepers, three workers, PostgreSQL, Redis
    workload    items of jobs, and their expected results
    client      HTTP with retries; the ledger of events with their proofs
    job_client  a client with its job: submission, verbs, reading while it runs, breaking off
    streams     clients of streams of a model that generates, and what they must have read
    load        threads of clients that submit jobs, make calls and read streams
    verify      checks at the end
    coverage    what a run must have tried
    run         the main loop
    record      figures, the page ops/docs/explanation/reliability.md, and its picture
"""
