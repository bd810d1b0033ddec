// A JSON value as std::variant: initializer lists, std::visit, escaping, indentation, queries by path.
#include <iomanip>
#include <iostream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

struct Json;
using List = std::vector<Json>;
using Object = std::map<std::string, Json>;

struct Json {
    std::variant<std::nullptr_t, bool, double, std::string, List, Object> value;

    Json(std::nullptr_t) : value(nullptr) {}
    Json(bool b) : value(b) {}
    Json(double n) : value(n) {}
    Json(int n) : value(static_cast<double>(n)) {}
    Json(const char* s) : value(std::string(s)) {}
    Json(List list) : value(std::move(list)) {}
    Json(Object object) : value(std::move(object)) {}

    const Json& operator[](const std::string& key) const { return std::get<Object>(value).at(key); }
    const Json& operator[](int index) const { return std::get<List>(value).at(static_cast<std::size_t>(index)); }
};

std::string quoted(const std::string& text) {
    std::ostringstream out;
    out << '"';
    for (unsigned char c : text) {
        if (c == '"' || c == '\\') out << '\\' << c;
        else if (c < 0x20) out << "\\u" << std::hex << std::setw(4) << std::setfill('0') << int(c);
        else out << c;
    }
    out << '"';
    return out.str();
}

std::string write(const Json& json, int depth = 0) {
    const std::string inner = "\n" + std::string(2 * depth + 2, ' '), outer = "\n" + std::string(2 * depth, ' ');
    auto writer = [&](const auto& value) -> std::string {
        using T = std::decay_t<decltype(value)>;
        std::ostringstream out;
        std::string separator = inner;
        if constexpr (std::is_same_v<T, std::nullptr_t>) {
            out << "null";
        } else if constexpr (std::is_same_v<T, std::string>) {
            out << quoted(value);
        } else if constexpr (std::is_same_v<T, List>) {
            out << '[';
            for (const auto& item : value) out << std::exchange(separator, "," + inner) << write(item, depth + 1);
            out << (value.empty() ? "]" : outer + "]");
        } else if constexpr (std::is_same_v<T, Object>) {
            out << '{';
            for (const auto& [key, item] : value)
                out << std::exchange(separator, "," + inner) << quoted(key) << ": " << write(item, depth + 1);
            out << (value.empty() ? "}" : outer + "}");
        } else {
            out << std::boolalpha << value;
        }
        return out.str();
    };
    return std::visit(writer, json.value);
}

int main() {
    Json document(Object{{"name", "Ada \"the first\""}, {"tags", List{"a\nb", 1.5, -3, true, nullptr}}, {"empty", List{}}, {"deep", Object{{"x", Object{}}}}});
    std::cout << write(document) << '\n' << write(document["tags"][1]) << ' ' << document.value.index() << '\n';
    try {
        document["missing"];
    } catch (const std::out_of_range&) {
        std::cout << "no such key\n";
    }
}
