//! The transitions of a job, each one script and therefore one step. They keep the indexes and the accounts of owners, and
//! use the clock of Redis, which all servers share.

use std::sync::LazyLock;

use redis::Script;

/// What the scripts have in common. The first key is what all names begin with.
const COMMON: &str = r#"
local function key(kind, id) return KEYS[1] .. ':' .. kind .. (id and (':' .. id) or '') end
local function now() local time = redis.call('TIME'); return tonumber(time[1]) + tonumber(time[2]) / 1e6 end
local function get(id, field) return redis.call('HGET', key('job', id), field) end
local function owner_of(id) return get(id, 'owner') or '' end
local function account(kind, owner, change)
    if redis.call('HINCRBY', key(kind), owner, change) == 0 then redis.call('HDEL', key(kind), owner) end
end
-- What a job takes changes.
local function resize(id, change)
    redis.call('HINCRBY', key('job', id), 'size', change); account('bytes', owner_of(id), change)
end
local function set(id, field, value)
    resize(id, #value - redis.call('HSTRLEN', key('job', id), field))
    redis.call('HSET', key('job', id), field, value)
end
local function add_event(id, what)
    local events = key('events', id)
    -- Release 0.1.0 did not count its events.
    if not get(id, 'last_event') then redis.call('HSET', key('job', id), 'last_event', redis.call('XLEN', events)) end
    local number = redis.call('HINCRBY', key('job', id), 'last_event', 1)
    redis.call('XADD', events, number .. '-0', 'what', what)
    redis.call('HINCRBY', key('job', id), 'event_size', #what); resize(id, #what)
    return number
end
local function drop_events(id)
    -- Redis does not take -0 for a number.
    resize(id, 0 - tonumber(get(id, 'event_size') or '0'))
    redis.call('HDEL', key('job', id), 'event_size'); redis.call('DEL', key('events', id))
end
-- The queue of a job: by its labels, and whether it has to run alone. Its place there is by priority and age.
local function lane_of(id) return (get(id, 'suspect') == '1' and '!' or '') .. (get(id, 'lane') or '') end
local function set_flag(id, field, value) redis.call('HSET', key('job', id), field, value and '1' or '0') end
-- Into the queue of its owner, at once or at a time, and out of it.
local function make_ready(id)
    local owner, lane = owner_of(id), lane_of(id)
    set_flag(id, 'delayed', false)
    redis.call('ZADD', key('ready', lane .. ':' .. owner), 0 - tonumber(get(id, 'priority') or '0'), id)
    redis.call('SADD', key('owners', lane), owner)
end
local function enqueue(id, at)
    if get(id, 'status') ~= 'queued' then
        redis.call('HSET', key('job', id), 'status', 'queued'); account('waiting-count', owner_of(id), 1)
        redis.call('INCR', key('waiting-total'))
    end
    if at then
        set_flag(id, 'delayed', true)
        redis.call('HSET', key('job', id), 'not_before', at); redis.call('ZADD', key('delayed'), at, id)
    else
        make_ready(id)
    end
    local expires = get(id, 'expires_at')
    if expires and get(id, 'attempts') == '0' then redis.call('ZADD', key('expiring'), expires, id) end
end
local function dequeue(id, owner)
    if get(id, 'status') ~= 'queued' then return end
    account('waiting-count', owner, -1); redis.call('DECR', key('waiting-total'))
    redis.call('ZREM', key('delayed'), id); redis.call('ZREM', key('expiring'), id)
    local lane = lane_of(id)
    redis.call('ZREM', key('ready', lane .. ':' .. owner), id)
    if redis.call('EXISTS', key('ready', lane .. ':' .. owner)) == 0 then redis.call('SREM', key('owners', lane), owner) end
end
-- A run is over.
local function release(id)
    if redis.call('ZREM', key('leases'), id) == 1 then account('running', owner_of(id), -1) end
end
local function waiting() return tonumber(redis.call('GET', key('waiting-total')) or '0') end
local function set_delivery(id, owner, at)
    if at then
        redis.call('ZADD', key('due', owner), at, id); redis.call('SADD', key('due-owners'), owner)
    elseif redis.call('ZREM', key('due', owner), id) == 1 and redis.call('EXISTS', key('due', owner)) == 0 then
        redis.call('SREM', key('due-owners'), owner)
    end
end
local function finish(id, status, at, result, event, verdict)
    release(id); dequeue(id, owner_of(id))
    redis.call('HSET', key('job', id), 'status', status, 'finished_at', at, 'verdict', verdict)
    if result ~= '' then set(id, 'result', result) end
    add_event(id, event)
    if get(id, 'webhook') then set_delivery(id, owner_of(id), now()) end
    redis.call('ZADD', key('ended'), now(), id)
end
-- An attempt is interrupted: its events are dropped, and the job waits again or ends. Only a failure of the host, or the
-- death of a server that ran the job alone, counts.
local function interrupted(id, why, most, pause, longer, at, result, event, verdict, cancelled)
    release(id); drop_events(id)
    add_event(id, '{"event":"restarted","attempt":' .. (get(id, 'attempts') + 1) .. '}')
    local failures, at_once = tonumber(get(id, 'failures') or '0'), true
    if why == 'failure' or (why == 'death' and get(id, 'suspect') == '1' and get(id, 'alone') == '1') then
        failures = failures + 1
        redis.call('HSET', key('job', id), 'failures', failures)
    end
    if why == 'death' then set_flag(id, 'suspect', true) end
    set_flag(id, 'alone', false)
    if get(id, 'cancel_requested') == '1' then
        finish(id, 'cancelled', at, '', cancelled, '')
    elseif failures >= tonumber(most) then
        finish(id, 'finished', at, result, event, verdict)
    elseif why == 'failure' then
        enqueue(id, now() + (failures <= 1 and pause or longer))
    else
        enqueue(id)
    end
end
local function is_current(id, attempt) return get(id, 'status') == 'running' and get(id, 'attempts') == attempt end
-- A job of 0.1.0 gets what that release did not keep: its size, and its place in the indexes.
local function index(id)
    local job = key('job', id)
    if redis.call('EXISTS', job) == 0 or get(id, 'size') then return end
    local event_size = 0
    for _, entry in ipairs(redis.call('XRANGE', key('events', id), '-', '+')) do event_size = event_size + #entry[2][2] end
    local size = event_size
    for _, field in ipairs({'request', 'result', 'webhook'}) do size = size + redis.call('HSTRLEN', job, field) end
    redis.call('HSET', job, 'event_size', event_size); resize(id, size + 256)
    redis.call('ZADD', key('jobs', owner_of(id)), 0, id)
    redis.call('PERSIST', job); redis.call('PERSIST', key('events', id))
    local status = get(id, 'status')
    if status ~= 'queued' and status ~= 'running' then redis.call('ZADD', key('ended'), get(id, 'finished_at') or 0, id) end
end
"#;

fn script(body: &str) -> Script {
    Script::new(&format!("{COMMON}{body}"))
}

/// Creates a job, unless its idempotency key is known or it would exceed a bound. Returns `new`, `known` with the id and the
/// digest that belong to the key, or the bound.
pub(super) static CREATE: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local id, created, request, language, owner, webhook, known, digest, most, most_own, most_bytes, quota, per_day,
    priority, lane, delay, expires, overhead = unpack(ARGV)
if known ~= '' then
    local value = redis.call('GET', known)
    if value then return {'known', value} end
end
if waiting() >= tonumber(most) then return {'waiting'} end
if tonumber(redis.call('HGET', key('waiting-count'), owner) or '0') >= tonumber(most_own) then return {'waiting-per-owner'} end
local size = #request + #webhook + overhead
if tonumber(redis.call('HGET', key('bytes'), owner) or '0') + size > tonumber(most_bytes) then return {'bytes-per-owner'} end
if per_day ~= '' then
    if tonumber(redis.call('GET', quota) or '0') + 1 > tonumber(per_day) then return {'per-day'} end
    redis.call('INCR', quota); redis.call('EXPIRE', quota, 172800)
end
local job = key('job', id)
-- The entry is for servers of 0.1.0, which would fail to cancel a job without one.
redis.call('HSET', job, 'attempts', 0, 'created_at', created, 'request', request, 'language', language, 'entry', '0-0')
if owner ~= '' then redis.call('HSET', job, 'owner', owner) end
if webhook ~= '' then redis.call('HSET', job, 'webhook', webhook, 'has_webhook', '1') end
redis.call('HSET', job, 'priority', priority, 'lane', lane, 'last_event', 0)
if expires ~= '' then redis.call('HSET', job, 'expires_at', now() + expires) end
if known ~= '' then redis.call('SET', known, id .. ' ' .. digest); redis.call('HSET', job, 'key', known) end
resize(id, size); enqueue(id, delay ~= '' and tonumber(delay) > 0 and now() + delay or nil)
redis.call('ZADD', key('jobs'), 0, id); redis.call('ZADD', key('jobs', owner), 0, id)
return {'new'}
",
    )
});

