-- The keys of a name. Each key states one fact and expires by itself; an absent key means that the
-- fact does not hold. TAG is {LOCK}, or LOCK itself if it has a hash tag. BASE is
-- PREFIXfencelock:2:
--   LOCK             string   held exclusively: "fencelock:2 OWNER TOKEN DESC". Plain SET NX PX locks
--                             of other programs use the same key
--                or  zset     shared: a member "OWNER DESC" with the token as score for each holder,
--                             a member "TOKEN" with the end of its lease as score, in ms, and
--                             "fencelock:2 shared LIMIT" with the sum of the weights as score
--   BASEfence:TAG    integer  the last token, in microseconds; kept for the retention after its last use
--   BASEqueue:TAG    zset     the waiters, "OWNER DESC", by ticket: the time of arrival, made unique
--   BASEalive:C      string   client C, which waits, counts as alive; the value is its own time of its
--                             last request. On a Cluster BASEalive:TAG:C, for each name
--   BASEclosed:TAG   string   a minimum hold runs; the value is the owner that started it
--   BASEleft:TAG:O   string   owner O has released, by the release with this id: a late attempt to
--                             acquire for O must do nothing
--   BASElimit:TAG    string   "LIMIT VERSION": the limit that Resize set for all
--   marker           string   only with a quarantine: the last known incarnation of the server
-- DESC is "CLIENT MODE LIMIT WEIGHT TTL MINHOLD PID HOST NOTE". Numbers are written with %d: the
-- .. of Lua loses digits. settings are "RETENTION COUNTS QUARANTINE": RETENTION in ms; COUNTS is 1
-- if PUBLISH counts all subscribers, and 0 on a Cluster, where it does not; QUARANTINE in ms.
--
-- While a slot of a Cluster moves, a node serves commands about the lock key alone, wherever that
-- key is; it refuses a command about an absent key, or about several keys of which one is absent.
-- So renew, confirm and the first part of release use the lock key alone. Everything else calls
-- stays, which fails while the slot moves, before anything that could not be repeated (leave and
-- confirm use the lock key first); the client retries.
--
-- LIVENESS: a client that waits sends touch or touchall at least every GRANT / 2, and counts as alive
-- for GRANT after each. So whoever dies or freezes holds up the others for one GRANT: as the first in
-- the queue, or as a new holder. One script grants to at most BATCH waiters, removes at most 16 * BATCH
-- dead ones and PURGE expired holders; the next touch continues. A queue is kept for QUEUED ms.
local BATCH, PURGE, QUEUED = 64, 512, 60000
local TIMES, TOKENS = '1e11', '1e14' -- scores of a shared lock: weights below TIMES, ends of leases below TOKENS, tokens above

-- The keys and settings of a name.
local function open(lock, marker, base, settings)
  local tag = tagOf(lock)
  local s = { ms = math.floor(stamp / 1000), failure = '', lock = lock, marker = marker, channel = base,
    fence = base .. 'fence:' .. tag, queue = base .. 'queue:' .. tag, alive = base .. 'alive:',
    closed = base .. 'closed:' .. tag, left = base .. 'left:' .. tag .. ':', resizing = base .. 'limit:' .. tag }
  s.retention, s.counts, s.quarantine = string.match(settings, '^(%d+) (%d) (%d+)$')
  if s.counts == '0' then s.alive = s.alive .. tag .. ':' end -- a Cluster
  return s
end

-- Fails while the slot moves, which refuses several keys of which one is absent. The second key, left
-- without an owner at its end, never exists.
local function stays(s) if s.counts == '0' then call('EXISTS', s.fence, s.left) end end

local function starts(text, with) return string.sub(text, 1, #with) == with end

-- The fields of an entry of the queue, or of a shared holder; nil if the text is neither.
local function read(entry)
  local owner, desc, client, mode, limit, weight, ttl, minhold = string.match(entry, '^(%S+) ((%S+) ([xs]) (%d+) (%d+) (%d+) (%d+) .*)$')
  return owner and { entry = entry, owner = owner, desc = desc, client = client, mode = mode, limit = limit,
    weight = tonumber(weight), ttl = tonumber(ttl), minhold = tonumber(minhold) }
end

-- HOLDER: s.mode is free, x (exclusive), s (shared), or foreign: the key holds something else.
local function loadLock(s, text)
  s.mode, s.text = 'free', ''
  if text then
    s.mode = starts(text, FORMAT) and 'x' or 'foreign'
    s.text = s.mode == 'x' and text or string.sub(text, 1, 200)
    return
  end
  local low = redis.pcall('ZRANGEBYSCORE', s.lock, '-inf', s.ms, 'WITHSCORES', 'LIMIT', 0, PURGE)
  if low.err and not string.find(low.err, 'WRONGTYPE') then error(low.err) end
  s.limit, s.used, s.over = string.match(low[1] or '', '^' .. FORMAT .. 'shared (%d+)$'), tonumber(low[2]), low
  if s.limit then
    s.mode = 's'
  elseif call('EXISTS', s.lock) == 1 then
    s.mode, s.text = 'foreign', low.err or low[1] or ''
  end
end
