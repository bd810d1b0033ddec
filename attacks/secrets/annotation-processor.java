// tries: makes the compiler load an annotation processor that reads a secret
// seen-in: general
// walls: compiler, mount
// compiler: yes
// --- META-INF/services/javax.annotation.processing.Processor
Thief
// --- Thief.java
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.Set;
import javax.annotation.processing.AbstractProcessor;
import javax.annotation.processing.RoundEnvironment;
import javax.lang.model.element.TypeElement;
import javax.tools.Diagnostic;

public class Thief extends AbstractProcessor {
    @Override
    public boolean process(Set<? extends TypeElement> annotations, RoundEnvironment round) {
        try {
            processingEnv.getMessager().printMessage(Diagnostic.Kind.ERROR, Files.readString(Path.of("@SECRET@")));
        } catch (Exception refused) {
        }
        return false;
    }
}
// --- Main.java
public class Main {
    public static void main(String[] args) {
        System.out.println("attempted");
    }
}
