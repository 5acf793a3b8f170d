local clock, both = redis.call('TIME'), redis.call('MGET', KEYS[1], KEYS[2])
