// Concurrency: std::async, packaged tasks, condition variables, a thread pool.
#include <condition_variable>
#include <functional>
#include <future>
#include <iostream>
#include <memory>
#include <mutex>
#include <queue>
#include <stdexcept>
#include <thread>
#include <vector>

class ThreadPool {
public:
    explicit ThreadPool(int workers) {
        for (int i = 0; i < workers; i++) threads.emplace_back([this] { work(); });
    }

    ~ThreadPool() {
        std::unique_lock lock(mutex);
        stopping = true;
        lock.unlock();
        ready.notify_all();
        for (auto& thread : threads) thread.join();
    }

    template <typename F>
    auto submit(F job) {
        auto task = std::make_shared<std::packaged_task<decltype(job())()>>(std::move(job));
        std::lock_guard lock(mutex);
        jobs.push([task] { (*task)(); });
        ready.notify_one();
        return task->get_future();
    }

private:
    void work() {
        for (;;) {
            std::unique_lock lock(mutex);
            ready.wait(lock, [this] { return stopping || !jobs.empty(); });
            if (jobs.empty()) return;
            auto job = std::move(jobs.front());
            jobs.pop();
            lock.unlock();
            job();
        }
    }

    std::mutex mutex;
    std::condition_variable ready;
    std::queue<std::function<void()>> jobs;
    std::vector<std::thread> threads;
    bool stopping = false;
};

int countPrimes(int from, int to) {
    int count = 0;
    for (int n = from; n < to; n++) {
        int d = 2;
        while (d * d <= n && n % d != 0) d++;
        count += n > 1 && d * d > n;
    }
    return count;
}

int main() {
    ThreadPool pool(4);
    std::vector<std::future<int>> parts;
    for (int from = 0; from < 10000; from += 1000) parts.push_back(pool.submit([from] { return countPrimes(from, from + 1000); }));
    int primes = 0;
    for (auto& part : parts) primes += part.get();
    std::cout << "primes below 10000: " << primes << '\n';
    auto half = std::async(std::launch::async, countPrimes, 0, 5000);
    std::cout << "primes below 5000: " << half.get() << '\n';
    try {
        pool.submit([]() -> int { throw std::runtime_error("from a worker"); }).get();
    } catch (const std::exception& error) {
        std::cout << "caught: " << error.what() << '\n';
    }
}
