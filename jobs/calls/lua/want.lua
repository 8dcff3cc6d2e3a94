-- Makes a model wanted, as a call does that finds no worker.
redis.call('HSET', POOL, 'wanted', now)
