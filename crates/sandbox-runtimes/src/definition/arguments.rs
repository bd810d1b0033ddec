//! Arguments that a request may pass to a compiler or an interpreter: those that a definition lists.

use regex_lite::Regex;
use serde::Deserialize;

use super::{AllowedArguments, Definition};

/// The most arguments for a compiler or an interpreter, and the most bytes in one.
const MOST_ARGUMENTS: usize = 100;
const LONGEST_ARGUMENT: usize = 1000;

/// A standard or edition of a language that a request may choose.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Standards {
    /// Arguments of the compile script that choose the standard. `{standard}` is replaced.
    pub arguments: Vec<String>,
    /// The standards.
    pub names: Vec<String>,
}

/// An expression that matches only a whole text.
#[derive(Debug, Clone)]
pub struct WholePattern(Regex);

impl<'de> Deserialize<'de> for WholePattern {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = String::deserialize(deserializer)?;
        Regex::new(&format!("^(?:{text})$"))
            .map(Self)
            .map_err(|error| serde::de::Error::custom(format!("invalid regular expression '{text}': {error}")))
    }
}

/// Why an argument was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ArgumentError {
    /// The field of a request that has it.
    pub field: &'static str,
    why: String,
}

impl Definition {
    /// The arguments for the compile script: those that choose the standard, then those that were given.
    pub fn compiler_arguments(&self, standard: Option<&str>, given: &[String]) -> Result<Vec<String>, ArgumentError> {
        let mut arguments = vec![];
        if let Some(name) = standard {
            arguments = self.standard(name)?;
        }
        let allowed = self.compile.as_ref().map(|compile| &compile.arguments);
        check(given, allowed, self.title(), "compiler", "compiler_args")?;
        arguments.extend_from_slice(given);
        Ok(arguments)
    }

    /// Checks the arguments for the interpreter.
    pub fn check_interpreter_arguments(&self, given: &[String]) -> Result<(), ArgumentError> {
        check(given, Some(&self.run.arguments), self.title(), "interpreter", "interpreter_args")
    }

    fn standard(&self, name: &str) -> Result<Vec<String>, ArgumentError> {
        let error = |why| ArgumentError { field: "standard", why };
        let title = self.title();
        let standards = self.compile.as_ref().and_then(|compile| compile.standards.as_ref());
        let standards = standards.ok_or_else(|| error(format!("{title} has no standards to choose from")))?;
        if !standards.names.iter().any(|known| known == name) {
            let (name, names) = (shown(name), standards.names.join(", "));
            return Err(error(format!("unknown standard '{name}' of {title}: expected one of {names}")));
        }
        Ok(standards.arguments.iter().map(|argument| argument.replace("{standard}", name)).collect())
    }
}

fn check(
    given: &[String],
    allowed: Option<&AllowedArguments>,
    title: &str,
    what: &str,
    field: &'static str,
) -> Result<(), ArgumentError> {
    let error = |why| ArgumentError { field, why };
    if given.is_empty() {
        return Ok(());
    }
    let Some(allowed) = allowed.filter(|allowed| !allowed.is_empty()) else {
        return Err(error(format!("{title} has no {what} arguments to set")));
    };
    if given.len() > MOST_ARGUMENTS {
        return Err(error(format!("{} {what} arguments exceed the maximum of {MOST_ARGUMENTS}", given.len())));
    }
    let is_allowed = |argument: &&String| {
        argument.len() <= LONGEST_ARGUMENT
            && !argument.contains(char::is_control)
            && allowed.values().any(|pattern| pattern.0.is_match(argument))
    };
    match given.iter().find(|argument| !is_allowed(argument)) {
        None => Ok(()),
        Some(argument) => {
            let names: Vec<_> = allowed.keys().map(String::as_str).collect();
            let (argument, names) = (shown(argument), names.join(", "));
            Err(error(format!("{what} argument '{argument}' is not allowed for {title}; allowed are {names}")))
        }
    }
}

