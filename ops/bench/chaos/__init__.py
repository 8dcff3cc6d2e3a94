"""`millrace bench chaos`: real processes die on a seeded schedule while jobs run; nothing may be
lost, doubled, out of order or wrong.

    faults/     the table of faults with their proofs, the targets, the functions served
    servers/    PostgreSQL with room for a standby, Redis behind Sentinels
    network/    proxies between the processes, which injure connections
    small_disk  file system for the home, and the file that fills it
    fleet       processes: two api, two keepers, three workers, and the servers
    clients/    threads that submit jobs, make calls, read streams and ask for the health of apis
    verify      checks at the end
    coverage    what a run must have tried
    run         the main loop
    record      figures, the page ops/docs/explanation/reliability.md, and its picture
"""
