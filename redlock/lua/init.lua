-- init: declares the node new, so that it votes at once.
local me = incarnation()
redis.call('SET', marker, string.format('%s %d %s 0 %s', me, quarantine, me, nodeset), 'PX', int(math.max(retention, 2 * quarantine)))
return 'ok'
