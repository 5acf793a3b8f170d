-- inspect: whether this node votes; it changes nothing.
local known, _, seen, since, nodes = string.match(redis.call('GET', MARKER) or '', '^(%S+) (%d+) (%S+) (%d+) (%S+)$')
if not nodes then return 'missing' end
if nodes ~= NODES then return 'nodes' end
local me = incarnation()
if known == me then return 'votes' end
return 'waits ' .. int(seen == me and math.max(0, tonumber(since) + QUARANTINE - ms) or QUARANTINE)
