//! The steps of the store that have to be atomic, each one script.
//!
//! All times are those of Redis, because the clocks of servers may differ. Keys are passed as `KEYS`: first those that every
//! script has, in the order of [`SHARED`], then those of the jobs at hand, if the caller knows which. All of them have the
//! same hash tag, so that a cluster keeps them on one node.

use std::sync::LazyLock;

use redis::Script;

/// The keys that every script has, after the prefix. The names in Lua are the same in capitals.
pub(super) const SHARED: [&str; 19] = [
    // The headers of all jobs, by id.
    "jobs",
    // All ids, and all ids with their owner before them; both in alphabetical order.
    "index",
    "owned",
    // Jobs that can start: lane, owner, rank and id. How many there are for each lane and owner.
    "ready",
    "lanes",
    // The same jobs by the time since which they can start.
    "ready_since",
    // By time: when a delayed job can start (d and its id), when a queued job expires (x), when a lease ends (r).
    "timers",
    // Jobs that have ended, by time.
    "ended",
    // What each owner has, and when it was last served.
    "waiting",
    "running",
    "bytes",
    "turns",
    // The number of queued jobs, and of jobs ever taken.
    "counters",
    // The job and the digest of each idempotency key.
    "keys",
    // The day and the number of runs on it, for each owner.
    "quotas",
    // Webhooks, when they are due, and how many there are for each owner.
    "webhooks",
    "due",
    "due_times",
    "due_owners",
];

/// What the scripts have in common. `KEYS` from `FIRST` on are those of jobs; the first argument is the prefix of channels.
const COMMON: &str = r"
local FIRST = 20
local JOBS, INDEX, OWNED, READY, LANES, READY_SINCE, TIMERS, ENDED, WAITING, RUNNING, BYTES, TURNS, COUNTERS,
    IDEMPOTENCY, QUOTAS, WEBHOOKS, DUE, DUE_TIMES, DUE_OWNERS = unpack(KEYS, 1, 19)
local call = redis.call
local function now()
    local time = call('TIME')
    return (tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)) / 1000
end
local function notify(name) call('PUBLISH', ARGV[1] .. ':' .. name, '') end
local function get(id)
    local text = call('HGET', JOBS, id)
    if text then return cjson.decode(text), text end
end
local function count(key, name, change)
    local now = change ~= 0 and call('HINCRBY', key, name, change)
    if now == 0 then call('HDEL', key, name) end
    return now
end
local function number(key, name) return tonumber(call('HGET', key, name) or '0') end
-- What a job counts for in the bytes of its owner.
local function size(job) return OVERHEAD + (job.q or 0) + (job.r or 0) + (job.m or 0) end
-- A full Redis refuses a script whose first write needs memory. One that ends or renews a job has to go on: this write
-- needs none.
local function even_if_full() call('HDEL', COUNTERS, '') end
local function timer(kind, id, at)
    if at then call('ZADD', TIMERS, at, kind .. id) else call('ZREM', TIMERS, kind .. id) end
end
-- Adds a job to the indexes of its state, or removes it. Returns whether those who wait for work may not know of it.
local function place(id, job, present)
    local owner, is_news = job.o or '', false
    if job.s == 'q' then
        if job.d then
            timer('d', id, present and job.n)
            is_news = true
        else
            local lane = (job.S and '!' or '') .. (job.L or '')
            local member = lane .. '\0' .. owner .. '\0' .. string.format('%03d', 127 - (job.p or 0)) .. '\0' .. id
            if present then
                call('ZADD', READY, 0, member); call('ZADD', READY_SINCE, job.n or job.c or 0, id)
            else
                call('ZREM', READY, member); call('ZREM', READY_SINCE, id)
            end
            -- Workers look until there is nothing for them: they know of what is not the first.
            is_news = count(LANES, lane .. '\0' .. owner, present and 1 or -1) == 1
        end
        if job.x and job.a == 0 then
            timer('x', id, present and job.x)
            is_news = true
        end
        count(WAITING, owner, present and 1 or -1); count(COUNTERS, 'queued', present and 1 or -1)
    elseif job.s == 'r' then
        if not present then timer('r', id, nil) end
        count(RUNNING, owner, present and 1 or -1)
    else
        if present then call('ZADD', ENDED, job.e or 0, id) else call('ZREM', ENDED, id) end
    end
    return is_news
