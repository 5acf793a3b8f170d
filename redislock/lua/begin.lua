local both = redis.call('MGET', KEYS[1], KEYS[2])
