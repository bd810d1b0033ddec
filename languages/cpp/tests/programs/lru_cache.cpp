// Data structures: an LRU cache on list and unordered_map, optional results, memoised recursion.
#include <functional>
#include <iostream>
#include <list>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>

template <typename Key, typename Value>
class LruCache {
public:
    explicit LruCache(std::size_t n) : capacity(n) {}

    std::optional<Value> get(const Key& key) {
        auto found = index.find(key);
        if (found == index.end()) return std::nullopt;
        order.splice(order.begin(), order, found->second);
        return found->second->second;
    }

    void put(const Key& key, Value value) {
        if (auto found = index.find(key); found != index.end()) order.erase(found->second);
        order.emplace_front(key, std::move(value));
        index[key] = order.begin();
        if (order.size() > capacity) {
            index.erase(order.back().first);
            order.pop_back();
        }
    }

private:
    std::size_t capacity;
    std::list<std::pair<Key, Value>> order;
    std::unordered_map<Key, typename std::list<std::pair<Key, Value>>::iterator> index;
};

int main() {
    LruCache<std::string, int> cache(2);
    cache.put("a", 1);
    cache.put("b", 2);
    cache.get("a");
    cache.put("c", 3);
    for (auto key : {"a", "b", "c"}) std::cout << key << '=' << cache.get(key).value_or(-1) << ' ';
    std::cout << '\n';

    int calls = 0;
    LruCache<int, long> memo(100);
    std::function<long(int)> fibonacci = [&](int n) -> long {
        if (auto known = memo.get(n)) return *known;
        calls++;
        long value = n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2);
        memo.put(n, value);
        return value;
    };
    std::cout << "fib(90): " << fibonacci(90) << " in " << calls << " calls\n";
}
