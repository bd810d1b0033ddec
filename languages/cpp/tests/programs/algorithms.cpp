// Standard algorithms and lambdas: partitions, permutations, merging, rotation, reductions.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <iostream>
#include <iterator>
#include <numeric>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

template <typename Range>
void print(const std::string& label, const Range& range) {
    std::cout << label << ':';
    for (const auto& item : range) std::cout << ' ' << item;
    std::cout << '\n';
}

int editDistance(const std::string& a, const std::string& b) {
    std::vector<int> row(b.size() + 1);
    std::iota(row.begin(), row.end(), 0);
    for (std::size_t i = 0; i < a.size(); i++) {
        int diagonal = std::exchange(row[0], static_cast<int>(i) + 1);
        for (std::size_t j = 0; j < b.size(); j++) {
            int best = std::min({row[j] + 1, row[j + 1] + 1, diagonal + (a[i] != b[j])});
            diagonal = std::exchange(row[j + 1], best);
        }
    }
    return row.back();
}

int main() {
    std::vector<int> v = {5, 3, 8, 1, 9, 2, 7, 3};
    auto sorted = v;
    std::sort(sorted.begin(), sorted.end(), std::greater<>());
    print("descending", sorted);
    std::stable_partition(v.begin(), v.end(), [](int n) { return n % 2 == 0; });
    print("even first", v);
    std::rotate(v.begin(), v.begin() + 2, v.end());
    print("rotated", v);
    std::nth_element(v.begin(), v.begin() + 4, v.end());
    std::cout << "upper median: " << v[4] << '\n';
    std::sort(v.begin(), v.end());
    v.erase(std::unique(v.begin(), v.end()), v.end());
    std::cout << "distinct: " << v.size() << ", at least 4: " << *std::lower_bound(v.begin(), v.end(), 4) << '\n';

    std::string word = "abc";
    std::vector<std::string> permutations;
    do permutations.push_back(word);
    while (std::next_permutation(word.begin(), word.end()));
    print("permutations", permutations);

    std::set<int> a = {1, 2, 3, 4}, b = {3, 4, 5};
    std::vector<int> common, all;
    std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(common));
    std::merge(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(all));
    print("common", common);
    print("merged", all);

    std::vector<std::uint64_t> fibonacci(91, 1);
    fibonacci[0] = 0;
    for (std::size_t i = 2; i < fibonacci.size(); i++) fibonacci[i] = fibonacci[i - 1] + fibonacci[i - 2];
    std::cout << "fib(90): " << fibonacci.back() << ", gcd: " << std::gcd(1071, 462) << '\n';
    std::cout << "dot: " << std::inner_product(a.begin(), a.end(), a.begin(), 0) << '\n';
    std::cout << "edits: " << editDistance("kitten", "sitting") << ' ' << editDistance("intention", "execution") << '\n';

    std::mt19937 twister;
    std::minstd_rand0 standard;
    twister.discard(9999);
    standard.discard(9999);
    std::cout << "10000th: " << twister() << ' ' << standard() << '\n';
}
