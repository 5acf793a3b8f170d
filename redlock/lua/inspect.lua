-- inspect: whether this node votes; it changes nothing.
local known, _, seen, since, nodes = string.match(redis.call('GET', marker) or '', '^(%S+) (%d+) (%S+) (%d+) (%S+)$')
if not nodes then return 'missing' end
if nodes ~= nodeset then return 'nodes' end
local me = incarnation()
if known == me then return 'votes' end
return 'waits ' .. int(seen == me and math.max(0, tonumber(since) + quarantine - ms) or quarantine)