/// The number of jobs that wait.
pub(super) static WAITING: LazyLock<Script> = LazyLock::new(|| script("return waiting()"));

/// Does what time has made due: ends jobs that were not started in time, queues delayed jobs and jobs of servers that died.
/// Returns how long until there is more to do.
pub(super) static SWEEP: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local expired, most, pause, longer, at, result, event, verdict, cancelled = unpack(ARGV)
local function due(kind) return redis.call('ZRANGEBYSCORE', key(kind), '-inf', now(), 'LIMIT', 0, 100) end
for _, id in ipairs(due('expiring')) do finish(id, 'expired', at, '', expired, '') end
for _, id in ipairs(due('delayed')) do redis.call('ZREM', key('delayed'), id); make_ready(id) end
for _, id in ipairs(due('leases')) do
    interrupted(id, 'death', most, pause, longer, at, result, event, verdict, cancelled)
end
local first
for _, kind in ipairs({'expiring', 'delayed', 'leases'}) do
    local time = tonumber(redis.call('ZRANGE', key(kind), 0, 0, 'WITHSCORES')[2])
    if time and (not first or time < first) then first = time end
end
return first and tostring(math.max(0, first - now()))
",
    )
});

/// The owners whose jobs wait in these queues, in the order in which to serve them, and those whose suspects do.
pub(super) static NEXT_OWNERS: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local most_bytes = tonumber(ARGV[1])
local function next_owners(prefix)
    local known, owners = {}, {}
    for place = 2, #ARGV do
        for _, owner in ipairs(redis.call('SMEMBERS', key('owners', prefix .. ARGV[place]))) do
            if not known[owner] and tonumber(redis.call('HGET', key('bytes'), owner) or '0') <= most_bytes then
                known[owner] = true
                local running = tonumber(redis.call('HGET', key('running'), owner) or '0')
                owners[#owners + 1] = {running, tonumber(redis.call('HGET', key('turns'), owner) or '0'), owner}
            end
        end
    end
    table.sort(owners, function(a, b)
        if a[1] ~= b[1] then return a[1] < b[1] end
        if a[2] ~= b[2] then return a[2] < b[2] end
        return a[3] < b[3]
    end)
    local names = {}
    for place, owner in ipairs(owners) do names[place] = owner[3] end
    return names
end
return {next_owners(''), next_owners('!')}
",
    )
});

