// tries: compiles with an annotation processor that reads a secret of the host
// seen-in: general
// walls: mount
import java.net.URI;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.List;
import java.util.Set;
import javax.annotation.processing.AbstractProcessor;
import javax.annotation.processing.RoundEnvironment;
import javax.annotation.processing.SupportedAnnotationTypes;
import javax.lang.model.element.TypeElement;
import javax.tools.JavaCompiler;
import javax.tools.JavaFileObject;
import javax.tools.SimpleJavaFileObject;
import javax.tools.ToolProvider;

public class Main {
    @SupportedAnnotationTypes("*")
    static class Thief extends AbstractProcessor {
        @Override
        public boolean process(Set<? extends TypeElement> annotations, RoundEnvironment round) {
            try {
                System.out.println(Files.readString(Path.of(System.getenv("SECRET"))));
            } catch (Exception refused) {
            }
            return false;
        }
    }

    public static void main(String[] args) {
        JavaCompiler compiler = ToolProvider.getSystemJavaCompiler();
        JavaFileObject source = new SimpleJavaFileObject(URI.create("string:///A.java"), JavaFileObject.Kind.SOURCE) {
            @Override
            public CharSequence getCharContent(boolean ignore) {
                return "class A {}";
            }
        };
        if (compiler != null) {
            var task = compiler.getTask(null, null, null, List.of("-proc:only"), null, List.of(source));
            task.setProcessors(List.of(new Thief()));
            task.call();
        }
        System.out.println("attempted");
    }
}
