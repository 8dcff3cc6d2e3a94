-- Statements of ops/bench/harness/fill_database.py, in order. {jobs}, {tenants}, {models} and
-- {seconds} are numbers; {failed}, {half} and {open_done} are expressions of a job.

-- Ids are UUIDs of version 7, one each 12 s or so; of 1,000 jobs one has 2,300 items, 50 have 60,
-- the others have 5. Of 200 jobs 4 wait, 3 run and one is paused, the newer the likelier.
CREATE TEMPORARY TABLE made ON COMMIT DROP AS
SELECT n, CAST(lpad(to_hex(CAST(extract(epoch FROM at) * 1000 AS bigint)), 12, '0')
               || '7' || substr(hash, 1, 3) || '8' || substr(hash, 4, 15) AS uuid) AS id,
       'tenant-' || lpad(CAST(floor({tenants} * power((n * 7919 % 1000) / 1000.0, 2)) AS text),
                         2, '0') AS tenant,
       'model-' || chr(97 + n * 31 % {models}) AS model,
       CASE WHEN n % 9 = 0 THEN '2' ELSE '1' END AS version, at, hash,
       CASE WHEN n % 1000 = 0 THEN 2300 WHEN n % 20 = 1 THEN 60 ELSE 5 END AS total,
       CASE WHEN n % 200 < 4 AND n > {jobs} / 2 THEN 'queued'
            WHEN n % 200 < 7 AND n > {jobs} / 2 THEN 'running'
            WHEN n % 200 = 7 AND n > {jobs} / 2 THEN 'paused'
            WHEN n % 200 < 14 THEN 'cancelled' WHEN n % 200 < 20 THEN 'expired'
            ELSE 'completed' END AS state
FROM (SELECT n, md5(CAST(n AS text)) AS hash,
             CAST(:now AS timestamptz)
                 - make_interval(secs => {seconds} * (1 - n / CAST({jobs} AS float8))) AS at
      FROM generate_series(1, {jobs}) AS g (n)) AS g;

INSERT INTO tenants (tenant_id) SELECT DISTINCT tenant FROM made ON CONFLICT DO NOTHING;

INSERT INTO jobs (id, tenant_id, model, version, class, priority, state, params, metadata,
                  custom_ids, total, created_at, started_at, finished_at, webhook_url,
                  n_succeeded, n_failed, n_cancelled, n_expired, input_bytes, output_bytes)
SELECT id, tenant, model, version, 'standard', 0, state, '{{}}',
       '{{"project":"' || (ARRAY['search','mail','reports','archive'])[1 + n % 4]
       || '","run":"' || substr(hash, 1, 8) || '","owner":"person-' || n % 50 || '"}}',
       true, total, at, CASE WHEN state <> 'queued' THEN at + interval '2 s' END,
       CASE WHEN state IN ('completed', 'cancelled', 'expired') THEN at + interval '40 s' END,
       CASE WHEN n % 10 = 3 THEN 'https://receiver-' || n % 7 || '.example/hook' END,
       CASE WHEN state = 'completed' THEN total - {failed} WHEN {half} THEN total / 2
            ELSE 0 END,
       CASE WHEN state = 'completed' THEN {failed} ELSE 0 END,
       CASE WHEN state = 'cancelled' THEN total - total / 2 ELSE 0 END,
       CASE WHEN state = 'expired' THEN total - total / 2 ELSE 0 END,
       total * 60, total * 40
FROM made;

INSERT INTO items (job_id, tenant_id, seq, custom_id, input)
SELECT id, tenant, seq, 'row-' || seq, '"a text of about sixty characters, as searches are: '
       || seq || '"'
FROM made, generate_series(0, total - 1) AS g (seq);

INSERT INTO results (job_id, tenant_id, seq, outcome, attempts, units, wait_ms, launch_id,
                     error, output)
SELECT id, tenant, seq, CAST(outcome AS outcome), 1, 12, 40,
       CASE WHEN outcome IN ('succeeded', 'failed') THEN n END,
       CASE outcome WHEN 'succeeded' THEN NULL
            WHEN 'failed' THEN '{{"code":"' || (ARRAY['too_long','engine_error'])[1 + seq % 2]
                               || '","message":"the text has 612 tokens; 512 are most"}}'
            ELSE '{{"code":"' || outcome || '","message":"the job was ' || outcome || '"}}' END,
       CASE WHEN outcome = 'succeeded' THEN '"an output of forty characters or so, made"' END
