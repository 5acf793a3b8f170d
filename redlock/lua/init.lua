-- init: declares the node new, so that it votes at once.
local me = incarnation()
mark(me, QUARANTINE, me, ms)
return 'ok'