/// Starts an attempt of the first job of an owner in these queues, and returns its id. The attempt has a lease.
pub(super) static TAKE: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local owner, started, lease, alone = unpack(ARGV)
local first, rank
for place = 5, #ARGV do
    local found = redis.call('ZRANGE', key('ready', ARGV[place] .. ':' .. owner), 0, 0, 'WITHSCORES')
    local id, score = found[1], tonumber(found[2])
    if id and (not first or score < rank or (score == rank and id < first)) then first, rank = id, score end
end
if not first then return '' end
dequeue(first, owner)
redis.call('HINCRBY', key('job', first), 'attempts', 1)
redis.call('HSET', key('job', first), 'status', 'running', 'started_at', started, 'alone', alone)
redis.call('ZADD', key('leases'), now() + lease, first); account('running', owner, 1)
redis.call('HSET', key('turns'), owner, redis.call('INCR', key('turn')))
return first
",
    )
});

/// Renews the leases of attempts (pairs of id and number). Returns the ids of those that were cancelled, and of those that
/// are not the current ones.
pub(super) static HEARTBEAT: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local cancelled, lost = {}, {}
for place = 2, #ARGV, 2 do
    local id = ARGV[place]
    if is_current(id, ARGV[place + 1]) then
        redis.call('ZADD', key('leases'), 'XX', now() + ARGV[1], id)
        if get(id, 'cancel_requested') == '1' then cancelled[#cancelled + 1] = id end
    else
        lost[#lost + 1] = id
    end
end
return {cancelled, lost}
",
    )
});

/// Records events of an attempt.
pub(super) static APPEND: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local id, attempt = unpack(ARGV)
if not is_current(id, attempt) then return 0 end
for place = 3, #ARGV do add_event(id, ARGV[place]) end
return 1
",
    )
});

