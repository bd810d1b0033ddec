//! The transitions of a job, each one script and therefore one step.

/// Starts a run of the job in the first argument, whose queue entry is the second: from the queue, or from a server that died.
/// Returns the attempt, 0 if there is nothing to start, or -1 if it was started too often.
pub(super) const START: &str = r"
local job = KEYS[1]
local status = redis.call('HGET', job, 'status')
if status ~= 'queued' and status ~= 'running' then
    redis.call('XACK', KEYS[2], 'workers', ARGV[2]); redis.call('XDEL', KEYS[2], ARGV[2])
    return 0
end
local attempts = tonumber(redis.call('HGET', job, 'attempts'))
redis.call('DEL', KEYS[3])
if attempts >= tonumber(ARGV[4]) then return -1 end
redis.call('HSET', job, 'status', 'running', 'attempts', attempts + 1, 'started_at', ARGV[3], 'entry', ARGV[2])
return attempts + 1
";

/// Notes an event of the run whose attempt is the first argument.
pub(super) const APPEND: &str = r"
if redis.call('HGET', KEYS[1], 'status') ~= 'running' or redis.call('HGET', KEYS[1], 'attempts') ~= ARGV[1] then return 0 end
local number = redis.call('XLEN', KEYS[2]) + 1
redis.call('XADD', KEYS[2], number .. '-0', 'what', ARGV[2])
return number
";

/// Ends a job: as the first argument says, if its status is the second and its attempt the third.
pub(super) const END: &str = r"
if redis.call('HGET', KEYS[1], 'status') ~= ARGV[2] or redis.call('HGET', KEYS[1], 'attempts') ~= ARGV[3] then return 0 end
redis.call('HSET', KEYS[1], 'status', ARGV[1], 'finished_at', ARGV[4], 'verdict', ARGV[8])
if redis.call('HEXISTS', KEYS[1], 'webhook') == 1 then redis.call('ZADD', KEYS[5], ARGV[4], ARGV[9]) end
if ARGV[5] ~= '' then redis.call('HSET', KEYS[1], 'result', ARGV[5]) end
redis.call('XADD', KEYS[2], (redis.call('XLEN', KEYS[2]) + 1) .. '-0', 'what', ARGV[6])
local entry = redis.call('HGET', KEYS[1], 'entry')
redis.call('XACK', KEYS[3], 'workers', entry); redis.call('XDEL', KEYS[3], entry)
redis.call('EXPIRE', KEYS[1], ARGV[7]); redis.call('EXPIRE', KEYS[2], ARGV[7])
redis.call('DEL', KEYS[4])
return 1
";

/// Creates the job in the first key, unless the fourth key is known; then returns what is known of that.
pub(super) const CREATE: &str = r"
if ARGV[5] ~= '' then
    local known = redis.call('GET', KEYS[4])
    if known then return known end
    redis.call('SET', KEYS[4], ARGV[5], 'EX', ARGV[6])
end
local entry = redis.call('XADD', KEYS[2], '*', 'id', ARGV[1])
redis.call('HSET', KEYS[1], 'status', 'queued', 'attempts', 0, 'created_at', ARGV[2], 'request', ARGV[3], 'entry', entry, 'language', ARGV[4])
if ARGV[7] ~= '' then redis.call('HSET', KEYS[1], 'owner', ARGV[7]) end
if ARGV[8] ~= '' then redis.call('HSET', KEYS[1], 'webhook', ARGV[8]) end
redis.call('ZADD', KEYS[3], 0, ARGV[1])
return ''
";

/// Puts a running job back into the queue, at its end.
pub(super) const PUT_BACK: &str = r"
if redis.call('HGET', KEYS[1], 'status') ~= 'running' or redis.call('HGET', KEYS[1], 'attempts') ~= ARGV[1] then return 0 end
local entry = redis.call('HGET', KEYS[1], 'entry')
redis.call('XACK', KEYS[3], 'workers', entry); redis.call('XDEL', KEYS[3], entry)
redis.call('DEL', KEYS[2])
entry = redis.call('XADD', KEYS[3], '*', 'id', ARGV[2])
redis.call('HSET', KEYS[1], 'status', 'queued', 'attempts', tonumber(ARGV[1]) - 1, 'entry', entry)
return 1
";

/// Takes the job of whose end somebody is to be told next, if it is time; nobody else gets it before the second argument.
pub(super) const TAKE_DELIVERY: &str = r"
local id = redis.call('ZRANGEBYSCORE', KEYS[1], '-inf', ARGV[1], 'LIMIT', 0, 1)[1]
if not id then return '' end
redis.call('ZADD', KEYS[1], ARGV[2], id)
return id
";

/// Notes what came of telling somebody: the job's new field, its id, and when to try again, if that is to be.
pub(super) const NOTE_DELIVERY: &str = r"
if redis.call('EXISTS', KEYS[1]) == 1 then redis.call('HSET', KEYS[1], 'webhook', ARGV[1]) end
if ARGV[3] == '' then redis.call('ZREM', KEYS[2], ARGV[2]) else redis.call('ZADD', KEYS[2], ARGV[3], ARGV[2]) end
return 1
";

/// Takes the first argument from what is left of the second.
pub(super) const SPEND: &str = r"
if tonumber(redis.call('GET', KEYS[1]) or '0') + tonumber(ARGV[1]) > tonumber(ARGV[2]) then return 0 end
redis.call('INCRBY', KEYS[1], ARGV[1]); redis.call('EXPIRE', KEYS[1], 172800)
return 1
";