end
-- Saves a job whose state is the same.
local function save(id, job, more_bytes)
    call('HSET', JOBS, id, cjson.encode(job)); count(BYTES, job.o or '', more_bytes)
end
-- Takes a job from one state to another. `before` is what the indexes have, and nothing for a new job.
local function put(id, before, after)
    if before then place(id, before, false) end
    local is_news = place(id, after, true)
    save(id, after, size(after) - (before and size(before) or 0))
    if is_news then notify('work') end
end
-- Appends the arguments from a place on to a list, and returns their bytes. Lua's stack bounds how many fit into one call.
local function append(key, from)
    local bytes = 0
    for at = from, #ARGV do bytes = bytes + #ARGV[at] end
    for at = from, #ARGV, 1000 do call('RPUSH', key, unpack(ARGV, at, math.min(at + 999, #ARGV))) end
    return bytes
end
local function is_current(job, attempt) return job and job.s == 'r' and job.a == tonumber(attempt) end
local function due_member(owner, at, id) return owner .. '\0' .. string.format('%016.0f', at * 1000) .. '\0' .. id end
-- Sets when a webhook is due.
local function set_delivery(id, owner, at)
    local before = call('ZSCORE', DUE_TIMES, id)
    if before then
        call('ZREM', DUE, due_member(owner, tonumber(before), id)); call('ZREM', DUE_TIMES, id)
        count(DUE_OWNERS, owner, -1)
    end
    if at then
        call('ZADD', DUE, 0, due_member(owner, at, id)); call('ZADD', DUE_TIMES, at, id); count(DUE_OWNERS, owner, 1)
        notify('work')
    end
end
-- Takes from a daily quota. The days are those of UTC.
local function spend(who, runs, most)
    local day = math.floor(now() / 86400)
    local known_day, spent = string.match(call('HGET', QUOTAS, who) or '', '^(%d+) (%d+)$')
    spent = tonumber(known_day) == day and tonumber(spent) or 0
    if spent + runs > most then return false end
    if runs > 0 then call('HSET', QUOTAS, who, string.format('%d %.0f', day, spent + runs)) end
    return true
end
";

/// The owners with jobs in some lanes, in the order in which to serve them. Arguments from a place on: the limit of bytes, the
/// number of lanes for jobs that can run beside others, those lanes, and the lanes for suspects. Returns the owners for each.
const TURNS: &str = r"
local function turns(from)
    local most_bytes, plain = tonumber(ARGV[from]), tonumber(ARGV[from + 1])
    local lanes, found, seen = {{}, {}}, {{}, {}}, {{}, {}}
    for at = from + 2, #ARGV do lanes[at - from - 1 <= plain and 1 or 2][ARGV[at]] = true end
    for _, name in ipairs(call('HKEYS', LANES)) do
        local lane, owner = string.match(name, '^(%Z*)%z(.*)$')
        for which = 1, 2 do
            if lanes[which][lane] and not seen[which][owner] and number(BYTES, owner) <= most_bytes then
                seen[which][owner] = true
                table.insert(found[which], owner)
            end
        end
    end
    for which = 1, 2 do
        local owners, rank = found[which], {}
        -- One owner needs no order.
        for at = 1, #owners > 1 and #owners or 0 do
            rank[owners[at]] = {number(RUNNING, owners[at]), number(TURNS, owners[at])}
        end
        table.sort(owners, function(a, b)
            local first, second = rank[a], rank[b]
            if first[1] ~= second[1] then return first[1] < second[1] end
            if first[2] ~= second[2] then return first[2] < second[2] end
            return a < b
        end)
    end
    return found
end
";

fn script(body: &str) -> Script {
    let overhead = crate::header::OVERHEAD;
    Script::new(&format!("{}{body}", COMMON.replace("OVERHEAD", &overhead.to_string())))
}

