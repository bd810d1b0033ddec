//! The command line, from its words to [`Arguments`], and the answer if they were refused.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::error::{ContextKind, ContextValue};
use clap::{Command, CommandFactory, FromArgMatches};
use sandbox_runtimes::nearest;

use crate::args::Arguments;
use crate::output::{BAD, say};
use crate::{exit_code, run, terminal_flags};

/// The narrowest help: on a narrower terminal, examples keep their lines, and can be pasted.
const LEAST_WIDTH: usize = 80;

/// Commands that take `--runtimes`, which may precede them.
const WITH_RUNTIMES: [&str; 2] = ["languages", "prepare"];

/// Parses the command line.
pub(crate) fn parse() -> Result<Arguments, clap::Error> {
    parse_words(&runtimes_after_command(terminal_flags::expand(std::env::args_os())))
}

fn parse_words(words: &[OsString]) -> Result<Arguments, clap::Error> {
    let parsed = |command: Command| {
        let matches = command.try_get_matches_from(words)?;
        let mut arguments = Arguments::from_arg_matches(&matches)?;
        arguments.name_code(words)?;
        Ok(arguments)
    };
    // -m is --memory, as in `docker run -m 512m`, and --module, as in `python -m pytest`. A size begins with a digit, the
    // name of a module does not. Only the parser knows whether -m is an option or belongs to the program.
    if words.iter().any(|word| word == "-m") {
        let command = command().mut_arg("memory", |memory| memory.short(None)).mut_arg("module", |arg| arg.short('m'));
        let is_module = |name: &String| name.starts_with(|c: char| c.is_alphabetic() || c == '_');
        let with_module: Result<Arguments, clap::Error> = parsed(command);
        if let Ok(arguments) = with_module
            && arguments.run.module_name.as_ref().is_some_and(is_module)
        {
            return Ok(arguments);
        }
    }
    let command = command();
    // The few options of the short help are one list.
    let short = |command: Command| command.mut_args(|arg| arg.help_heading(None::<&str>));
    if words.iter().any(|word| word == "-h") {
        return parsed(short(command).mut_subcommand("exec", short));
    }
    parsed(command)
}

/// Prints the short help.
pub(crate) fn print_help() {
    if let Err(help) = parse_words(&["sandbox-run", "-h"].map(OsString::from)) {
        let _ = help.print();
    }
}

/// The definition of the command line, for this terminal.
fn command() -> Command {
    let command = Arguments::command();
    let width = rustix::termios::tcgetwinsize(std::io::stdout()).map(|size| usize::from(size.ws_col));
    let width = width.ok().or_else(|| std::env::var("COLUMNS").ok()?.parse().ok());
    if width.is_some_and(|width| width < LEAST_WIDTH) { command.term_width(LEAST_WIDTH) } else { command }
}

/// Puts `--runtimes DIR` after the command that it precedes.
fn runtimes_after_command(mut words: Vec<OsString>) -> Vec<OsString> {
    let flag = words.get(1).and_then(|word| word.to_str()).unwrap_or_default();
    let command = match flag {
        "--runtimes" => 3,
        flag if flag.starts_with("--runtimes=") => 2,
        _ => return words,
    };
    if words.get(command).is_some_and(|word| WITH_RUNTIMES.iter().any(|known| word == known)) {
        words[1..=command].rotate_right(1);
    }
    words
}

impl Arguments {
    /// Decides which of the words name the code, and leaves the arguments of the program. `whole` is the command line.
    fn name_code(&mut self, whole: &[OsString]) -> Result<(), clap::Error> {
        if self.action.is_some() {
            return Ok(());
        }
        let refuse = |why: &str| Err(clap::Error::raw(clap::error::ErrorKind::ValueValidation, why));
        if self.run.module {
            if self.words.is_empty() {
                return refuse("--module requires the name of a module");
            }
            let Ok(name) = self.words.remove(0).into_string() else {
                return refuse("the name of the module is not UTF-8");
            };
            self.run.module_name = Some(name);
            return Ok(());
        }
        // The words are the end of the command line. After `--` they are arguments, unless nothing else says what to run.
        let is_escaped = whole.iter().rev().nth(self.words.len()).is_some_and(|word| word == "--");
        let are_arguments = self.run.has_code() || self.run.is_program() || (is_escaped && self.run.lang.is_some());
        if !self.words.is_empty() && !are_arguments {
            self.run.file.push(PathBuf::from(self.words.remove(0)));
            self.run.is_positional = true;
        }
        Ok(())
    }
}

/// What someone may have meant who gave the name of a file that does not exist, in place of a command.
pub(crate) fn meant(file: &Path) -> Option<String> {
    let word = file.to_str().filter(|word| !word.contains(['/', '.']))?;
    let command = Arguments::command();
    let commands = command.get_subcommands().filter(|command| !command.is_hide_set()).map(Command::get_name);
    Some(match nearest(word, commands) {
        Some(command) if command == word => format!("the command '{word}' comes before all options"),
        Some(command) => format!("did you mean the command '{command}'?"),
        None => format!("run a program of the system with sandbox-run exec {word}"),
    })
}

/// Prints the help or the version that was asked for, or why the command line was refused. Returns the exit code.
pub(crate) fn answer(mut error: clap::Error) -> u8 {
    if !error.use_stderr() {
        let _ = error.print();
        return 0;
    }
    keep_near_suggestions(&mut error);
    let plain = error.render().to_string();
    let message = plain.strip_prefix("error: ").unwrap_or(&plain);
    let first = message.lines().take_while(|line| !line.is_empty()).map(str::trim).collect::<Vec<_>>().join(" ");
    run::print_refusal(&first);
    let styled = error.render().ansi().to_string();
    let styled = styled.split_once("error:").map_or(styled.as_str(), |(_, rest)| rest);
    say(&format!("{BAD}sandbox-run:{}", styled.trim_end()));
    exit_code::USAGE
}