FROM (SELECT m.*, seq,
             CASE WHEN state = 'completed' AND seq < {failed} THEN 'failed'
                  WHEN state = 'completed' OR seq < total / 2 THEN 'succeeded'
                  ELSE state END AS outcome
      FROM made m, generate_series(0, CASE WHEN state IN ('queued', 'running', 'paused')
                                           THEN {open_done} ELSE total END - 1) AS g (seq)
     ) AS r;

INSERT INTO slices (job_id, start, stop, tenant_id, model, version, priority, state, epoch,
                    finished_at, n_succeeded, n_failed, n_cancelled, n_expired, claimed_at,
                    worker)
SELECT id, start, stop, tenant, model, version, 0,
       CASE WHEN done THEN 'done' WHEN state = 'paused' THEN 'held' ELSE 'ready' END,
       CASE WHEN done THEN 1 ELSE 0 END,
       CASE WHEN done THEN at + make_interval(secs => 2.9 + start / 20 / 8 * 2.4) END,
       CASE WHEN NOT done THEN 0 WHEN state = 'completed' THEN size - failed
            WHEN {half} THEN greatest(0, least(stop, total / 2) - start) ELSE size END,
       CASE WHEN done AND state = 'completed' THEN failed ELSE 0 END,
       CASE WHEN state = 'cancelled' THEN size - greatest(0, least(stop, total / 2) - start)
            ELSE 0 END,
       CASE WHEN state = 'expired' THEN size - greatest(0, least(stop, total / 2) - start)
            ELSE 0 END,
       CASE WHEN done THEN at + make_interval(secs => 0.6 + start / 20 / 8 * 2.4) END,
       CASE WHEN done THEN 1 + start / 20 % 8 END
FROM (SELECT m.*, start, least(start + 20, total) AS stop,
             least(start + 20, total) - start AS size,
             greatest(0, least(start + 20, {failed}) - start) AS failed,
             state NOT IN ('queued', 'running', 'paused')
                 OR least(start + 20, total) <= {open_done} AS done
      FROM made m, generate_series(0, total - 1, 20) AS g (start)) AS s;

INSERT INTO launches (id, incarnation, model, version, bucket, reason, items, calls, units,
                      padded_units, predicted_ms, engine_ms, started_at)
SELECT n, 1 + n % 8, model, version, 64, 'full', 16, n % 3, 192, 256, 11, 12, at
FROM made;

INSERT INTO webhook_deliveries (tenant_id, job_id, generation, url, type, about, state, tries,
                                due_at, created_at, requested_at, delivered_at, last_status,
                                last_error)
SELECT j.tenant_id, j.id, 1, webhook_url, 'job.' || j.state, to_jsonb(j),
       CASE WHEN n % 7 = 6 AND n % 3 = 0 THEN 'failed' ELSE 'delivered' END, 1 + n % 3,
       j.finished_at, j.finished_at, j.finished_at,
       CASE WHEN n % 7 <> 6 OR n % 3 <> 0 THEN j.finished_at END,
       CASE WHEN n % 7 = 6 AND n % 3 = 0 THEN 500 ELSE 204 END,
       CASE WHEN n % 7 = 6 AND n % 3 = 0 THEN 'it answered 500' END
FROM made JOIN jobs j USING (id) WHERE webhook_url IS NOT NULL AND finished_at IS NOT NULL;

INSERT INTO audit (at, tenant_id, actor, act, target, detail, request_id)
SELECT at, tenant, 'oidc:person-' || n % 50,
       (ARRAY['job.cancel', 'job.retry', 'key.create', 'limits.put'])[1 + n % 4],
       'job_' || hash, '{{}}', 'req_' || hash
FROM made WHERE n % 2 = 0;

INSERT INTO usage (at, tenant_id, kind, job_id, start, model, version, class, succeeded,
                   failed, units, device_us, amount)
SELECT at, tenant, 'items', id, 0, model, version, 'standard', total, 0, total * 12,
       total * 700, total * 0.0001
FROM made WHERE state = 'completed';