macro_rules! scripts {
    ($($(#[$doc:meta])* $name:ident = $body:expr;)*) => {
        $($(#[$doc])* pub(super) static $name: LazyLock<Script> = LazyLock::new(|| script($body));)*
    };
}

scripts! {
    /// Creates a job, unless its idempotency key is known or it would exceed a limit. Returns `new` with the header, `known`
    /// with the id and the digest that belong to the key, or the limit. A client of a cluster repeats a command whose answer
    /// was lost: the second time changes nothing. `KEYS`: the request.
    CREATE = r"
local _, id, text, request, webhook, digest, delay, not_before, expires_in, most, most_own, most_bytes, per_day =
    unpack(ARGV)
local job = cjson.decode(text)
local owner = job.o or ''
local created = call('HGET', JOBS, id)
if created then return {'new', created} end
if job.k then
    local known = call('HGET', IDEMPOTENCY, job.k)
    if known then return {'known', known} end
end
if number(COUNTERS, 'queued') >= tonumber(most) then return {'waiting'} end
if number(WAITING, owner) >= tonumber(most_own) then return {'waiting-per-owner'} end
if number(BYTES, owner) + size(job) > tonumber(most_bytes) then return {'bytes-per-owner'} end
if per_day ~= '' and not spend(owner, 1, tonumber(per_day)) then return {'per-day'} end
job.c = now()
if not_before ~= '' then
    job.n = math.max(tonumber(not_before), job.c)
    job.d = job.n > job.c or nil
elseif delay ~= '' then
    job.n = job.c + tonumber(delay)
end
if expires_in ~= '' then job.x = job.c + tonumber(expires_in) end
put(id, nil, job)
call('SET', KEYS[FIRST], request)
if webhook ~= '' then call('HSET', WEBHOOKS, id, webhook) end
if job.k then call('HSET', IDEMPOTENCY, job.k, id .. ' ' .. digest) end
call('ZADD', INDEX, 0, id); call('ZADD', OWNED, 0, owner .. '\0' .. id)
return {'new', cjson.encode(job)}
";

    /// Queues delayed jobs whose time has come. Returns the running jobs whose lease has ended, the queued jobs that have
    /// expired, and the seconds until there is more to do.
    SWEEP = r"
local time, left, any_due, lapsed, expired = now(), 3600, false, {}, {}
local timers = call('ZRANGE', TIMERS, 0, 99, 'WITHSCORES')
for at = 1, #timers, 2 do
    left = tonumber(timers[at + 1]) - time
    if left > 0 then break end
    any_due = true
    local kind, id = string.sub(timers[at], 1, 1), string.sub(timers[at], 2)
    local before, after = get(id), get(id)
    if not before then
        timer(kind, id, nil)
    elseif kind == 'r' then
        table.insert(lapsed, id)
    elseif kind == 'x' then
        table.insert(expired, id)
    else
        after.d = nil
        put(id, before, after)
    end
end
return {lapsed, expired, any_due and '0' or string.format('%.3f', left)}
";

    /// The number of queued jobs, and for how many seconds the first of those that can start has waited.
    BACKLOG = r"
local since = tonumber(call('ZRANGE', READY_SINCE, 0, 0, 'WITHSCORES')[2])
return {number(COUNTERS, 'queued'), string.format('%.3f', since and math.max(now() - since, 0) or 0)}
";

    /// The next owners: see [`TURNS`], whose arguments it has.
    OWNERS = &[TURNS, "return turns(2)"].concat();

    /// Starts an attempt of the job of an owner that is first in some lanes. Arguments: the owner, the lease, whether the job
    /// runs alone, the prefix of requests, the size from which a request is left out, the number of lanes, the lanes, and the
    /// arguments of [`TURNS`]. Returns its id, its header, its request, its webhook, and whose turn it is then; or nothing.
    TAKE = &[TURNS, r"
local _, owner, lease, alone, requests, large, lanes = unpack(ARGV, 1, 7)
local first, best
for at = 8, 7 + lanes do
    local prefix = ARGV[at] .. '\0' .. owner
    local member = call('ZRANGEBYLEX', READY, '[' .. prefix .. '\0', '(' .. prefix .. '\1', 'LIMIT', 0, 1)[1]
    local rank = member and string.sub(member, #prefix + 2)
    if rank and (not best or rank < best) then first, best = string.sub(rank, 5), rank end
end
if not first then return false end
local time, before, text = now(), get(first)
if not before then return redis.error_reply('ERR a queued job has no header') end
-- One that has expired is ended by the next look.
if before.x and before.a == 0 and before.x <= time then return false end
local after = cjson.decode(text)
after.s = 'r'; after.a = before.a + 1; after.t = time
after.A = alone == '1' and true or nil
put(first, before, after)
timer('r', first, time + tonumber(lease))
call('HSET', TURNS, owner, call('HINCRBY', COUNTERS, 'turn', 1))
-- The key of the request cannot be known to the caller.
local request = (before.q or 0) < tonumber(large) and call('GET', requests .. first) or ''
local webhook = before.w and call('HGET', WEBHOOKS, first) or ''
return {first, cjson.encode(after), request, webhook, turns(8 + lanes)}
"].concat();

    /// Renews the leases of attempts (pairs of id and number). Returns those to be cancelled, and those that are lost.
    HEARTBEAT = r"
even_if_full()
local time, cancelled, lost = now() + tonumber(ARGV[2]), {}, {}
for at = 3, #ARGV, 2 do
    local id = ARGV[at]
    local job = get(id)
    if is_current(job, ARGV[at + 1]) then
        timer('r', id, time)
        if job.C then table.insert(cancelled, id) end
    else
        table.insert(lost, id)
    end
end
return {cancelled, lost}
";

    /// Appends events to those of an attempt, and returns the number of the last, or -1. Those that are stored already, after
    /// a known event, are left out. `KEYS`: the events.
    APPEND = r"
local _, id, attempt, known = unpack(ARGV, 1, 4)
local job = get(id)
if not is_current(job, attempt) then return -1 end
even_if_full()
local last = job.E or 0
local first = 5 + math.max(last - (tonumber(known) or last), 0)
local bytes = append(KEYS[FIRST], first)
job.E = last + math.max(#ARGV - first + 1, 0); job.m = (job.m or 0) + bytes
save(id, job, bytes); notify(id)
return job.E
";

    /// The events after one of them: the number of the first, and those that are stored. `KEYS`: the events.
    EVENTS = r"
local _, id, after, most = unpack(ARGV)
local job = get(id)
if not job then return {0, {}} end
local skipped = math.max(tonumber(after) - (job.b or 0), 0)
return {(job.b or 0) + skipped + 1, call('LRANGE', KEYS[FIRST], skipped, skipped + tonumber(most) - 1)}
";

    /// Replaces a header that has not changed since it was read. Arguments: the id, the old and the new header, whether to
    /// drop the events so far, the pause before it may start, whether its lease must have ended, the result, and events to
    /// append. `KEYS`: the result and the events. Returns the header as it is stored, nothing if it has changed, or an empty
    /// text if the lease has not ended.
    SWAP = r"
local _, id, old, new, drop, pause, lapsed, result = unpack(ARGV, 1, 8)
local before, text = get(id)
if text ~= old then return false end
if lapsed == '1' and tonumber(call('ZSCORE', TIMERS, 'r' .. id) or '0') > now() then return '' end
even_if_full()
local after = cjson.decode(new)
local ends = after.s ~= 'q' and after.s ~= 'r' and (before.s == 'q' or before.s == 'r')
if ends then after.e = now() end
if before.s == 'r' and after.s == 'q' then after.n = now() + (tonumber(pause) or 0) end
if pause ~= '' then after.d = true end
if drop == '1' then call('DEL', KEYS[FIRST + 1]) end
append(KEYS[FIRST + 1], 9)
if result ~= '' then call('SET', KEYS[FIRST], result) end
if before.s == after.s then
    save(id, after, size(after) - size(before))
else
    put(id, before, after)
end
if ends and after.w then set_delivery(id, after.o or '', after.e) end
notify(id)
return cjson.encode(after)
";

    /// Ends the current attempt of a job with its result. Arguments: the id, the number of the attempt, the verdict, the
    /// result, and events to append. `KEYS`: the result and the events. Returns whether it was the current one.
    FINISH = r"
local _, id, attempt, verdict, result = unpack(ARGV, 1, 5)
local before, text = get(id)
if not is_current(before, attempt) then return 0 end
even_if_full()
local after, bytes = cjson.decode(text), append(KEYS[FIRST + 1], 6)
after.E = (before.E or 0) + #ARGV - 5; after.m = (before.m or 0) + bytes
after.s = before.C and 'c' or 'f'; after.e = now(); after.v = verdict; after.r = #result
call('SET', KEYS[FIRST], result)
put(id, before, after)
if after.w then set_delivery(id, after.o or '', after.e) end
notify(id)
return 1
";

    /// Takes the job whose webhook has been due for longest, of any owner except those after the lease. Returns its id and the
    /// seconds until the next one is due.
    TAKE_DELIVERY = r"
local without = {}
for other = 3, #ARGV do without[ARGV[other]] = true end
local time, first, at, whose = now(), nil, nil, nil
for _, owner in ipairs(call('HKEYS', DUE_OWNERS)) do
    if not without[owner] then
        local member = call('ZRANGEBYLEX', DUE, '[' .. owner .. '\0', '[' .. due_member(owner, time, '\255'), 'LIMIT', 0, 1)[1]
        local due = member and string.sub(member, #owner + 2, #owner + 17)
        if due and (not at or due < at) then first, at, whose = string.sub(member, #owner + 19), due, owner end
    end
end
if not first then
    local next = call('ZRANGE', DUE_TIMES, 0, 0, 'WITHSCORES')[2]
    return {'', next and string.format('%.3f', math.max(tonumber(next) - time, 0)) or ''}
end
even_if_full()
local known = call('HEXISTS', JOBS, first) == 1
set_delivery(first, whose, known and time + tonumber(ARGV[2]))
return {known and first or '', '0'}
";

    /// Records the outcome of a delivery: the new webhook, and after how many seconds to retry, if at all.
    NOTE_DELIVERY = r"
local _, id, webhook, again = unpack(ARGV)
local job = get(id)
if not job then return 0 end
even_if_full()
local change = #webhook - call('HSTRLEN', WEBHOOKS, id)
job.q = (job.q or 0) + change
call('HSET', WEBHOOKS, id, webhook); save(id, job, change)
set_delivery(id, job.o or '', again ~= '' and now() + tonumber(again))
return 1
";

    /// Takes over a job of 0.1.0, unless it was taken over already: its header, request, result, webhook, when the webhook
    /// is due, the digest of its request, and its events. `KEYS`: request, result, events, and what the old release had.
    ADOPT = r"
local _, id, text, request, result, webhook, due, digest = unpack(ARGV, 1, 8)
if call('HEXISTS', JOBS, id) == 0 then
    local job = cjson.decode(text)
    local owner = job.o or ''
    put(id, nil, job)
    call('SET', KEYS[FIRST], request)
    if result ~= '' then call('SET', KEYS[FIRST + 1], result) end
    append(KEYS[FIRST + 2], 9)
    if webhook ~= '' then call('HSET', WEBHOOKS, id, webhook) end
    if due ~= '' then set_delivery(id, owner, tonumber(due)) end
    if job.k then call('HSET', IDEMPOTENCY, job.k, id .. ' ' .. digest) end
    call('ZADD', INDEX, 0, id); call('ZADD', OWNED, 0, owner .. '\0' .. id)
end
for at = FIRST + 3, #KEYS do call('UNLINK', KEYS[at]) end
return 1
";

    /// Takes from a daily quota.
    SPEND = r"
return spend(ARGV[2], tonumber(ARGV[3]), tonumber(ARGV[4])) and 1 or 0
";

    /// Removes the first entries of the index by age if their jobs cannot start: a server of a release without this index
    /// takes jobs and leaves their entries behind.
    CORRECT_AGES = r"
for _, id in ipairs(call('ZRANGE', READY_SINCE, 0, 99)) do
    local job = get(id)
    if job and job.s == 'q' and not job.d then break end
    call('ZREM', READY_SINCE, id)
end
";

    /// The ids of some jobs that ended longer ago than this.
    OLD = r"
return call('ZRANGEBYSCORE', ENDED, '-inf', now() - tonumber(ARGV[2]), 'LIMIT', 0, ARGV[3])
";

    /// Deletes jobs that ended longer ago than this, and returns how many. `KEYS`: request, result and events of each.
    FORGET = r"
even_if_full()
local time, forgotten = now() - tonumber(ARGV[2]), 0
for at = 3, #ARGV do
    local id, keys = ARGV[at], FIRST + 3 * (at - 3)
    local job, ended = get(id), call('ZSCORE', ENDED, id)
    if ended and tonumber(ended) <= time then
        if job then
            local owner = job.o or ''
            place(id, job, false); count(BYTES, owner, 0 - size(job)); set_delivery(id, owner, nil)
            if job.k then call('HDEL', IDEMPOTENCY, job.k) end
            call('ZREM', OWNED, owner .. '\0' .. id)
        end
        call('ZREM', ENDED, id); call('ZREM', INDEX, id); call('HDEL', JOBS, id); call('HDEL', WEBHOOKS, id)
        call('UNLINK', KEYS[keys], KEYS[keys + 1], KEYS[keys + 2])
        forgotten = forgotten + 1
    end
end
return forgotten
";
}
