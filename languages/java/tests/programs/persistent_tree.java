// A generic persistent search tree: bounded type parameters, nested records, a lazy iterator.
import java.util.ArrayDeque;
import java.util.ArrayList;
import java.util.Deque;
import java.util.Iterator;
import java.util.List;
import java.util.NoSuchElementException;

public class PersistentTree<T extends Comparable<? super T>> implements Iterable<T> {
    private record Node<T>(T value, Node<T> left, Node<T> right) {}

    private final Node<T> root;

    private PersistentTree(Node<T> root) {
        this.root = root;
    }

    static <T extends Comparable<? super T>> PersistentTree<T> empty() {
        return new PersistentTree<>(null);
    }

    /** A tree with the value added; this one stays as it is. */
    PersistentTree<T> with(T value) {
        return new PersistentTree<>(insert(root, value));
    }

    private Node<T> insert(Node<T> node, T value) {
        if (node == null) {
            return new Node<>(value, null, null);
        }
        return value.compareTo(node.value) < 0
            ? new Node<>(node.value, insert(node.left, value), node.right)
            : new Node<>(node.value, node.left, insert(node.right, value));
    }

    @Override
    public Iterator<T> iterator() {
        Deque<Node<T>> path = new ArrayDeque<>();
        pushLeft(path, root);
        return new Iterator<>() {
            @Override
            public boolean hasNext() {
                return !path.isEmpty();
            }

            @Override
            public T next() {
                Node<T> node = path.pop();
                pushLeft(path, node.right);
                return node.value;
            }
        };
    }

    private void pushLeft(Deque<Node<T>> path, Node<T> from) {
        for (Node<T> node = from; node != null; node = node.left) {
            path.push(node);
        }
    }

    public static void main(String[] args) {
        PersistentTree<String> tree = empty();
        List<PersistentTree<String>> versions = new ArrayList<>();
        for (String word : "the quick brown fox jumps".split(" ")) {
            tree = tree.with(word);
            versions.add(tree);
        }
        for (PersistentTree<String> version : versions) {
            System.out.println(String.join(" ", version));
        }
        try {
            PersistentTree.<Integer>empty().iterator().next();
        } catch (NoSuchElementException e) {
            System.out.println("empty");
        }
    }
}
