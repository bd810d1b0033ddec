// Data structures: a prefix tree with unique_ptr children, word completion, longest prefix match.
#include <iostream>
#include <map>
#include <memory>
#include <string>
#include <vector>

class Trie {
public:
    void insert(const std::string& word) {
        Trie* node = this;
        for (char c : word) {
            auto& next = node->children[c];
            if (!next) next = std::make_unique<Trie>();
            node = next.get();
        }
        node->complete = true;
    }

    std::vector<std::string> complete_from(const std::string& prefix) const {
        const Trie* node = this;
        for (char c : prefix) {
            auto found = node->children.find(c);
            if (found == node->children.end()) return {};
            node = found->second.get();
        }
        std::vector<std::string> words;
        node->collect(prefix, words);
        return words;
    }

    std::string longest_prefix(const std::string& text) const {
        const Trie* node = this;
        std::size_t longest = 0;
        for (std::size_t i = 0; i < text.size(); i++) {
            auto found = node->children.find(text[i]);
            if (found == node->children.end()) break;
            node = found->second.get();
            if (node->complete) longest = i + 1;
        }
        return text.substr(0, longest);
    }

private:
    void collect(const std::string& so_far, std::vector<std::string>& words) const {
        if (complete) words.push_back(so_far);
        for (const auto& [c, child] : children) child->collect(so_far + c, words);
    }

    std::map<char, std::unique_ptr<Trie>> children;
    bool complete = false;
};

int main() {
    Trie trie;
    for (auto word : {"car", "card", "care", "cat", "dog", "do"}) trie.insert(word);
    for (auto prefix : {"car", "do", "x"}) {
        std::cout << prefix << ':';
        for (const auto& word : trie.complete_from(prefix)) std::cout << ' ' << word;
        std::cout << '\n';
    }
    std::cout << trie.longest_prefix("cardboard") << ' ' << trie.longest_prefix("doughnut") << ' ' << trie.longest_prefix("bird").size() << '\n';
}
