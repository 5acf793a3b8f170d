local s = open(KEYS[1], KEYS[2], ARGV[1], ARGV[2])
loadLock(s, call('MGET', s.lock)[1])
purge(s)
