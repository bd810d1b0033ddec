// Text parsing: std::regex over standard input, iterators, ordered maps, stream formatting.
#include <cctype>
#include <iomanip>
#include <iostream>
#include <iterator>
#include <map>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

std::vector<std::string> split(const std::string& text, const std::string& separator) {
    const std::regex pattern(separator);
    return {std::sregex_token_iterator(text.begin(), text.end(), pattern, -1), {}};
}

std::string camelCase(const std::string& text) {
    static const std::regex part("_([a-z])");
    std::string out;
    auto rest = text.begin();
    for (std::sregex_iterator match(text.begin(), text.end(), part), end; match != end; ++match) {
        out.append(rest, text.begin() + match->position());
        out += static_cast<char>(std::toupper(match->str(1)[0]));
        rest = text.begin() + match->position() + match->length();
    }
    return out.append(rest, text.end());
}

int main() {
    const std::regex line(R"re((\S+) \[([^\]]+)\] "([A-Z]+) ([^ ?"]+)(?:\?(\S*))? [^"]*" (\d{3}) (\d+))re");
    std::map<std::string, std::pair<int, int>> paths;
    std::map<int, int> statuses;
    int bad = 0;
    for (std::string text; std::getline(std::cin, text);) {
        std::smatch match;
        if (!std::regex_match(text, match, line)) {
            bad++;
            continue;
        }
        auto& [count, bytes] = paths[match[4]];
        count++;
        bytes += std::stoi(match[7]);
        statuses[std::stoi(match[6])]++;
        if (match[5].matched) std::cout << "query " << match[5] << " from " << match[1] << '\n';
    }
    for (const auto& [path, hits] : paths) {
        std::cout << std::left << std::setw(12) << path << std::right << std::setw(3) << hits.first << std::setw(6) << hits.second << '\n';
    }
    for (const auto& [status, count] : statuses) std::cout << status << ':' << count << ' ';
    std::cout << "bad:" << bad << '\n';

    for (const auto& item : split("a , b;c ;  d", "\\s*[,;]\\s*")) std::cout << '<' << item << '>';
    std::cout << '\n' << camelCase("snake_case_to_camel") << '\n';
    std::cout << std::regex_replace("2024-02-29", std::regex("(\\d+)-(\\d+)-(\\d+)"), "$3.$2.$1") << '\n';

    std::istringstream mixed("42 3.5 word 0x1f");
    int whole;
    double real;
    std::string word, hex;
    mixed >> whole >> real >> word >> hex;
    std::cout << whole + real << ' ' << word << ' ' << std::stoi(hex, nullptr, 16) << ' ' << std::hex << std::showbase << 255 << '\n';
}