/// The beginning of a text, without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|c| !c.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use crate::Registry;

    fn words(text: &str) -> Vec<String> {
        text.split(' ').filter(|word| !word.is_empty()).map(str::to_owned).collect()
    }

    #[test]
    fn harmless_arguments_are_allowed() {
        let registry = Registry::shipped().expect("valid");
        for (language, arguments) in [
            (
                "c",
                "-std=c11 -O3 -Ofast -g -Wall -Werror=format -Wno-unused -DX -DX=a'\"$b -UX -lm -pthread -march=native -fopenmp",
            ),
            ("cpp", "-std=c++20 -O0 -fsanitize=address,undefined -Wextra -fno-exceptions -mavx2 -static"),
            ("java", "--release=17 -Xlint:all --enable-preview -g"),
            ("rust", "--edition=2024 -Copt-level=3 -Coverflow-checks=off -Dwarnings -Aunused_variables"),
            ("go", "-tags=a,b"),
            ("typescript", "--noImplicitAny --experimentalDecorators"),
        ] {
            let definition = registry.by_name(language).expect("known");
            assert_eq!(definition.compiler_arguments(None, &words(arguments)), Ok(words(arguments)), "{language}");
        }
        for (language, arguments) in [
            ("python", "-O -OO -Xutf8 -Xdev -Wignore -Werror::DeprecationWarning -u -B -I -s"),
            ("javascript", "--stack-size=2000 --harmony --expose-gc --no-warnings"),
            ("typescript", "--stack-size=2000"),
            ("java", "-ea -Xss64m -Xmx100m --enable-preview -Duser.language=de"),
            ("bash", "-eu -x --posix"),
            ("perl", "-w -Mstrict -Mfeature=say"),
        ] {
            let definition = registry.by_name(language).expect("known");
            assert_eq!(definition.check_interpreter_arguments(&words(arguments)), Ok(()), "{language}");
        }
        let standard = |language, name| registry.by_name(language).expect("known").compiler_arguments(Some(name), &[]);
        assert_eq!(standard("cpp", "c++17"), Ok(words("-std=c++17")));
        assert_eq!(standard("rust", "2018"), Ok(words("--edition=2018")));
        assert_eq!(standard("java", "11"), Ok(words("--release=11")));
        let unknown = standard("c", "c++17").expect_err("refused");
        assert_eq!(unknown.field, "standard");
        assert!(unknown.to_string().starts_with("unknown standard 'c++17' of C: expected one of c89, "), "{unknown}");
        assert_eq!(standard("python", "3").expect_err("refused").to_string(), "Python has no standards to choose from");
    }

    #[test]
    fn arguments_that_read_write_load_or_execute_are_refused() {
        let registry = Registry::shipped().expect("valid");
        for (language, arguments) in [
            (
                "c",
                "-o -ox -wrapper -fplugin=x -B/tmp -I/ -I -include -x -xc++ -specs=x -Xlinker -Wl,-T,x -Wa,x -Wp,-MD,x @file main.c -c -E -S -L/ -lx/../y -save-temps -fdump-tree-all -D -D=x -imacros -T -fuse-ld=x -fsanitize=leak --sysroot=/ -std=c11\n-o -dumpbase -MF -fprofile-use=/x -ffile-prefix-map=a=b",
            ),
            ("cpp", "-o -fplugin=x @x -fmodules-ts -fmodule-mapper=|x -I."),
            (
                "java",
                "-d -processor -processorpath --processor-path=x -sourcepath @x -J-Dx -Xplugin:x -cp -Akey=@x -h Main.java",
            ),
            (
                "rust",
                "-o -C -Clinker=x -Clink-arg=x -L/ --extern=x @x -Zunstable --out-dir=x --emit=x -Cincremental=x -Cprofile-use=/x main.rs",
            ),
            (
                "go",
                "-toolexec=x -ldflags=x -o -overlay=x -C/ -race -mod=mod -gcflags=-importcfg=x -pkgdir=x -exec=x -modfile=x",
            ),
            ("typescript", "--outDir --project -p x.ts @x --plugins --rootDir"),
        ] {
            let definition = registry.by_name(language).expect("known");
            for argument in arguments.split(' ') {
                let error = definition.compiler_arguments(None, &[argument.to_owned()]).expect_err(argument);
                assert_eq!(error.field, "compiler_args");
            }
        }
        for (language, arguments) in [
            ("python", "-c -m -mx x.py - -i -Wignore::os.x -Wignore:::os -Xpycache_prefix=/x -Ximporttime\0 -h -x"),
            (
                "javascript",
                "-r --require --require=x --import=x -e --eval=x --loader=x --inspect -i --cpu-prof --env-file=x --heapsnapshot-near-heap-limit=1 --redirect-warnings=x --experimental-loader=x --icu-data-dir=x --openssl-config=x",
            ),
            (
                "java",
                "-cp -jar -javaagent:x -agentlib:x @x -XX:OnError=x -XX:Flags=x -Dx=/y -Xbootclasspath/a:x -Xlog:gc:x --module-path=x -Xrunx",
            ),
            ("bash", "-c -i -l -s --rcfile --init-file -o -"),
            ("perl", "-e -E -i -n -p -I/ -Mx -MList::Util -d -Dx -x -S -s"),
        ] {
            let definition = registry.by_name(language).expect("known");
            for argument in arguments.split(' ') {
                let error = definition.check_interpreter_arguments(&[argument.to_owned()]).expect_err(argument);
                assert_eq!(error.field, "interpreter_args");
            }
        }
        let c = registry.by_name("c").expect("known");
        let error = c.compiler_arguments(None, &words("-o")).expect_err("refused").to_string();
        assert!(error.starts_with("compiler argument '-o' is not allowed for C; allowed are "), "{error}");
        let error = c.check_interpreter_arguments(&words("-O")).expect_err("refused").to_string();
        assert_eq!(error, "C has no interpreter arguments to set");
        assert!(c.compiler_arguments(None, &words(&"-O2 ".repeat(101))).is_err());
        assert!(c.compiler_arguments(None, &[format!("-DX={}", "x".repeat(1000))]).is_err());
    }
}
