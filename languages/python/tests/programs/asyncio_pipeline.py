# asyncio: a queue with several consumers, gather order, timeouts, cancellation, semaphores.
import asyncio


async def consumer(queue, results):
    while True:
        number = await queue.get()
        await asyncio.sleep(0)
        results[number] = number * number
        queue.task_done()


async def squares(count, workers):
    queue, results = asyncio.Queue(maxsize=5), {}
    tasks = [asyncio.create_task(consumer(queue, results)) for _ in range(workers)]
    for number in range(count):
        await queue.put(number)
    await queue.join()
    for task in tasks:
        task.cancel()
    outcomes = await asyncio.gather(*tasks, return_exceptions=True)
    cancelled = sum(isinstance(o, asyncio.CancelledError) for o in outcomes)
    return sum(results.values()), cancelled


async def limited(jobs, limit):
    gate, running, peak = asyncio.Semaphore(limit), 0, 0

    async def job():
        nonlocal running, peak
        async with gate:
            running += 1
            peak = max(peak, running)
            await asyncio.sleep(0.001)
            running -= 1

    await asyncio.gather(*(job() for _ in range(jobs)))
    return peak


async def delayed(value, seconds):
    await asyncio.sleep(seconds)
    return value


async def main():
    total, cancelled = await squares(101, workers=4)
    print("sum of squares to 100:", total)
    print("consumers cancelled:", cancelled)
    print("gathered:", await asyncio.gather(delayed("a", 0.03), delayed("b", 0.01), delayed("c", 0)))
    print("peak with limit 3:", await limited(12, 3))
    try:
        await asyncio.wait_for(delayed("late", 30), timeout=0.01)
    except asyncio.TimeoutError:
        print("timed out")


asyncio.run(main())