/// Removes suggestions of names that merely have some letters in common with the one that was given, and the advice to
/// put `--` before an unknown option, which would make it the name of a file.
fn keep_near_suggestions(error: &mut clap::Error) {
    error.remove(ContextKind::Suggested);
    for (given, suggested) in [
        (ContextKind::InvalidArg, ContextKind::SuggestedArg),
        (ContextKind::InvalidValue, ContextKind::SuggestedValue),
        (ContextKind::InvalidSubcommand, ContextKind::SuggestedSubcommand),
    ] {
        let Some(ContextValue::String(given)) = error.get(given).cloned() else { continue };
        let is_near = |name: &String| {
            let [given, name] = [given.as_str(), name].map(|name| name.trim_start_matches('-'));
            nearest(given, [name]).is_some()
        };
        let near = match error.get(suggested) {
            Some(ContextValue::String(name)) => is_near(name),
            Some(ContextValue::Strings(names)) => names.iter().any(is_near),
            _ => true,
        };
        if !near {
            error.remove(suggested);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sandbox_base::LimitKind;

    fn parse(line: &str) -> Result<Arguments, clap::Error> {
        let words = ["sandbox-run"].into_iter().chain(line.split_whitespace()).map(OsString::from);
        parse_words(&runtimes_after_command(words.collect()))
    }

    /// The files, and the arguments of the program.
    fn code(line: &str) -> (Vec<String>, Vec<String>) {
        let arguments = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
        let files = arguments.run.file.iter().map(|file| file.display().to_string()).collect();
        (files, arguments.words.iter().map(|word| word.to_string_lossy().into_owned()).collect())
    }

    #[test]
    fn the_first_word_names_the_code_and_the_rest_belongs_to_the_program() {
        for (line, file, arguments) in [
            ("script.py a -l --json -- b", Some("script.py"), vec!["a", "-l", "--json", "--", "b"]),
            ("--timeout 5s script.py --timeout", Some("script.py"), vec!["--timeout"]),
            ("--lang python script x", Some("script"), vec!["x"]),
            ("--lang python - x", Some("-"), vec!["x"]),
            ("--lang python -- x", None, vec!["x"]),
            ("-- -odd.py x", Some("-odd.py"), vec!["x"]),
            ("--file a.py --file b.py x -y", None, vec!["x", "-y"]),
            ("--file a.py -- x", None, vec!["x"]),
            ("--lang python --code 1 x", None, vec!["x"]),
            ("--image python ls -la", None, vec!["ls", "-la"]),
            ("--image python -- /bin/ls", None, vec!["/bin/ls"]),
            ("--image python --lang python a.py b", Some("a.py"), vec!["b"]),
            ("./doctor", Some("./doctor"), vec![]),
        ] {
            let (files, rest) = code(line);
            let given = files.first().filter(|_| !line.contains("--file"));
            assert_eq!(
                (given.map(String::as_str), rest),
                (file, arguments.into_iter().map(str::to_owned).collect()),
                "{line}"
            );
        }
    }

    #[test]
    fn a_module_and_a_memory_limit_have_the_same_short_option() {
        let parsed = |line: &str| {
            let arguments = parse(line).unwrap_or_else(|error| panic!("{line}: {error}"));
            let memory = arguments.run.run.limits.given().find(|(kind, _)| *kind == LimitKind::Memory);
            (arguments.run.module_name.clone(), memory.map(|(_, text)| text.to_owned()), arguments.words.len())
        };
        let named =
            |module: &str, memory: Option<&str>, words| (Some(module.to_owned()), memory.map(str::to_owned), words);
        assert_eq!(parsed("-m pytest -q --maxfail=1"), named("pytest", None, 2));
        assert_eq!(parsed("--memory 1g -m json.tool -m 5"), named("json.tool", Some("1g"), 2));
        assert_eq!(parsed("-m 512m --module pytest -m"), named("pytest", Some("512m"), 1));
        assert_eq!(parsed("-m 512m script.py -m x"), (None, Some("512m".to_owned()), 2));
        assert_eq!(parsed("script.py -m x"), (None, None, 2));
        assert!(parse("--module").is_err() && parse("-m").is_err());
    }

    #[test]
    fn commands_win_over_files_and_take_the_runtimes_before_them() {
        for line in ["doctor", "help exec", "--runtimes x languages", "--runtimes=x prepare go", "exec ls -la --json"] {
            assert!(parse(line).map_or_else(|error| !error.use_stderr(), |it| it.action.is_some()), "{line}");
        }
        assert_eq!(code("--timeout 5s doctor").0, ["doctor"]);
        assert_eq!(meant(Path::new("doktor")).as_deref(), Some("did you mean the command 'doctor'?"));
        assert_eq!(meant(Path::new("doctor")).as_deref(), Some("the command 'doctor' comes before all options"));
        assert!(meant(Path::new("ls")).is_some_and(|text| text.ends_with("sandbox-run exec ls")));
        assert_eq!(meant(Path::new("x.py")), None);
    }

    #[test]
    fn only_near_options_are_suggested() {
        for (line, near) in [("--lnag x", true), ("--volumes x", true), ("--foo", false), ("--formula", false)] {
            let mut error = parse(line).expect_err(line);
            keep_near_suggestions(&mut error);
            assert_eq!(error.to_string().contains("similar"), near, "{line}: {error}");
        }
    }
}
