-- init: marks the node as new, so that it votes immediately.
local me = incarnation()
mark(me, QUARANTINE, me, ms)
return 'ok'