/// Ends a job with the result of its current attempt.
pub(super) static FINISH: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local id, attempt, at, result, event, verdict = unpack(ARGV)
if not is_current(id, attempt) then return 0 end
finish(id, get(id, 'cancel_requested') == '1' and 'cancelled' or 'finished', at, result, event, verdict)
return 1
",
    )
});

/// Interrupts the current attempt of a job.
pub(super) static INTERRUPT: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local id, attempt, why = unpack(ARGV)
if not is_current(id, attempt) then return 0 end
interrupted(id, why, unpack(ARGV, 4))
return 1
",
    )
});

/// Ends a job that waits, or notes that it is to end.
pub(super) static CANCEL: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local id, at, event = unpack(ARGV)
local status = get(id, 'status')
if status == 'queued' then finish(id, 'cancelled', at, '', event, '') end
if status == 'running' then set_flag(id, 'cancel_requested', true) end
return 1
",
    )
});

/// Takes the job whose webhook is due next, of any owner except those listed after the lease.
pub(super) static TAKE_DELIVERY: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local without = {}
for place = 2, #ARGV do without[ARGV[place]] = true end
local first, at, whose
for _, owner in ipairs(redis.call('SMEMBERS', key('due-owners'))) do
    local due = not without[owner] and redis.call('ZRANGEBYSCORE', key('due', owner), '-inf', now(), 'WITHSCORES', 'LIMIT', 0, 1)
    if due and due[1] and (not at or tonumber(due[2]) < at) then first, at, whose = due[1], tonumber(due[2]), owner end
end
if not first then return '' end
local known = redis.call('EXISTS', key('job', first)) == 1
set_delivery(first, whose, known and now() + ARGV[1])
return known and first or ''
",
    )
});

/// Records the outcome of a delivery: the job's new webhook field, and after how many seconds to retry, if at all.
pub(super) static NOTE_DELIVERY: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local id, webhook, again = unpack(ARGV)
if redis.call('EXISTS', key('job', id)) == 0 then return 0 end
set(id, 'webhook', webhook)
set_delivery(id, owner_of(id), again ~= '' and now() + again)
return 1
",
    )
});

/// Forgets some jobs that ended longer ago than this, and returns how many.
pub(super) static EXPIRE: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local old = redis.call('ZRANGEBYSCORE', key('ended'), '-inf', now() - ARGV[1], 'LIMIT', 0, ARGV[2])
for _, id in ipairs(old) do
    local owner, known = owner_of(id), get(id, 'key')
    account('bytes', owner, 0 - tonumber(get(id, 'size') or '0'))
    if known then redis.call('DEL', known) end
    set_delivery(id, owner, nil)
    redis.call('ZREM', key('jobs'), id); redis.call('ZREM', key('jobs', owner), id); redis.call('ZREM', key('ended'), id)
    redis.call('DEL', key('job', id), key('events', id))
end
return #old
",
    )
});

/// Takes the first argument from what is left of the second.
pub(super) static SPEND: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local quota, runs, most = unpack(ARGV)
if tonumber(redis.call('GET', quota) or '0') + tonumber(runs) > tonumber(most) then return 0 end
redis.call('INCRBY', quota, runs); redis.call('EXPIRE', quota, 172800)
return 1
",
    )
});

/// Gives jobs of 0.1.0 their place in the indexes.
pub(super) static INDEX: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
for _, id in ipairs(ARGV) do index(id) end
return #ARGV
",
    )
});

/// Moves the job of an entry in the queue of 0.1.0 to the queue of its owner.
pub(super) static ADOPT: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local id, entry = unpack(ARGV)
local status = get(id, 'status')
index(id)
if status == 'queued' then redis.call('HDEL', key('job', id), 'status'); enqueue(id) end
if status == 'running' then interrupted(id, 'death', unpack(ARGV, 3)) end
redis.call('XACK', key('queue'), 'workers', entry); redis.call('XDEL', key('queue'), entry)
return 1
",
    )
});

/// Moves webhooks that 0.1.0 noted to those of their owners.
pub(super) static ADOPT_DELIVERIES: LazyLock<Script> = LazyLock::new(|| {
    script(
        r"
local due = redis.call('ZRANGE', key('deliveries'), 0, 99, 'WITHSCORES')
for place = 1, #due, 2 do
    local id = due[place]
    if redis.call('EXISTS', key('job', id)) == 1 then index(id); set_delivery(id, owner_of(id), due[place + 1]) end
    redis.call('ZREM', key('deliveries'), id)
end
return #due
",
    )
});
