// Ownership: unique, shared and weak pointers, cloning, virtual dispatch.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <string>
#include <utility>
#include <vector>

struct Shape {
    virtual ~Shape() = default;
    virtual double area() const = 0;
    virtual std::unique_ptr<Shape> clone() const = 0;
};

struct Circle : Shape {
    double radius;
    explicit Circle(double r) : radius(r) {}
    double area() const override { return M_PI * radius * radius; }
    std::unique_ptr<Shape> clone() const override { return std::make_unique<Circle>(*this); }
};

struct Rect : Shape {
    double width, height;
    Rect(double w, double h) : width(w), height(h) {}
    double area() const override { return width * height; }
    std::unique_ptr<Shape> clone() const override { return std::make_unique<Rect>(*this); }
};

struct Folder : std::enable_shared_from_this<Folder> {
    std::string name;
    std::weak_ptr<Folder> parent;
    std::vector<std::shared_ptr<Folder>> children;

    explicit Folder(std::string n) : name(std::move(n)) {}
    ~Folder() { std::cout << "closing " << name << '\n'; }

    std::shared_ptr<Folder> add(const std::string& child) {
        children.push_back(std::make_shared<Folder>(child));
        children.back()->parent = weak_from_this();
        return children.back();
    }
    std::string path() const {
        auto above = parent.lock();
        return above ? above->path() + "/" + name : name;
    }
};

int main() {
    std::vector<std::unique_ptr<Shape>> shapes;
    shapes.push_back(std::make_unique<Circle>(2));
    shapes.push_back(std::make_unique<Rect>(3, 4));
    shapes.push_back(shapes[0]->clone());
    std::sort(shapes.begin(), shapes.end(), [](auto& a, auto& b) { return a->area() < b->area(); });
    for (const auto& shape : shapes) std::cout << shape->area() << ' ';
    std::cout << (dynamic_cast<Rect*>(shapes[0].get()) != nullptr) << '\n';

    auto root = std::make_shared<Folder>("root");
    auto leaf = root->add("usr")->add("bin");
    std::cout << leaf->path() << ' ' << leaf.use_count() << ' ' << root.use_count() << '\n';
    root.reset();
    std::cout << leaf->path() << ' ' << leaf.use_count() << ' ' << leaf->parent.expired() << '\n';
}
