// Ownership: a Box tree, Rc with RefCell and Weak, Option combinators.
use std::cell::RefCell;
use std::rc::{Rc, Weak};

#[derive(Debug, Default)]
struct Tree(Option<Box<Node>>);

#[derive(Debug)]
struct Node {
    key: i32,
    left: Tree,
    right: Tree,
}

impl Tree {
    fn insert(&mut self, key: i32) -> bool {
        match &mut self.0 {
            None => {
                self.0 = Some(Box::new(Node { key, left: Tree::default(), right: Tree::default() }));
                true
            }
            Some(node) if key < node.key => node.left.insert(key),
            Some(node) if key > node.key => node.right.insert(key),
            Some(_) => false,
        }
    }

    fn height(&self) -> usize {
        self.0.as_ref().map_or(0, |n| 1 + n.left.height().max(n.right.height()))
    }

    fn walk(&self, visit: &mut impl FnMut(i32)) {
        if let Some(node) = &self.0 {
            node.left.walk(visit);
            visit(node.key);
            node.right.walk(visit);
        }
    }
}

struct Folder {
    name: String,
    parent: RefCell<Weak<Folder>>,
    children: RefCell<Vec<Rc<Folder>>>,
}

impl Folder {
    fn new(name: &str) -> Rc<Self> {
        Rc::new(Folder { name: name.into(), parent: Default::default(), children: Default::default() })
    }

    fn add(self: &Rc<Self>, child: Rc<Folder>) -> Rc<Folder> {
        *child.parent.borrow_mut() = Rc::downgrade(self);
        self.children.borrow_mut().push(Rc::clone(&child));
        child
    }

    fn path(&self) -> String {
        let parent = self.parent.borrow().upgrade().map(|p| p.path() + "/");
        parent.unwrap_or_default() + &self.name
    }
}

fn main() {
    let mut tree = Tree::default();
    let added = [50, 30, 70, 20, 40, 60, 80, 30].map(|key| tree.insert(key));
    let mut keys = Vec::new();
    tree.walk(&mut |key| keys.push(key));
    println!("{keys:?} height {} last added {}", tree.height(), added[7]);

    let root = Folder::new("root");
    let leaf = root.add(Folder::new("usr")).add(Folder::new("bin"));
    println!("{} strong {} weak {}", leaf.path(), Rc::strong_count(&leaf), Rc::weak_count(&root));
    drop(root);
    println!("{} parent alive: {}", leaf.path(), leaf.parent.borrow().upgrade().is_some());
}
