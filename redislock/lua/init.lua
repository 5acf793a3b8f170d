-- init: an administrator declares that the server has lost no locks, which ends its quarantine.
-- KEYS: marker. ARGV: 1 longest TTL, 2 life of the marker.
local info = redis.call('INFO', 'server') .. redis.call('INFO', 'replication')
local me = string.match(info, 'run_id:(%x+)') .. string.match(info, 'master_replid:(%x+)')
redis.call('SET', KEYS[1], string.format('%s %s %s 0', me, ARGV[1], me), 'PX', ARGV[2])
return 'ok'
